//! The modules that lie beside files of skills, for these to import.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use super::{MAX_LENGTH, text};

/// Files of all modules together.
const MAX_MODULES: usize = 128;
/// Their texts together, as JSON: with a file of skills they must fit into a line.
const MAX_TEXTS: usize = 512 * 1024;
/// How deep packages lie in each other.
const MAX_DEPTH: usize = 8;
/// Entries of a package that are looked at.
const MAX_ENTRIES: usize = 1000;
/// How many problems are told.
const MAX_PROBLEMS: usize = 16;

/// What makes a directory a package.
const INIT: &str = "__init__.py";

/// Modules, and why others are none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    /// Texts by file, such as `_shared.py` and `tools/__init__.py`.
    pub(super) modules: BTreeMap<String, String>,
    pub(super) problems: Vec<String>,
}

impl Beside {
    /// The modules among these entries of a directory of skills: files whose names begin with `_`, and packages.
    pub(super) fn of(directory: &Path, names: &[String]) -> Self {
        let mut beside = Self::default();
        let mut length = 0;
        for name in names {
            let room = MAX_MODULES - beside.modules.len();
            match gathered(directory, name, room) {
                Ok(modules) => {
                    let taken: usize = modules.values().map(|text| json_length(text)).sum();
                    if length + taken > MAX_TEXTS {
                        beside.leave_out(name, "all modules beside skills may have 512 KiB together");
                        continue;
                    }
                    length += taken;
                    beside.modules.extend(modules);
                }
                Err(why) => beside.leave_out(name, &why.to_string()),
            }
        }
        beside
    }

    fn leave_out(&mut self, name: &str, why: &str) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("{name} cannot be imported: {why}"));
        }
    }
}

/// The length of a text in a line.
fn json_length(text: &str) -> usize {
    serde_json::Value::from(text).to_string().len()
}

/// The modules of one entry; none if it is something else.
fn gathered(directory: &Path, name: &str, room: usize) -> io::Result<BTreeMap<String, String>> {
    let mut modules = BTreeMap::new();
    if let Some(stem) = name.strip_suffix(".py") {
        if stem.starts_with('_') && is_identifier(stem) {
            has_room(room)?;
            modules.insert(name.to_owned(), text::of(&directory.join(name), MAX_LENGTH)?);
        }
    } else if is_identifier(name) && directory.join(name).is_dir() {
        // A link is the person's own here. In a package it may be that of a skill, which may write there.
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let package = openat(CWD, directory.join(name), flags, Mode::empty())?;
        take(&package, name, MAX_DEPTH, &mut modules, room)?;
    }
    Ok(modules)
}

/// Takes in the modules of a package, if it is one.
fn take(
    directory: &OwnedFd,
    place: &str,
    depth: usize,
    modules: &mut BTreeMap<String, String>,
    room: usize,
) -> io::Result<()> {
    let Some(init) = opened(directory, INIT, OFlags::empty())? else {
        return Ok(());
    };
    let mut names = names(directory)?;
    names.retain(|name| name != INIT);
    let failed = |file: &str, error: io::Error| io::Error::other(format!("{place}/{file}: {error}"));
    let mut put = |file: &str, opened: OwnedFd| {
        has_room(room - modules.len())?;
        let text = text::of_file(File::from(opened), MAX_LENGTH).map_err(|error| failed(file, error))?;
        modules.insert(format!("{place}/{file}"), text);
        Ok::<_, io::Error>(())
    };
    put(INIT, init)?;
    for name in &names {
        if name.strip_suffix(".py").is_some_and(is_identifier)
            && let Some(module) = opened(directory, name, OFlags::empty())?
        {
            put(name, module)?;
        }
    }
    for name in names.iter().filter(|name| is_identifier(name)) {
        if depth > 1
            && let Some(below) = opened(directory, name, OFlags::DIRECTORY)?
        {
            take(&below, &format!("{place}/{name}"), depth - 1, modules, room)?;
        }
    }
    Ok(())
}

fn has_room(room: usize) -> io::Result<()> {
    match room {
        0 => Err(io::Error::other(format!(
            "there may be {MAX_MODULES} files of modules beside skills"
        ))),
        _ => Ok(()),
    }
}

/// An entry of a directory; `None` if it is not there, is of another kind, or a link.
fn opened(directory: &OwnedFd, name: &str, more: OFlags) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    match openat(directory.as_fd(), name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// What lies in a directory, sorted.
fn names(directory: &OwnedFd) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        if let Ok(name) = entry?.file_name().to_str() {
            names.push(name.to_owned());
        }
        if names.len() > MAX_ENTRIES {
            return Err(io::Error::other(format!(
                "a directory of it holds more than {MAX_ENTRIES} entries"
            )));
        }
    }
    names.sort();
    Ok(names)
}

/// Whether it is one of Python in plain letters.
fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// The files and the problems of what lies in a directory.
    fn beside(directory: &Path) -> (Vec<String>, Vec<String>) {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let Beside { modules, problems } = Beside::of(directory, &names);
        (modules.into_keys().collect(), problems)
    }

    fn put(directory: &Path, files: &[&str]) {
        for file in files {
            let path = directory.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x = 1\n").unwrap();
        }
    }

    #[test]
    fn modules_are_private_files_and_packages() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            "_shared.py",
            "_a/__init__.py",
            "b/__init__.py",
            "b/c.py",
            "b/d/__init__.py",
        ];
        put(dir.path(), &files);
        put(
            dir.path(),
            &[
                "notes.py",
                "data/x.py",
                "b/none/x.py",
                "b/readme.txt",
                "_not-one.py",
                "_shared.txt",
            ],
        );
        assert_eq!(beside(dir.path()), {
            let mut files: Vec<String> = files.iter().map(|&file| file.to_owned()).collect();
            files.sort();
            (files, Vec::new())
        });
    }

    #[test]
    fn links_in_a_package_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let secret = tempfile::tempdir().unwrap();
        put(secret.path(), &["secret.py", "__init__.py"]);
        put(dir.path(), &["b/__init__.py"]);
        symlink(secret.path().join("secret.py"), dir.path().join("b/a.py")).unwrap();
        symlink(secret.path(), dir.path().join("b/c")).unwrap();
        assert_eq!(beside(dir.path()), (vec!["b/__init__.py".to_owned()], Vec::new()));
        // The person's own links beside the skills are followed, as those to files of skills are.
        symlink(secret.path(), dir.path().join("d")).unwrap();
        assert_eq!(beside(dir.path()).0.len(), 3);
    }

    #[test]
    fn what_is_too_much_is_left_out_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &["_z.py"]);
        fs::write(dir.path().join("_long.py"), "#".repeat(200_000)).unwrap();
        fs::write(dir.path().join("_torn.py"), b"\xff").unwrap();
        for at in 0..MAX_MODULES {
            put(dir.path(), &[&format!("many/m{at}.py")]);
        }
        put(dir.path(), &["many/__init__.py"]);
        for at in 0..5 {
            fs::write(dir.path().join(format!("_b{at}.py")), "#".repeat(120_000)).unwrap();
        }
        let (files, problems) = beside(dir.path());
        assert_eq!(files, ["_b0.py", "_b1.py", "_b2.py", "_b3.py", "_z.py"]);
        let expected = [
            "_b4.py cannot be imported: all modules beside skills may have 512 KiB together",
            "_long.py cannot be imported: it is longer than 131072 bytes",
            "_torn.py cannot be imported: stream did not contain valid UTF-8",
            "many cannot be imported: there may be 128 files of modules beside skills",
        ];
        assert_eq!(problems, expected);
    }
}
