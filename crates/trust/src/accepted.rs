//! Files whose current content a person accepted. In directories that programs could write, others are not
//! used.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::identity::holds;
use super::ledger::{self, Ledger};
use super::resolve::resolve;

/// Maximum number of files. The oldest are dropped, and need to be accepted again.
const MOST: usize = 1024;

/// Maximum size of a file, above any configuration file.
const MAX_BYTES: u64 = 1 << 20;

/// The accepted files of this user, in a file of the state directory.
///
/// It applies to directories that programs could ever write to. Elsewhere a file is the user's own.
#[derive(Debug, Clone, Default)]
pub struct Accepted {
    opened: Ledger,
    /// `None`: nothing is stored.
    file: Option<PathBuf>,
}

/// The digest of a file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(String);

impl Digest {
    /// Computes the digest of a file's content.
    pub fn of(content: &[u8]) -> Self {
        let digest = Sha256::digest(content);
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AcceptedFile {
    path: PathBuf,
    digest: Digest,
}

impl Accepted {
    /// Opens the record in a state directory.
    pub fn at(state: &Path) -> Self {
        Self {
            opened: Ledger::at(state),
            file: Some(state.join("accepted.json")),
        }
    }

    /// Accepts the current content of files.
    ///
    /// # Errors
    /// If one cannot be read, or the record cannot be written.
    pub fn give(&self, files: &[PathBuf]) -> io::Result<()> {
        let Some(record) = self.file.as_ref().filter(|_| !files.is_empty()) else {
            return Ok(());
        };
        let mut new = Vec::with_capacity(files.len());
        for file in files {
            let path = resolve(file)?.path;
            // The libraries of an environment have two names, `lib` and `lib64`.
            if new.iter().all(|known: &AcceptedFile| known.path != path) {
                let digest = Digest::of(&content(file)?);
                new.push(AcceptedFile { path, digest });
            }
        }
        ledger::change(record, |all: &mut Vec<AcceptedFile>| {
            all.retain(|known| !new.iter().any(|new| new.path == known.path));
            all.splice(0..0, new);
            all.truncate(MOST);
        })
    }

    /// Accepts those files that lie in directories which programs are about to get write access to for the
    /// first time: until then they are the user's own.
    ///
    /// # Errors
    /// If one cannot be read, or the record cannot be written.
    pub fn give_before(&self, trees: &[&Path], files: &[PathBuf]) -> io::Result<()> {
        let mut new = Vec::new();
        for file in files {
            let path = resolve(file)?.path;
            let opens = trees.iter().any(|tree| holds(tree, &path));
            if opens && self.around(file)?.is_none() {
                new.push(path);
            }
        }
        self.give(&new)
    }

    /// Returns the directory in which a program may have written this content since a person accepted the
    /// file, if any.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn written(&self, file: &Path, content: &Digest) -> io::Result<Option<PathBuf>> {
        let (Some(tree), Some(record)) = (self.around(file)?, &self.file) else {
            return Ok(None);
        };
        let path = resolve(file)?.path;
        let all: Vec<AcceptedFile> = ledger::read(record)?;
        let is_accepted = all
            .iter()
            .any(|seen| seen.path == path && seen.digest == *content);
        Ok((!is_accepted).then_some(tree))
    }

    /// Returns the directory that each program which may have written a file could write as a whole, if there is
    /// one.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn reach(&self, file: &Path) -> io::Result<Option<PathBuf>> {
        match self.opened.around(file)? {
            None => self.opened.whole_around(&resolve(file)?.path),
            Some(_) => self.opened.whole_around(file),
        }
    }

    /// Returns the recorded directory around a file, or around the target of a link.
    fn around(&self, file: &Path) -> io::Result<Option<PathBuf>> {
        match self.opened.around(file)? {
            None => self.opened.around(&resolve(file)?.path),
            found => Ok(found),
        }
    }
}

fn content(file: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("expected a regular file"));
    }
    let mut content = Vec::new();
    File::open(file)?.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("expected at most 1 MiB"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_as_it_was_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = |name: &str| root.join(name);
        for name in ["state", "w"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("w/before"), "one").unwrap();
        std::os::unix::fs::symlink("w/before", path("link")).unwrap();
        let (accepted, trees) = (Accepted::at(&path("state")), [&*path("w")]);
        let written = |name: &str, text: &str| {
            let content = Digest::of(text.as_bytes());
            accepted.written(&path(name), &content).unwrap()
        };
        assert_eq!(written("w/before", "any"), None);
        accepted.give_before(&trees, &[path("w/before")]).unwrap();
        Ledger::at(&path("state")).add(&trees).unwrap();
        assert_eq!(written("w/before", "one"), None);
        assert_eq!(written("link", "one"), None);
        for (name, text) in [("w/before", "two"), ("link", "two"), ("w/new", "one")] {
            assert_eq!(written(name, text), Some(path("w")), "{name}");
        }
        // The directory is known by now.
        fs::write(path("w/before"), "two").unwrap();
        accepted.give_before(&trees, &[path("w/before")]).unwrap();
        assert_eq!(written("w/before", "two"), Some(path("w")));
        accepted.give(&[path("w/before")]).unwrap();
        assert_eq!(written("w/before", "two"), None);
        assert_eq!(written("w/before", "one"), Some(path("w")));
        assert!(accepted.give(&[path("w")]).is_err());
    }

    #[test]
    fn a_file_is_recorded_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("lib")).unwrap();
        fs::write(dir.path().join("lib/a.pth"), "").unwrap();
        std::os::unix::fs::symlink("lib", dir.path().join("lib64")).unwrap();
        let files = ["lib/a.pth", "lib64/a.pth"].map(|name| dir.path().join(name));
        Accepted::at(dir.path()).give(&files).unwrap();
        let all: Vec<AcceptedFile> = ledger::read(&dir.path().join("accepted.json")).unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
    }

    #[test]
    fn a_damaged_record_accepts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("accepted.json"), "{").unwrap();
        Ledger::at(dir.path()).add(&[dir.path()]).unwrap();
        let written = Accepted::at(dir.path()).written(&dir.path().join("x"), &Digest::of(b""));
        assert!(written.is_err());
    }
}
