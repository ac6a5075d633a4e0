//! A cache of probed interpreters, valid until one of their files changes.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::probe::{self, Ask};
use super::{Error, Python, Version};
use crate::trust::Accepted;

/// Format version; a file of another version is ignored.
const FORMAT: u32 = 3;

/// Maximum number of entries: few interpreters are in use, and each costs the others reading time.
const MAX_ENTRIES: usize = 8;

const MAX_BYTES: u64 = 256 * 1024;

#[derive(Serialize, Deserialize)]
struct Cache {
    format: u32,
    entries: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    candidate: PathBuf,
    stamps: Vec<Stamp>,
    found: Found,
}

/// The result of probing. Outdated versions are cached too, so that they are not probed every time.
#[derive(Clone, Serialize, Deserialize)]
enum Found {
    Python(Python),
    TooOld(Version),
}

/// A file's metadata, of the path itself and of a link's target.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    path: PathBuf,
    link: Option<Look>,
    target: Option<Look>,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Look {
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
    let mut entries = file.as_deref().map(read).unwrap_or_default();
    let known = entries.iter().find(|entry| entry.candidate == candidate);
    if let Some(entry) = known.filter(|entry| entry.stamps.iter().all(Stamp::holds)) {
        return entry.found.clone().into_result(candidate);
    }
    let accepted = cache_dir.map(Accepted::at).unwrap_or_default();
    let found = match probe::python(candidate, path_var, &accepted, ask) {
        Ok(python) => Found::Python(python),
        Err(Error::TooOld { version, .. }) => Found::TooOld(version),
        Err(error) => return Err(error),
    };
    if let Some(file) = file {
        entries.retain(|entry| entry.candidate != candidate);
        entries.truncate(MAX_ENTRIES - 1);
        let stamps = stamps(candidate, &found);
        entries.insert(
            0,
            Entry {
                candidate: candidate.to_owned(),
                stamps,
                found: found.clone(),
            },
        );
        // Failing to write the cache costs only time.
        _ = write(
            &file,
            &Cache {
                format: FORMAT,
                entries,
            },
        );
    }
    found.into_result(candidate)
}

/// Returns every cached Python.
pub(super) fn pythons(cache_dir: &Path) -> impl Iterator<Item = Python> {
    let entries = read(&cache_dir.join("interpreters.json")).into_iter();
    entries.filter_map(|entry| match entry.found {
        Found::Python(python) => Some(python),
        Found::TooOld(_) => None,
    })
}

impl Found {
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
            link: link.as_ref().map(Look::of),
            target: target.as_ref().map(Look::of),
            path,
        }
    }

    fn holds(&self) -> bool {
        Self::of(self.path.clone()) == *self
    }
}

impl Look {
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

/// Records the files that determine what an interpreter is: itself, the version that a shim selects, the
/// `pyvenv.cfg` of a virtual environment, and the directories with packages and `.pth` files.
fn stamps(candidate: &Path, found: &Found) -> Vec<Stamp> {
    let mut paths = vec![candidate.to_owned()];
    if let Some(shims) = candidate.parent().filter(|dir| dir.ends_with("shims")) {
        paths.push(shims.with_file_name("version"));
    }
    if let Found::Python(python) = found {
        paths.push(python.executable.clone());
        paths.push(python.prefix.join("pyvenv.cfg"));
        paths.extend(python.search_path.iter().cloned());
    }
    paths.dedup();
    paths.into_iter().map(Stamp::of).collect()
}

/// Returns the entries of the cache; none if it is missing, damaged or of another format.
fn read(file: &Path) -> Vec<Entry> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let cache = serde_json::from_slice::<Cache>(&bytes).ok();
    cache
        .filter(|cache| cache.format == FORMAT)
        .map(|cache| cache.entries)
        .unwrap_or_default()
}

fn write(file: &Path, cache: &Cache) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut out| out.write_all(&serde_json::to_vec(cache)?))
        .and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        _ = fs::remove_file(&temporary);
    }
    written
}
