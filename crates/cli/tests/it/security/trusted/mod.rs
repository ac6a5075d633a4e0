//! Threat: programs that write files which Ringfence executes, loads or believes: in the workspace, in
//! mounts, through the file tools, by delivered files, and by links.

mod accepted;
mod configuration;
mod consent;
mod deliveries;
mod entries;
mod fenced;
mod indirect;
mod interpreters;
mod ledger;
mod links;
mod named;
mod outside;
mod reached;
mod repositories;
mod servers;
mod skills;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::support::Dir;

/// Tries to change a trusted path below a root, in each possible way. Prints each result: `ok`, or the error.
const TRY: &str = r#"
import errno, os, shutil, sys
root, name = sys.argv[1:3]
path, new = os.path.join(root, name), os.path.join(root, "planted")
inner = os.path.join(path, "inner") if os.path.isdir(path) else path
shutil.rmtree(new, ignore_errors=True)
os.makedirs(os.path.join(new, "sub"))

def write(): open(inner, "a").close()
def remove(): os.remove(inner) if inner == path else os.rmdir(path)
def move(): os.rename(path, os.path.join(new, "moved"))
def replace():
    source = os.path.join(new, "file" if inner == path else "sub")
    if inner == path: open(source, "w").close()
    os.rename(source, path)
def link(): os.link(inner, os.path.join(new, "alias"))
def attributes(): os.utime(path, (0, 0))
acts = [write, remove, move, replace, attributes] + ([link] if inner == path else [])
above = os.path.dirname(name)
while above:
    acts.append(lambda above=above: os.rename(os.path.join(root, above), os.path.join(new, "above")))
    above = os.path.dirname(above)
for act in acts:
    try:
        act()
        print("ok")
    except OSError as error:
        print(errno.errorcode[error.errno])
"#;

/// Returns the attempts for a test that passes no arguments.
fn trying(root: &str, name: &str) -> String {
    format!("import sys\nsys.argv[1:] = [{root:?}, {name:?}]\n{TRY}")
}

/// Asserts that every attempt failed, with the expected errors.
#[track_caller]
fn kept(printed: &str) {
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.len() >= 5, "{printed}");
    for line in lines {
        assert!(["EROFS", "EBUSY", "EXDEV"].contains(&line), "{printed}");
    }
}

/// Gives a tree to a user, so that only a mount can deny that user.
fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap().path();
            match entry.is_symlink() {
                true => std::os::unix::fs::lchown(entry, Some(user), Some(user)).unwrap(),
                false => give(&entry, user),
            }
        }
    }
}

/// Returns everything below a directory, with the contents of files.
fn all(dir: &Dir, name: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut todo = vec![dir.path(name)];
    while let Some(path) = todo.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap().path();
            let text = fs::read(&entry).unwrap_or_default();
            found.push((entry.display().to_string(), text));
            if entry.is_dir() && !entry.is_symlink() {
                todo.push(entry);
            }
        }
    }
    found.sort();
    found
}
