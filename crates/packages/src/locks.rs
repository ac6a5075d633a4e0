//! File locks of the store. The kernel releases them with their process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

/// The lock of an environment, held by each of its users. The file's modification time is the time of the
/// last use.
#[derive(Debug)]
pub(crate) struct UseLock {
    _file: File,
}

impl UseLock {
    /// Locks an environment for use; `None` if it is gone or being removed.
    pub(crate) fn shared(path: &Path) -> io::Result<Option<Self>> {
        let Some(file) = opened(path)? else {
            return Ok(None);
        };
        match file.try_lock_shared() {
            Ok(()) if !is_at(&file, path) => Ok(None),
            Ok(()) => {
                // Only the order of removal depends on it.
                let _ = file.set_modified(SystemTime::now());
                Ok(Some(Self { _file: file }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Locks an environment for removal; `None` if it is gone or in use.
    pub(crate) fn exclusive(path: &Path) -> io::Result<Option<Self>> {
        let Some(file) = opened(path)? else {
            return Ok(None);
        };
        match file.try_lock() {
            Ok(()) => Ok(is_at(&file, path).then_some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The lock of the one installation that runs at a time.
#[derive(Debug)]
pub(crate) struct InstallLock {
    _file: File,
}

impl InstallLock {
    /// Waits for the lock.
    pub(crate) fn wait(path: &Path) -> io::Result<Self> {
        let file = created(path)?;
        file.lock()?;
        Ok(Self { _file: file })
    }
}

/// Creates a lock file.
pub(crate) fn created(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}

fn opened(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `true` if an open file is still the one at its path: an earlier holder of the lock may have
/// removed it.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    let open = file.metadata().map(identity);
    let there = path.symlink_metadata().map(identity);
    matches!((open, there), (Ok(open), Ok(there)) if open == there)
}
