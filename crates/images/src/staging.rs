//! Directories of images under construction. The next process removes those of dead processes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

const LOCK: &str = "lock";

/// A directory of one process, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Staging {
    path: PathBuf,
    /// Held while the process lives.
    _lock: File,
}

impl Staging {
    /// Creates a directory below `parent`. The caller holds the lock of the store.
    pub(crate) fn new(parent: &Path) -> io::Result<Self> {
        make_private(parent)?;
        let path = parent.join(random_name()?);
        make_private(&path)?;
        let lock = lock_file(&path)?;
        lock.lock()?;
        make_private(&path.join("image"))?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns the directory that becomes the image.
    pub(crate) fn image(&self) -> PathBuf {
        self.path.join("image")
    }

    /// Returns the path for a file of this name.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a file that only we can open.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(self.file(name))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What stays is removed by the sweep of the next operation.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of processes that are gone. The caller holds the lock of the store.
pub(crate) fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let lock = OpenOptions::new().write(true).open(path.join(LOCK));
        let is_left = match lock {
            Ok(lock) => lock.try_lock().is_ok(),
            // Its process ended before it could lock it.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_left {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Opens the lock file of a directory, which is made if it is missing.
pub(crate) fn lock_file(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options.open(directory.join(LOCK))
}

/// Creates a private directory, if it is missing.
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 12];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
