//! A cache of probed interpreters, valid until one of their files changes.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::probe::{self, Ask};
use super::python::{Python, Version};
use crate::trust::Accepted;

/// Format version; a file of another version is ignored.
const FORMAT: u32 = 3;

/// Maximum number of entries: few interpreters are in use, and each costs the others reading time.
const MAX_ENTRIES: usize = 8;

/// Maximum number of interpreters that were in use before. None is dropped, since programs must not change
/// any of them.
const MAX_PAST: usize = 256;

const MAX_BYTES: usize = 1 << 20;

/// Room for the entries of a usual machine.
const USUAL_BYTES: usize = 16 * 1024;

#[derive(Default, Serialize, Deserialize)]
struct Cache {
    format: u32,
    entries: Vec<Entry>,
    /// Interpreters that were used earlier, without the paths that only their own runs need.
    #[serde(default)]
    past: Vec<Python>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    candidate: PathBuf,
    stamps: Vec<Stamp>,
    found: ProbeResult,
}

/// The result of probing. Outdated versions are cached too, so that they are not probed every time.
#[derive(Clone, Serialize, Deserialize)]
enum ProbeResult {
    Python(Python),
    TooOld(Version),
}

/// A file's metadata, of the path itself and of a link's target.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    path: PathBuf,
    link: Option<FileStamp>,
    target: Option<FileStamp>,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct FileStamp {
    modified: (i64, i64),
    /// Change time (ctime): unlike the modification time, no program can set it back.
    changed: (i64, i64),
    size: u64,
    inode: u64,
    mode: u32,
}

/// Returns the interpreter at `candidate`: from the cache if its files did not change, else by probing it.
pub(super) fn python(
    candidate: &Path,
    path_var: Option<&OsStr>,
    cache_dir: Option<&Path>,
    ask: &Ask<'_>,
) -> Result<Python, Error> {
    let file = cache_dir.map(|dir| dir.join("interpreters.json"));
    let entries = file.as_deref().map(read).unwrap_or_default().entries;
    let known = entries.iter().find(|entry| entry.candidate == candidate);
    if let Some(entry) = known.filter(|entry| entry.stamps.iter().all(Stamp::holds)) {
        return entry.found.clone().into_result(candidate);
    }
    let accepted = cache_dir.map(Accepted::at).unwrap_or_default();
    let found = match probe::python(candidate, path_var, &accepted, ask) {
        Ok(python) => ProbeResult::Python(python),
        Err(Error::TooOld { version, .. }) => ProbeResult::TooOld(version),
        Err(error) => return Err(error),
    };
    if let Some(file) = file {
        let entry = Entry {
            candidate: candidate.to_owned(),
            stamps: stamps(candidate, &found),
            found: found.clone(),
        };
        remember(&file, entry)?;
    }
    found.into_result(candidate)
}

/// Adds an entry to the cache. Where it cannot be written, no program may write on the host, either.
///
/// # Errors
/// If there are too many interpreters that must not be changed.
fn remember(file: &Path, entry: Entry) -> Result<(), Error> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    _ = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    // Concurrent processes must not drop each other's entries.
    let lock = File::open(directory);
    _ = lock.as_ref().map(File::lock);
    let mut cache = read(file);
    cache.add(entry);
    let bytes = serde_json::to_vec(&cache).unwrap_or_default();
    if cache.past.len() > MAX_PAST || bytes.len() > MAX_BYTES {
        return Err(Error::Many {
            most: MAX_PAST,
            file: file.to_owned(),
        });
    }
    _ = write(file, &bytes);
    Ok(())
}

impl Cache {
    fn add(&mut self, entry: Entry) {
        self.format = FORMAT;
        let replaced = self
            .entries
            .extract_if(.., |known| known.candidate == entry.candidate);
        let mut dropped: Vec<Entry> = replaced.collect();
        self.entries.insert(0, entry);
        dropped.extend(self.entries.drain(MAX_ENTRIES.min(self.entries.len())..));
        let pythons = dropped.into_iter().filter_map(Entry::python);
        let past = pythons.map(|python| Python {
            search_path: Vec::new(),
            library_dirs: Vec::new(),
            ..python
        });
        self.past.extend(past);
        let mut known: Vec<Python> = Vec::new();
        for python in self.past.drain(..) {
            let is_it = |other: &Python| other.trusted() == python.trusted();
            if python.executable.symlink_metadata().is_ok() && !known.iter().any(is_it) {
                known.push(python);
            }
        }
        self.past = known;
    }
}

impl Entry {
    fn python(self) -> Option<Python> {
        match self.found {
            ProbeResult::Python(python) => Some(python),
            ProbeResult::TooOld(_) => None,
        }
    }
}

/// Returns every Python that was ever in use.
pub(super) fn pythons(cache_dir: &Path) -> impl Iterator<Item = Python> {
    let cache = read(&cache_dir.join("interpreters.json"));
    let entries = cache.entries.into_iter().filter_map(Entry::python);
    entries.chain(cache.past)
}

impl ProbeResult {
    fn into_result(self, candidate: &Path) -> Result<Python, Error> {
        match self {
            Self::Python(python) => Ok(python),
            Self::TooOld(version) => Err(Error::TooOld {
                path: candidate.to_owned(),
                version,
            }),
        }
    }
}

impl Stamp {
    fn of(path: PathBuf) -> Self {
        let link = fs::symlink_metadata(&path).ok();
        // A second call is needed for links only.
        let target = link
            .as_ref()
            .filter(|link| link.is_symlink())
            .and_then(|_| fs::metadata(&path).ok());
        Self {
            link: link.as_ref().map(FileStamp::of),
            target: target.as_ref().map(FileStamp::of),
            path,
        }
    }

    fn holds(&self) -> bool {
        Self::of(self.path.clone()) == *self
    }
}

impl FileStamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            size: metadata.size(),
            inode: metadata.ino(),
            mode: metadata.mode(),
        }
    }
}

/// Returns the state of the files that identify an interpreter: the program, the version that a shim selects,
/// the `pyvenv.cfg` of a virtual environment, and the directories with packages and `.pth` files.
fn stamps(candidate: &Path, found: &ProbeResult) -> Vec<Stamp> {
    let mut paths = vec![candidate.to_owned()];
    if let Some(shims) = candidate.parent().filter(|dir| dir.ends_with("shims")) {
        paths.push(shims.with_file_name("version"));
    }
    if let ProbeResult::Python(python) = found {
        paths.push(python.executable.clone());
        paths.push(python.prefix.join("pyvenv.cfg"));
        paths.extend(python.search_path.iter().cloned());
    }
    paths.dedup();
    paths.into_iter().map(Stamp::of).collect()
}

/// Reads the cache; empty if it is missing, damaged or of another format.
fn read(file: &Path) -> Cache {
    // Room for all of it: a growing buffer would take a call for each size.
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    let read = File::open(file).and_then(|file| file.take(MAX_BYTES as u64).read_to_end(&mut bytes));
    let cache = read
        .ok()
        .and_then(|_| serde_json::from_slice::<Cache>(&bytes).ok());
    cache.filter(|cache| cache.format == FORMAT).unwrap_or_default()
}

fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut out| out.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(root: &Path, number: usize) -> Entry {
        let prefix = root.join(number.to_string());
        fs::create_dir(&prefix).unwrap();
        let part = |name: &str| prefix.join(name);
        fs::write(part("python3"), "").unwrap();
        Entry {
            candidate: part("python3"),
            stamps: Vec::new(),
            found: ProbeResult::Python(Python {
                executable: part("python3"),
                version: (3, 9, 0),
                base_prefix: prefix.clone(),
                exec_prefix: prefix.clone(),
                stdlib: part("lib"),
                search_path: vec![part("site")],
                library_dirs: vec![prefix.clone()],
                links: Vec::new(),
                has_pth: false,
                prefix,
            }),
        }
    }

    #[test]
    fn no_interpreter_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let file = state.join("interpreters.json");
        for number in 0..MAX_ENTRIES + MAX_PAST {
            remember(&file, entry(dir.path(), number)).unwrap();
        }
        let known = || pythons(&state).map(|python| python.prefix).collect::<Vec<_>>();
        assert_eq!(known().len(), MAX_ENTRIES + MAX_PAST);
        assert!(known().contains(&dir.path().join("0")));
        let refused = remember(&file, entry(dir.path(), 9999)).unwrap_err();
        assert!(refused.to_string().contains("interpreters.json"), "{refused}");
        assert!(known().contains(&dir.path().join("0")));
        // Those that are gone make room.
        fs::remove_dir_all(dir.path().join("0")).unwrap();
        remember(&file, entry(dir.path(), 10_000)).unwrap();
        assert!(!known().contains(&dir.path().join("0")));
    }
}
