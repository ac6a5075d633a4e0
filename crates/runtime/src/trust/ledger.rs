//! A ledger of the host directories that programs were allowed to write, so that links in them count as
//! theirs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum number of directories; the oldest are dropped.
const MOST: usize = 1024;

/// The directories that programs of this user were ever allowed to write, in a file of the state directory.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// `None`: nothing is stored.
    file: Option<PathBuf>,
}

/// A directory by its path, and by device and inode: it may be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Opened {
    path: PathBuf,
    identity: (u64, u64),
}

impl Ledger {
    /// Returns the ledger of a state directory.
    pub fn at(state: &Path) -> Self {
        Self {
            file: Some(state.join("opened.json")),
        }
    }

    /// Adds directories that a program is about to be given write access to.
    ///
    /// # Errors
    /// If the ledger cannot be read or written.
    pub fn add(&self, directories: &[&Path]) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let opened = directories.iter().filter_map(|path| {
            let found = fs::metadata(path).ok()?;
            Some(Opened {
                path: path.to_path_buf(),
                identity: (found.dev(), found.ino()),
            })
        });
        let known: Vec<Opened> = read(file)?;
        let new: Vec<Opened> = opened.filter(|opened| !known.contains(opened)).collect();
        if new.is_empty() {
            return Ok(());
        }
        change(file, |all: &mut Vec<Opened>| {
            all.retain(|known| !new.contains(known));
            all.splice(0..0, new);
            all.truncate(MOST);
        })
    }

    /// Returns the recorded directory that a path lies in, if any.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn around(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let Some(file) = &self.file else { return Ok(None) };
        let known: Vec<Opened> = read(file)?;
        let mut above = path.ancestors().skip(1);
        Ok(above.find_map(|above| {
            let identity = fs::metadata(above).ok().map(|found| (found.dev(), found.ino()));
            let is_it = |opened: &&Opened| Some(opened.identity) == identity || opened.path == above;
            known.iter().find(is_it).map(|_| above.to_path_buf())
        }))
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

/// Reads a state file; a missing one is empty. A damaged one is an error: nobody else writes it.
pub(crate) fn read<T: DeserializeOwned + Default>(file: &Path) -> io::Result<T> {
    match File::open(file) {
        Ok(file) => serde_json::from_reader(io::BufReader::new(file)).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error),
    }
}

/// Updates a state file atomically.
///
/// # Errors
/// If it cannot be read or written.
pub(crate) fn change<T: DeserializeOwned + Default + Serialize>(
    file: &Path,
    change: impl FnOnce(&mut T),
) -> io::Result<()> {
    // Concurrent processes must not overwrite each other's changes.
    let state = File::open(file.parent().unwrap_or(Path::new("/")))?;
    state.lock()?;
    let mut all: T = read(file)?;
    change(&mut all);
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    let written = serde_json::to_vec(&all)
        .map_err(io::Error::other)
        .and_then(|bytes| io::Write::write_all(&mut options().open(&temporary)?, &bytes))
        .and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_known_by_name_and_by_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["state", "one/below", "two", "three"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let ledger = Ledger::at(&path("state"));
        let around = |name: &str| ledger.around(&path(name)).unwrap();
        assert_eq!(around("one/below/link"), None);
        ledger.add(&[&path("one"), &path("none")]).unwrap();
        ledger.add(&[&path("two"), &path("one")]).unwrap();
        assert_eq!(around("one/below/link"), Some(path("one")));
        assert_eq!(around("one"), None);
        fs::rename(path("two"), path("moved")).unwrap();
        assert_eq!(around("moved/link"), Some(path("moved")));
        assert_eq!(around("three/link"), None);
        assert_eq!(Ledger::default().around(&path("one/link")).unwrap(), None);
    }

    #[test]
    fn what_is_damaged_is_no_empty_list() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(dir.path());
        fs::write(dir.path().join("opened.json"), "{").unwrap();
        assert!(ledger.around(&dir.path().join("x/y")).is_err());
        assert!(ledger.add(&[dir.path()]).is_err());
    }
}
