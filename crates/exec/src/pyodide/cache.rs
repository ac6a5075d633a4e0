//! A cache of files created for one version of Ringfence, or for some wheels, and removed when unused.
//!
//! File names show the set: `KEY-snapshot` and similar names belong to the set `KEY`; `KEY-packages-MARK` is
//! its own set. Users of a set hold the lock `SET.lock` shared; removing a set takes it exclusively.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::error::RunError;

/// Age at which an unused set is removed: another version may want it again before.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Number of digits of a key and of a wheels' fingerprint.
pub(super) const DIGITS: usize = 12;

/// Prefix of a wheels' fingerprint in file names.
pub(super) const PACKAGES: &str = "packages-";

/// A set in use, which is not removed as long as this value lives.
#[derive(Debug)]
pub(super) struct CacheEntry {
    /// Unlocked when closed. `None` if locking is impossible, as in another user's directory.
    _lock: Option<File>,
}

impl CacheEntry {
    /// Takes a set into use, before looking for its files.
    pub(super) fn of(directory: &Path, set: &str) -> Self {
        let path = lock_of(directory, set);
        Self {
            _lock: held(&path).ok(),
        }
    }
}

fn held(path: &Path) -> io::Result<File> {
    let file = opened(path)?;
    file.lock_shared()?;
    // The modification time records the last use. For another user's lock, setting it fails.
    let _ = file.set_modified(SystemTime::now());
    Ok(file)
}

/// Opens a lock, creating it if necessary. Another user's can at least be read.
fn opened(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path).or_else(|_| File::open(path))
}

/// Removes sets that have been unused for a while. Failures are ignored: the next call tries again.
pub(super) fn tidy(directory: &Path) {
    let mut sets: Vec<String> = names(directory).iter().filter_map(|name| set(name)).collect();
    sets.sort();
    sets.dedup();
    for set in sets {
        let _ = remove(directory, &set);
    }
}

fn remove(directory: &Path, of: &str) -> io::Result<()> {
    let path = lock_of(directory, of);
    let lock = opened(&path)?;
    lock.try_lock()?;
    // A missing lock is created anew, so files of older versions, which had no locks, get their time as well.
    let since = lock.metadata()?.modified()?;
    let is_unused = since.elapsed().is_ok_and(|unused| unused > UNUSED);
    if !is_unused {
        return Ok(());
    }
    let names = names(directory);
    for name in names.iter().filter(|name| set(name).as_deref() == Some(of)) {
        let file = directory.join(name);
        if file != path {
            fs::remove_file(file)?;
        }
    }
    // The lock file stays: another process may be waiting for it.
    Ok(())
}

fn lock_of(directory: &Path, set: &str) -> PathBuf {
    directory.join(format!("{set}.lock"))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Returns the set that a file name belongs to, if the cache has such names.
fn set(name: &str) -> Option<String> {
    let (key, rest) = digits(name)?;
    let Some(wheels) = rest
        .strip_prefix('-')
        .and_then(|rest| rest.strip_prefix(PACKAGES))
    else {
        return rest.starts_with(['-', '.']).then(|| key.to_owned());
    };
    digits(wheels).map(|(mark, _)| format!("{key}-{PACKAGES}{mark}"))
}

/// Splits a leading key or fingerprint from the rest.
fn digits(text: &str) -> Option<(&str, &str)> {
    let (digits, rest) = text.split_at_checked(DIGITS)?;
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.bytes().all(hex).then_some((digits, rest))
}

/// Writes a file atomically, or keeps the existing one: the name identifies the content.
pub(super) fn put(path: &Path, content: &[u8]) -> Result<(), RunError> {
    if path.exists() {
        return Ok(());
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&temporary, content)
        .and_then(|()| fs::rename(&temporary, path))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))
        .map_err(|source| not_written(path, source))
}

pub(super) fn not_written(path: &Path, source: io::Error) -> RunError {
    RunError::NotWritten {
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "0123456789ab";
    const WHEELS: &str = "0123456789ab-packages-ba9876543210";

    struct Scratch(tempfile::TempDir);

    impl Scratch {
        /// Creates two unused sets, and files that do not belong to the cache.
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            for name in [
                "0123456789ab-snapshot",
                "0123456789ab-worker.js",
                "0123456789ab-worker.77.tmp",
                WHEELS,
                "pyodide-314.0.7",
                "0123456789abcdef",
                "0123456789AB-snapshot",
            ] {
                fs::write(place.0.path().join(name), "").unwrap();
            }
            place
        }

        /// Sets the time of a set's last use.
        fn used(&self, set: &str, ago: Duration) {
            let lock = opened(&lock_of(self.0.path(), set)).unwrap();
            lock.set_modified(SystemTime::now() - ago).unwrap();
        }

        /// Returns the number of a set's files after a cleanup, without its lock.
        fn left(&self, of: &str) -> usize {
            tidy(self.0.path());
            let names = names(self.0.path());
            let own = names.iter().filter(|name| set(name).as_deref() == Some(of));
            own.filter(|name| !name.ends_with(".lock")).count()
        }
    }

    #[test]
    fn what_nobody_has_used_for_a_while_is_removed() {
        let place = Scratch::new();
        // They have had no locks before.
        assert_eq!((place.left(OLD), place.left(WHEELS)), (3, 1));
        place.used(OLD, UNUSED * 2);
        assert_eq!((place.left(OLD), place.left(WHEELS)), (0, 1));
        place.used(WHEELS, UNUSED * 2);
        assert_eq!(place.left(WHEELS), 0);
        // The files that are not ours, and two empty locks.
        assert_eq!(names(place.0.path()).len(), 5);
    }

    #[test]
    fn what_is_in_use_stays_however_old() {
        let place = Scratch::new();
        let first = CacheEntry::of(place.0.path(), OLD);
        let second = CacheEntry::of(place.0.path(), OLD);
        place.used(OLD, UNUSED * 2);
        assert_eq!(place.left(OLD), 3);
        drop(first);
        assert_eq!(place.left(OLD), 3);
        drop(second);
        assert_eq!(place.left(OLD), 0);
        // The next user creates and holds it again.
        let third = CacheEntry::of(place.0.path(), OLD);
        fs::write(place.0.path().join("0123456789ab-snapshot"), "").unwrap();
        place.used(OLD, UNUSED * 2);
        assert_eq!(place.left(OLD), 1);
        drop(third);
    }
}
