//! The files of a log: their names, how they are opened, who may come at them.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::{Error, failed};

/// A writer holds the log for microseconds; one that was stopped meanwhile is not waited for.
const MAX_WAIT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// The current file may be replaced while we open it, once by each writer.
const MAX_TRIES: usize = 100;

const O_NOFOLLOW: i32 = 0o400_000;
const O_NONBLOCK: i32 = 0o4_000;

/// A file that was read up to where it ended when we looked.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) length: u64,
    /// The sequence number in its name; the current file has none.
    pub(super) first: Option<u64>,
}

/// How a file is locked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lock {
    /// To append.
    Alone,
    /// To look where it ends.
    Shared,
}

/// The file that is appended to.
pub(super) fn current(directory: &Path) -> PathBuf {
    directory.join("audit.jsonl")
}

/// The directory of the host log of the log in `directory`.
pub fn host(directory: &Path) -> PathBuf {
    directory.join("host")
}

/// What the file at `current` is called once it is closed, if its first record has this sequence number.
pub(super) fn closed_name(current: &Path, first: u64) -> PathBuf {
    current.with_file_name(format!("audit-{first:012}.jsonl"))
}

/// Makes the directory if it is not there, and checks that it is closed to others.
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
    // `/proc/self` belongs to the user that we are.
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != meta.uid()) {
        return refused("it belongs to another user");
    }
    if meta.mode() & 0o077 != 0 {
        return refused("others may enter it");
    }
    Ok(())
}

/// Opens the current file to append to it.
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

/// A pipe or a device put there must not be taken for a log.
fn regular(file: File, path: &Path) -> Result<File, Error> {
    let meta = file.metadata().map_err(failed("look at", path))?;
    if meta.is_file() {
        return Ok(file);
    }
    let source = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
    Err(failed("use", path)(source))
}

/// What tells a file from another one at the same path.
pub(super) fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Waits, not for ever, for the lock.
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

/// The closed files with the sequence numbers in their names, oldest first.
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

/// All files, oldest first, held open so that they can be read however the log moves on.
pub(super) fn pieces(directory: &Path) -> Result<Vec<Piece>, Error> {
    let path = current(directory);
    for _ in 0..MAX_TRIES {
        let file = match open_to_read(&path) {
            Ok(file) => regular(file, &path)?,
            // A log may have lost its writer between two files.
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

/// The closed files, oldest first.
pub(super) fn closed_pieces(directory: &Path) -> Result<Vec<Piece>, Error> {
    let mut pieces = Vec::new();
    for (first, path) in closed(directory)? {
        let file = match open_to_read(&path) {
            Ok(file) => regular(file, &path)?,
            // The oldest may be removed meanwhile; a gap among the others is found by whoever reads them.
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
