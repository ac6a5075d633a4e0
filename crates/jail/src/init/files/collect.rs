//! Collects a directory into records.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{Attributes, FilePath, MAX_DEPTH, MAX_ENTRIES, Reason, Record, copy_content, identity};

/// Writes the contents of the directory `root`: files listed in `input` as [`Record::Known`] and unchanged by
/// reference, all others in full. The files have at most `limit` bytes in total.
///
/// Symbolic links are reported and not followed.
///
/// # Errors
/// If the input is invalid, or the output cannot be written.
pub fn collect(root: &Path, limit: u64, mut input: impl Read, out: impl Write) -> io::Result<()> {
    let mut known = BTreeMap::new();
    loop {
        match Record::read(&mut input)? {
            Record::Known { path, identity } => known.insert(path, identity),
            Record::End { .. } => break,
            other => return Err(io::Error::other(format!("{other:?} is not to be known"))),
        };
    }
    let mut collector = Collector {
        root,
        known,
        bytes: limit,
        entries: MAX_ENTRIES,
        out,
    };
    let complete = collector.directory(Path::new(""))?;
    Record::End { complete }.write(&mut collector.out)?;
    collector.out.flush()
}

struct Collector<'a, W> {
    root: &'a Path,
    known: BTreeMap<FilePath, u64>,
    /// Remaining budget in bytes.
    bytes: u64,
    /// Remaining budget of entries.
    entries: usize,
    out: W,
}

impl<W: Write> Collector<'_, W> {
    /// Collects a directory tree; returns `true` if every entry was reported.
    fn directory(&mut self, below: &Path) -> io::Result<bool> {
        let listed = retried(&self.root.join(below), 0o500, |path| fs::read_dir(path));
        let Ok(listed) = listed else {
            return self.left(below.to_path_buf(), Reason::Denied).map(|()| false);
        };
        let mut found: Vec<DirEntry> = listed.flatten().take(self.entries + 1).collect();
        found.sort_by_key(DirEntry::file_name);
        let mut complete = true;
        for entry in found {
            let Some(left) = self.entries.checked_sub(1) else {
                return Ok(false);
            };
            self.entries = left;
            complete &= self.entry(below.join(entry.file_name()), &entry)?;
        }
        Ok(complete)
    }

    fn entry(&mut self, below: PathBuf, entry: &DirEntry) -> io::Result<bool> {
        let Ok(found) = entry.metadata() else {
            // It was removed meanwhile.
            return Ok(true);
        };
        let Some(path) = FilePath::new(&below) else {
            return self.left(below, Reason::Path).map(|()| true);
        };
        if found.is_dir() {
            Record::Directory(path).write(&mut self.out)?;
            if below.components().count() == MAX_DEPTH {
                return self.left(below, Reason::Path).map(|()| true);
            }
            return self.directory(&below);
        }
        if found.is_file() {
            self.file(path, &found)?;
        } else {
            self.left(below, Reason::Kind)?;
        }
        Ok(true)
    }

    fn file(&mut self, path: FilePath, found: &Metadata) -> io::Result<()> {
        let left = |path: &FilePath| path.as_path().to_path_buf();
        if self.bytes.checked_sub(found.len()).is_none() {
            return self.left(left(&path), Reason::Room);
        }
        if self.known.get(&path) == Some(&identity(found)) {
            self.bytes -= found.len();
            return Record::Same(path).write(&mut self.out);
        }
        let opened = retried(&self.root.join(path.as_path()), 0o400, open);
        let Ok((file, found)) = opened.and_then(|file| file.metadata().map(|found| (file, found))) else {
            return self.left(left(&path), Reason::Denied);
        };
        let Some(rest) = self.bytes.checked_sub(found.len()).filter(|_| found.is_file()) else {
            return self.left(left(&path), Reason::Changed);
        };
        self.bytes = rest;
        let record = Record::File {
            path: path.clone(),
            identity: identity(&found),
            size: found.len(),
            attributes: Attributes::of(&found),
        };
        record.write(&mut self.out)?;
        match copy_content(found.len(), Lasting(file), &mut self.out)? {
            true => Ok(()),
            false => self.left(left(&path), Reason::Changed),
        }
    }

    fn left(&mut self, path: PathBuf, why: Reason) -> io::Result<()> {
        Record::Left { path, why }.write(&mut self.out)
    }
}

/// A file whose read errors count as its end: the rest is padded.
struct Lasting(File);

impl Read for Lasting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(buffer).unwrap_or_default())
    }
}

/// Opens a file without blocking on a FIFO that somebody put in its place.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Retries with the permissions in `mode`, which the owner may have removed from itself.
fn retried<T>(path: &Path, mode: u32, open: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    match open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let present = fs::symlink_metadata(path)?;
            if present.is_symlink() {
                return Err(error);
            }
            fs::set_permissions(path, Permissions::from_mode(present.mode() & 0o777 | mode))?;
            open(path)
        }
        opened => opened,
    }
}
