//! The files of a log: names, opening, permissions, locks.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::{Error, failed};

/// Timeout for the lock. A writer holds it for microseconds; a stopped one is not waited for.
const MAX_WAIT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of reopens. Each writer may replace the current file once while we open it.
const MAX_TRIES: usize = 100;

const O_NOFOLLOW: i32 = 0o400_000;
const O_NONBLOCK: i32 = 0o4_000;

/// A file, to be read up to its length at opening.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) length: u64,
    /// Sequence number in its name; `None` for the current file.
    pub(super) first: Option<u64>,
}

/// A lock mode.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lock {
    /// Exclusive, to append.
    Alone,
    /// Shared, to read the length.
    Shared,
}

/// Returns the path of the current file.
pub(super) fn current(directory: &Path) -> PathBuf {
    directory.join("audit.jsonl")
}

/// Returns the directory of the host log that belongs to the log in `directory`.
pub fn host(directory: &Path) -> PathBuf {
    directory.join("host")
}

/// Returns the name for the file at `current` once it is closed, from the sequence number of its first
/// record.
pub(super) fn closed_name(current: &Path, first: u64) -> PathBuf {
    current.with_file_name(format!("audit-{first:012}.jsonl"))
}

/// Creates the directory if necessary, and checks that other users cannot enter it.
pub(super) fn make_directory(directory: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(failed("make", directory))?;
    let meta = fs::metadata(directory).map_err(failed("look at", directory))?;
    let refused = |why| {
        Err(Error::Directory {
            path: directory.to_owned(),
            why,
        })
    };
    // `/proc/self` belongs to our user.
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != meta.uid()) {
        return refused("it belongs to another user");
    }
    if meta.mode() & 0o077 != 0 {
        return refused("others may enter it");
    }
    Ok(())
}

/// Opens the current file for appending.
pub(super) fn open_to_append(path: &Path) -> Result<File, Error> {
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path);
    regular(file.map_err(failed("open", path))?, path)
}

fn open_to_read(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)
}

/// Rejects FIFOs and devices put in place of a log.
fn regular(file: File, path: &Path) -> Result<File, Error> {
    let meta = file.metadata().map_err(failed("look at", path))?;
    if meta.is_file() {
        return Ok(file);
    }
    let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    Err(failed("use", path)(source))
}

/// Returns device and inode, which distinguish a file from another one at the same path.
pub(super) fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Takes the lock, with a timeout.
pub(super) fn lock(file: &File, how: Lock, path: &Path) -> Result<(), Error> {
    lock_within(MAX_WAIT, file, how, path)
}

fn lock_within(wait: Duration, file: &File, how: Lock, path: &Path) -> Result<(), Error> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let locked = match how {
            Lock::Alone => file.try_lock(),
            Lock::Shared => file.try_lock_shared(),
        };
        match locked {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(failed("lock", path)(error)),
            Err(TryLockError::WouldBlock) if started.elapsed() > wait => {
                return Err(Error::Busy(path.to_owned()));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns the closed files with the sequence numbers in their names, oldest first.
pub(super) fn closed(directory: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("list", directory)(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed("list", directory))?.file_name();
        let first = name
            .to_str()
            .and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok());
        if let Some(first) = first {
            files.push((first, directory.join(name)));
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Opens all files, oldest first, so that they stay readable while the log rotates.
pub(super) fn pieces(directory: &Path) -> Result<Vec<Piece>, Error> {
    let path = current(directory);
    for _ in 0..MAX_TRIES {
        let file = match open_to_read(&path) {
            Ok(file) => regular(file, &path)?,
            // A writer may have died between two files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return closed_pieces(directory),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        lock(&file, Lock::Shared, &path)?;
        let meta = file.metadata().map_err(failed("look at", &path))?;
        if fs::symlink_metadata(&path).is_ok_and(|now| identity(&now) == identity(&meta)) {
            let mut pieces = closed_pieces(directory)?;
            file.unlock().map_err(failed("unlock", &path))?;
            pieces.push(Piece {
                path,
                file,
                length: meta.len(),
                first: None,
            });
            return Ok(pieces);
        }
    }
    Err(Error::Busy(path))
}

/// Opens the closed files, oldest first.
pub(super) fn closed_pieces(directory: &Path) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    for (first, path) in closed(directory)? {
        let file = match open_to_read(&path) {
            Ok(file) => regular(file, &path)?,
            // The oldest may be removed meanwhile; readers detect a gap among the others.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed("open", &path)(error)),
        };
        pieces.push(Piece {
            length: file.metadata().map_err(failed("look at", &path))?.len(),
            first: Some(first),
            file,
            path,
        });
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_somebody_holds_is_not_waited_for_for_ever() {
        let holder = tempfile::NamedTempFile::new().unwrap();
        let path = holder.path();
        holder.as_file().lock().unwrap();
        let other = File::open(path).unwrap();
        for how in [Lock::Alone, Lock::Shared] {
            let error = lock_within(FIRST_PAUSE, &other, how, path).unwrap_err();
            assert!(matches!(error, Error::Busy(_)), "{error}");
        }
        holder.as_file().unlock().unwrap();
        lock(&other, Lock::Alone, path).unwrap();
    }
}
