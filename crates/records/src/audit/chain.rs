//! Appending to one chain of records, from many threads and processes concurrently.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::digest::Link;
use super::entry::{Removal, Repair};
use super::error::{Error, failed};
use super::files::{self, Lock};
use super::line;
use super::{end, follow};

/// Retention limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// File size from which a file is closed.
    pub max_file_bytes: u64,
    /// Number of files, the current one included; clamped to 2 to 500.
    pub max_files: usize,
    /// Minimum age at which records of the host log may be removed. While the log is full of younger ones,
    /// new commands are refused.
    pub keep_host: Duration,
}

/// The handling of a record that would need the removal of records still to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crowded {
    /// Refuses the record, of something that has not happened yet.
    Refuse,
    /// Appends the record to the current file beyond its limit, since the recorded operation has happened.
    Append,
}

/// An open chain of records in a directory.
///
/// Appending is synchronous and short: a lock, a check, one write. A record survives the death of this
/// process at once, and a power failure once the kernel has written it back, at the latest when the file is
/// closed.
#[derive(Debug)]
pub(super) struct Chain(Mutex<Writer>);

#[derive(Debug)]
struct Writer {
    directory: PathBuf,
    limits: Limits,
    /// Minimum age at which closed files may be removed.
    keep: Duration,
    current: Option<Current>,
    /// Newest known record.
    newest: Link,
    /// Set if this process has written records to the current file that may not be on the disk.
    unsynced: bool,
    line: Vec<u8>,
}

/// The current file, as this process left it.
#[derive(Debug)]
struct Current {
    file: File,
    path: PathBuf,
    identity: (u64, u64),
    /// Length at our last access; `None` before the first.
    length: Option<u64>,
}

/// Maximum number of reopens: more means that somebody replaces the file in a loop.
const MAX_TRIES: usize = 100;

impl Chain {
    /// Opens the chain in `directory`, with `keep` as minimum age for removal, and repairs a last record that
    /// a crash truncated.
    pub(super) fn open(directory: &Path, limits: Limits, keep: Duration) -> Result<Self, Error> {
        files::make_directory(directory)?;
        let mut writer = Writer {
            directory: directory.to_owned(),
            limits,
            keep,
            current: None,
            newest: Link::START,
            unsynced: false,
            line: Vec::new(),
        };
        writer.locked(|_| Ok(()))?;
        Ok(Self(Mutex::new(writer)))
    }

    /// Leaves the records so far to the kernel's write-back.
    pub(super) fn leave_unsynced(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).unsynced = false;
    }

    /// Appends a record; it is in the file on return.
    pub(super) fn append<C: Serialize>(&self, content: &C, crowded: Crowded) -> Result<Link, Error> {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writer.locked(|writer| {
            match writer.rotate_if_full() {
                Err(Error::Crowded { .. }) if crowded == Crowded::Append => {}
                rotated => rotated?,
            }
            writer.write(content)
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(current) = self.current.as_ref().filter(|_| self.unsynced) {
            // The records are in the file; a disk failure cannot be handled here.
            _ = current.file.sync_data();
        }
    }
}

impl Writer {
    /// Runs `act` under the file lock, with the newest record known.
    fn locked<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let result = self.lock().and_then(|()| act(self));
        match &self.current {
            Some(current) if result.is_ok() => {
                current.file.unlock().map_err(failed("unlock", &current.path))?;
            }
            // Closing the file unlocks it; the next call reopens and rereads.
            _ => self.current = None,
        }
        result
    }

    fn lock(&mut self) -> Result<(), Error> {
        for _ in 0..MAX_TRIES {
            let current = match self.current.take() {
                Some(current) => current,
                None => Current::open(&self.directory)?,
            };
            files::lock(&current.file, Lock::Alone, &current.path)?;
            // Another process may have closed this file and begun the next one, or somebody removed it.
            let length = match fs::symlink_metadata(&current.path) {
                Ok(meta) if files::identity(&meta) == current.identity => meta.len(),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("look at", &current.path)(error)),
            };
            let as_we_left_it = current.length == Some(length);
            let current = self.current.insert(current);
            current.length = Some(length);
            return if as_we_left_it { Ok(()) } else { self.look() };
        }
        Err(Error::Busy(files::current(&self.directory)))
    }

    /// Reads the newest record, and truncates a torn line that a crash left behind it.
    fn look(&mut self) -> Result<(), Error> {
        let (current, length) = self.current()?;
        let found = end::of(&current.file, length, &current.path)?;
        let newest = match found.newest {
            Some(newest) => newest,
            None => newest_closed(&self.directory)?,
        };
        // If records that we know of are gone, they were removed: continuing from ours leaves a detectable
        // gap.
        if newest.sequence > self.newest.sequence {
            self.newest = newest;
        }
        if found.torn.is_empty() {
            return Ok(());
        }
        let sound = length - found.torn.len() as u64;
        self.cut(sound)?;
        self.write(&Repair::of(&found.torn)).map(drop)
    }

    fn current(&mut self) -> Result<(&mut Current, u64), Error> {
        let busy = || Error::Busy(files::current(&self.directory));
        let current = self.current.as_mut().ok_or_else(busy)?;
        let length = current.length.unwrap_or_default();
        Ok((current, length))
    }

    fn cut(&mut self, length: u64) -> Result<(), Error> {
        let (current, _) = self.current()?;
        current
            .file
            .set_len(length)
            .map_err(failed("cut", &current.path))?;
        current.length = Some(length);
        Ok(())
    }

    /// Appends one record with one system call, so that no reader and no crash sees half of it.
    fn write<C: Serialize>(&mut self, content: &C) -> Result<Link, Error> {
        let mut line = std::mem::take(&mut self.line);
        let sealed = line::seal(&mut line, &self.newest, content);
        let written = sealed.and_then(|link| self.append(&line).map(|()| link));
        self.line = line;
        self.newest = written?;
        self.unsynced = true;
        Ok(self.newest)
    }

    fn append(&mut self, line: &[u8]) -> Result<(), Error> {
        let (current, length) = self.current()?;
        let written = loop {
            match current.file.write(line) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                written => break written.map_err(failed("append to", &current.path))?,
            }
        };
        if written == line.len() {
            current.length = Some(length + line.len() as u64);
            return Ok(());
        }
        // If this fails, too, the next writer repairs the file.
        _ = current.file.set_len(length);
        Err(failed("append a whole record to", &current.path)(
            io::ErrorKind::StorageFull.into(),
        ))
    }

    /// Closes a full file and begins the next one, repeatedly: another process may fill the new one at once.
    fn rotate_if_full(&mut self) -> Result<(), Error> {
        for _ in 0..MAX_TRIES {
            let max = self.limits.max_file_bytes;
            let (_, length) = self.current()?;
            if length == 0 || length < max {
                return Ok(());
            }
            self.check_age()?;
            let (current, _) = self.current()?;
            current.close()?;
            self.current = None;
            self.unsynced = false;
            self.lock()?;
            self.remove_oldest()?;
        }
        Err(Error::Busy(files::current(&self.directory)))
    }

    /// Returns the maximum number of closed files.
    fn max_closed(&self) -> usize {
        self.limits.max_files.clamp(2, 500) - 1
    }

    /// Returns an error if closing the current file would remove a file that is too young.
    fn check_age(&self) -> Result<(), Error> {
        let closed = files::closed(&self.directory)?;
        let surplus = (closed.len() + 1).saturating_sub(self.max_closed());
        for (_, path) in &closed[..surplus.min(closed.len())] {
            let changed = fs::metadata(path).and_then(|meta| meta.modified());
            let age = changed
                .map_err(failed("look at", path))?
                .elapsed()
                .unwrap_or_default();
            if age < self.keep {
                return Err(Error::Crowded {
                    path: self.directory.clone(),
                    keep: self.keep,
                });
            }
        }
        Ok(())
    }

    /// Removes the oldest surplus files. A record announces the removal first: without one, they count as
    /// missing.
    fn remove_oldest(&mut self) -> Result<(), Error> {
        let closed = files::closed(&self.directory)?;
        let (surplus, kept) = closed.split_at(closed.len().saturating_sub(self.max_closed()));
        if surplus.is_empty() {
            return Ok(());
        }
        let next = kept.first().map_or(self.newest.sequence + 1, |(first, _)| *first);
        let lengths = surplus.iter().filter_map(|(_, path)| fs::metadata(path).ok());
        self.write(&Removal::of(next - 1, lengths.map(|meta| meta.len()).sum()))?;
        for (_, path) in surplus {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", path)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Current {
    fn open(directory: &Path) -> Result<Self, Error> {
        let path = files::current(directory);
        let file = match files::open_to_append(&path) {
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                // The directory was removed while we ran.
                files::make_directory(directory)?;
                files::open_to_append(&path)?
            }
            opened => opened?,
        };
        let meta = file.metadata().map_err(failed("look at", &path))?;
        Ok(Self {
            identity: files::identity(&meta),
            length: None,
            file,
            path,
        })
    }

    /// Syncs the file and renames it to its final name.
    fn close(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(failed("write out", &self.path))?;
        let first = follow::first_sequence(&self.file, &self.path)?;
        let closed = files::closed_name(&self.path, first);
        // The lock excludes other writers, so an existing file of this name is not ours to replace.
        if closed.symlink_metadata().is_ok() {
            return Err(failed("rename the full log to", &closed)(
                io::ErrorKind::AlreadyExists.into(),
            ));
        }
        fs::rename(&self.path, &closed).map_err(failed("rename the full log to", &closed))
    }
}

/// Returns the newest record of the closed files, whose last line must be whole.
fn newest_closed(directory: &Path) -> Result<Link, Error> {
    let Some(piece) = files::closed_pieces(directory)?.pop() else {
        return Ok(Link::START);
    };
    match end::of(&piece.file, piece.length, &piece.path)? {
        end::End {
            newest: Some(newest),
            torn,
        } if torn.is_empty() => Ok(newest),
        _ => Err(Error::Damaged(piece.path)),
    }
}
