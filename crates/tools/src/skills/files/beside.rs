//! Collects modules in a directory of skills that skill files can import.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_exec::trust::NamedPaths;
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use super::{MAX_LENGTH, text};

/// Maximum number of files of all modules.
const MAX_MODULES: usize = 128;
/// Maximum size of all modules, as JSON: with a skill file they must fit into a message.
const MAX_TEXTS: usize = 512 * 1024;
/// Maximum nesting of packages.
const MAX_DEPTH: usize = 8;
/// Maximum number of entries read from a directory of a package.
const MAX_ENTRIES: usize = 1000;
/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 16;

/// File that makes a directory a package.
const INIT: &str = "__init__.py";

/// Importable modules, and problems with others.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    /// Source by file, such as `_shared.py` and `tools/__init__.py`.
    pub(super) modules: BTreeMap<String, String>,
    /// Resolved paths of the files and packages at the top level.
    pub(super) sources: Vec<PathBuf>,
    pub(super) problems: Vec<String>,
}

impl Beside {
    /// Collects the modules among the entries of a directory of skills: files whose names begin with `_`, and
    /// packages.
    pub(super) fn of(directory: &Path, names: &[String], paths: &NamedPaths) -> Self {
        let mut beside = Self::default();
        let mut length = 0;
        for name in names {
            let room = MAX_MODULES - beside.modules.len();
            match gathered(directory, name, paths, room) {
                Ok((modules, source)) => {
                    let taken: usize = modules.values().map(|text| json_length(text)).sum();
                    if length + taken > MAX_TEXTS {
                        beside.leave_out(name, "all modules beside skills may have 512 KiB together");
                        continue;
                    }
                    length += taken;
                    beside.modules.extend(modules);
                    beside.sources.extend(source);
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

fn json_length(text: &str) -> usize {
    serde_json::Value::from(text).to_string().len()
}

/// Modules of an entry, and its resolved path.
type Gathered = (BTreeMap<String, String>, Option<PathBuf>);

/// Collects the modules of one entry; empty for any other entry.
fn gathered(directory: &Path, name: &str, paths: &NamedPaths, room: usize) -> io::Result<Gathered> {
    let mut modules = BTreeMap::new();
    let mut source = None;
    if let Some(stem) = name.strip_suffix(".py") {
        if stem.starts_with('_') && is_identifier(stem) {
            has_room(room)?;
            let (text, path) = text::of(&directory.join(name), MAX_LENGTH, paths)?;
            modules.insert(name.to_owned(), text);
            source = Some(path);
        }
    } else if is_identifier(name) && directory.join(name).is_dir() {
        // A link at this level may be the user's own. Inside a package it may have been created by a skill
        // that may write there.
        let (package, path) = paths
            .open_directory(&directory.join(name))
            .map_err(text::for_programs)?;
        take(&package, name, MAX_DEPTH, &mut modules, room)?;
        source = Some(path).filter(|_| !modules.is_empty());
    }
    Ok((modules, source))
}

/// Collects the modules of a package, if the directory is one.
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

/// Opens an entry of a directory. `None` if it does not exist, is of another kind, or is a link.
fn opened(directory: &OwnedFd, name: &str, more: OFlags) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    match openat(directory.as_fd(), name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Lists a directory, sorted.
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

/// Returns `true` for an ASCII Python identifier.
fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Returns the modules and problems of a directory.
    fn beside(directory: &Path) -> (Vec<String>, Vec<String>) {
        let mut names: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let found = Beside::of(directory, &names, &NamedPaths::default());
        (found.modules.into_keys().collect(), found.problems)
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
        // Links at the top level are followed, like those to skill files.
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
