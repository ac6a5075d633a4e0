//! What was made for one version of ours, or for some wheels, and is removed once nobody uses it any more.
//!
//! Names tell what belongs together: `KEY-snapshot` and its like are the set `KEY`, `KEY-packages-MARK` is a set of its own.
//! Whoever uses a set holds the lock `SET.lock` together with all others who do; whoever removes one holds it alone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a set is kept that nobody uses: another version may want it again.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many digits a key has, and a mark.
pub(super) const DIGITS: usize = 12;

/// What begins the mark of wheels.
pub(super) const PACKAGES: &str = "packages-";

/// A set in use. It stays as long as this is there.
#[derive(Debug)]
pub(super) struct Held {
    /// Closed, it is unlocked. `None` where none can be had, as in somebody else's directory.
    _lock: Option<File>,
}

impl Held {
    /// Takes a set into use, before it is looked for.
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
    // It tells when the set was used last. Another user's says so itself.
    let _ = file.set_modified(SystemTime::now());
    Ok(file)
}

/// A lock, made where there is none. One that another user has made can be read at least.
fn opened(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    options.open(path).or_else(|_| File::open(path))
}

/// Removes the sets that nobody uses, and has used for a while. What cannot be removed is removed another time.
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
    // A lock that was not there is new: what earlier versions of ours made, which knew of none, has its time as well.
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
    // The lock stays: somebody may wait for it.
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

/// The set that a file belongs to, if it is one of ours.
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

/// A key or a mark, and what follows.
fn digits(text: &str) -> Option<(&str, &str)> {
    let (digits, rest) = text.split_at_checked(DIGITS)?;
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.bytes().all(hex).then_some((digits, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "0123456789ab";
    const WHEELS: &str = "0123456789ab-packages-ba9876543210";

    struct Place(tempfile::TempDir);

    impl Place {
        /// Two sets that nobody uses, and what is none of ours.
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

        /// When a set was used last.
        fn used(&self, set: &str, ago: Duration) {
            let lock = opened(&lock_of(self.0.path(), set)).unwrap();
            lock.set_modified(SystemTime::now() - ago).unwrap();
        }

        /// What is there of a set once it has been tidied up, its lock not counted.
        fn left(&self, of: &str) -> usize {
            tidy(self.0.path());
            let names = names(self.0.path());
            let own = names.iter().filter(|name| set(name).as_deref() == Some(of));
            own.filter(|name| !name.ends_with(".lock")).count()
        }
    }

    #[test]
    fn what_nobody_has_used_for_a_while_is_removed() {
        let place = Place::new();
        // They have had no lock until here.
        assert_eq!((place.left(OLD), place.left(WHEELS)), (3, 1));
        place.used(OLD, UNUSED * 2);
        assert_eq!((place.left(OLD), place.left(WHEELS)), (0, 1));
        place.used(WHEELS, UNUSED * 2);
        assert_eq!(place.left(WHEELS), 0);
        // What is none of ours, and two empty locks.
        assert_eq!(names(place.0.path()).len(), 5);
    }

    #[test]
    fn what_is_in_use_stays_however_old() {
        let place = Place::new();
        let first = Held::of(place.0.path(), OLD);
        let second = Held::of(place.0.path(), OLD);
        place.used(OLD, UNUSED * 2);
        assert_eq!(place.left(OLD), 3);
        drop(first);
        assert_eq!(place.left(OLD), 3);
        drop(second);
        assert_eq!(place.left(OLD), 0);
        // Who comes next makes it anew, and holds it.
        let third = Held::of(place.0.path(), OLD);
        fs::write(place.0.path().join("0123456789ab-snapshot"), "").unwrap();
        place.used(OLD, UNUSED * 2);
        assert_eq!(place.left(OLD), 1);
        drop(third);
    }
}
