//! A guest's places on the host, where it has no cell: made, measured and removed.
//!
//! A guest can make directories that no path reaches, and shut them; so everything below is reached from an open
//! handle, one component at a time and without following a link.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::destination::{O_DIRECTORY, O_NOFOLLOW, O_PATH, below, handle};
use super::layout::effective_uid;
use super::workspace::owner_for_guests;
use crate::owner::{owner_is_dead, owner_name};

/// The most entries that a guest may have: what measures them must come to an end.
const MAX_ENTRIES: u64 = 100_000;
/// An entry without content takes room too.
const ENTRY_BYTES: u64 = 512;
/// How many directories are held open on the way down, when measuring and when removing.
const MAX_OPEN: usize = 64;

/// A host directory that is removed, with all it holds, when this is dropped.
#[derive(Debug)]
pub(crate) struct Workdir(PathBuf);

impl Workdir {
    /// Makes a new directory below `parent`, with the places of a guest in it, which belong to `owner` if not to us.
    pub(crate) fn create(parent: &Path, owner: Option<u32>) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let open = if owner.is_some() { 0o711 } else { 0o700 };
        let path = parent.join(format!(
            "{}-{}",
            owner_name(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        // Not recursive: a directory that is there already is somebody else's.
        fs::DirBuilder::new().mode(open).create(&path)?;
        let directory = Self(path);
        for place in ["workspace", "tmp", "output", "code"] {
            let place = directory.0.join(place);
            fs::DirBuilder::new().mode(0o700).create(&place)?;
            if owner.is_some() {
                chown(&place, owner, owner)?;
            }
        }
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes what engines left below `parent` that were killed.
    pub(crate) fn sweep(parent: &Path) {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix("ringfence-")?.rsplit_once('-'));
            // The name first: there may be much in this directory that is nobody's business here.
            let Some((owner, _)) = owner else { continue };
            let ours = entry
                .metadata()
                .is_ok_and(|entry| entry.is_dir() && Some(entry.uid()) == effective_uid());
            if ours && owner_is_dead(owner) {
                drop(Self(entry.path()));
            }
        }
    }

    /// Writes the program's text where the guest reads it.
    pub(crate) fn write_code(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join("code").join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        Ok(path)
    }
}

/// A host directory of one run's own, removed when this is dropped; what a killed process leaves is removed by
/// the next one that uses the same parent.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    _whole: Workdir,
}

impl PrivateDirectory {
    /// Makes one below `parent`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(parent: &Path) -> io::Result<Self> {
        Self::owned_by(parent, owner_for_guests())
    }

    /// Makes one that no guest may enter.
    pub(crate) fn closed(parent: &Path) -> io::Result<Self> {
        Self::owned_by(parent, None)
    }

    fn owned_by(parent: &Path, owner: Option<u32>) -> io::Result<Self> {
        let whole = Workdir::create(parent, owner)?;
        Ok(Self {
            path: whole.path().join("workspace"),
            _whole: whole,
        })
    }

    /// Lets every guest read what lies there.
    pub(crate) fn open_to_guests(&self) -> io::Result<()> {
        fs::set_permissions(&self.path, Permissions::from_mode(0o755))
    }

    /// Removes those below `parent` whose process was killed.
    pub fn sweep(parent: &Path) {
        Workdir::sweep(parent);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes a directory of ours with whatever guests have made of it; what cannot be removed stays.
pub(crate) fn remove_tree(path: PathBuf) {
    drop(Workdir(path));
}

impl Drop for Workdir {
    fn drop(&mut self) {
        let emptied = open(&self.0, 0o700).map(empty);
        if emptied.is_ok() && fs::remove_dir(&self.0).is_err() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// How often a directory on the host is measured, at most, while a run goes on.
const MEASURE_EVERY: Duration = Duration::from_millis(50);

/// The pause after a measuring that took so long, for a run. The more there is to measure, the more is written meanwhile.
pub(crate) fn soon(took: Duration) -> Duration {
    MEASURE_EVERY.max(took / 4)
}

/// What a directory holds, or may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    bytes: u64,
    entries: u64,
}

impl Usage {
    /// The most that a run may write to a directory in which nothing lies.
    pub(crate) const fn at_most(bytes: u64) -> Self {
        Self {
            bytes,
            entries: MAX_ENTRIES,
        }
    }

    /// The same for a directory that holds something already: what lies there may stay there, however much it is, but a run
    /// must not add to what is too much.
    pub(crate) async fn growing(path: &Path, bytes: u64) -> Self {
        let before = measured(path.to_path_buf(), Self::COUNTABLE).await;
        let most = Self::at_most(bytes);
        // What cannot be counted is too much, and grows no more.
        before.map_or(most, |before| Self {
            bytes: most.bytes.max(before.bytes),
            entries: most.entries.max(before.entries),
        })
    }

    /// More than a run ever writes before it is ended.
    const COUNTABLE: Self = Self {
        bytes: u64::MAX,
        entries: 10 * MAX_ENTRIES,
    };
}

/// Ends when the directory at `path` holds more than `most`.
///
/// `pause` says how long to wait after a measuring that took so long.
pub(crate) async fn overfull(path: PathBuf, most: Usage, pause: impl Fn(Duration) -> Duration) {
    loop {
        let since = Instant::now();
        if measured(path.clone(), most).await.is_none() {
            return;
        }
        tokio::time::sleep(pause(since.elapsed())).await;
    }
}

/// What a directory holds; `None` if that is more than `most`, or it cannot be measured: then no guest is let go on.
async fn measured(path: PathBuf, most: Usage) -> Option<Usage> {
    // One at a time, for each holds directories open; and whoever waits holds no thread, which others need.
    static TURN: Semaphore = Semaphore::const_new(1);
    let turn = TURN.acquire().await;
    let measuring = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        usage(&path, most)
    });
    measuring.await.unwrap_or(None)
}

/// What the directory at `path` holds; `None` if that is more than `most`.
///
/// This takes a while: it is not for an async thread.
fn usage(path: &Path, most: Usage) -> Option<Usage> {
    let mut count = Count {
        found: Usage { bytes: 0, entries: 0 },
        most,
    };
    // There is nothing in what is not there.
    if let Ok(top) = open(path, 0o500) {
        count.all_below(top)?;
    }
    Some(count.found)
}

/// What has been found so far.
struct Count {
    found: Usage,
    most: Usage,
}

/// A directory whose content has been counted, except for the directories named.
struct Level {
    /// Closed where the way down is long, and found again from below.
    directory: Option<File>,
    identity: (u64, u64),
    pending: Vec<OsString>,
}

impl Count {
    /// Counts everything below `top`; `None` as soon as that is too much.
    fn all_below(&mut self, top: File) -> Option<()> {
        let mut levels: Vec<Level> = Vec::new();
        let mut current = top;
        let mut level = self.level(&current)?;
        loop {
            if let Some(name) = level.pending.pop() {
                // What has gone or cannot be entered by its owner holds nothing that counts.
                let Ok(directory) = open(&below(&current, &name), 0o500) else {
                    continue;
                };
                let found = self.level(&directory)?;
                let above = std::mem::replace(&mut current, directory);
                level.directory = (levels.len() < MAX_OPEN).then_some(above);
                levels.push(std::mem::replace(&mut level, found));
                continue;
            }
            // Back to where something is left to do.
            let Some(unfinished) = levels.iter().rposition(|above| !above.pending.is_empty()) else {
                return Some(());
            };
            let mut back = levels.drain(unfinished..);
            level = back.next()?;
            current = match level.directory.take() {
                Some(directory) => directory,
                None => {
                    let between = back.rev().map(|above| above.identity);
                    climb(current, between.chain([level.identity]))?
                }
            };
        }
    }

    /// Counts what lies directly in a directory.
    fn level(&mut self, directory: &File) -> Option<Level> {
        let mut pending = Vec::new();
        for entry in fs::read_dir(handle(directory)).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let Usage { bytes, entries } = &mut self.found;
            *entries += 1;
            *bytes = bytes.saturating_add(metadata.len().max(ENTRY_BYTES));
            if *bytes > self.most.bytes || *entries > self.most.entries {
                return None;
            }
            if metadata.is_dir() {
                pending.push(entry.file_name());
            }
        }
        Some(Level {
            directory: None,
            identity: identity(directory)?,
            pending,
        })
    }
}

/// Goes up through the directories that are expected on the way. One that was moved meanwhile is not found, and then
/// nobody can say what so deep a tree holds.
fn climb(start: File, mut expected: impl Iterator<Item = (u64, u64)>) -> Option<File> {
    expected.try_fold(start, |directory, expected| {
        let above = open(&below(&directory, OsStr::new("..")), 0).ok()?;
        (identity(&above) == Some(expected)).then_some(above)
    })
}

fn identity(directory: &File) -> Option<(u64, u64)> {
    directory
        .metadata()
        .ok()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Opens a directory, and gives its owner, who we are, the rights in `mode` if a guest has taken them away.
fn open(path: &Path, mode: u32) -> io::Result<File> {
    // By O_PATH, which needs no right to read it.
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(O_PATH | O_DIRECTORY | O_NOFOLLOW)
        .open(path)?;
    let present = directory.metadata()?.mode() & 0o7777;
    if present & mode != mode {
        fs::set_permissions(handle(&directory), Permissions::from_mode(present | mode))?;
    }
    Ok(directory)
}

/// Removes all that a directory holds, as far as that is possible. What lies very deep is moved up to `top` first.
fn empty(top: File) {
    let pending = remove_shallow(&top);
    let mut levels = vec![(top, OsString::new(), pending)];
    let mut moved = 0_u64;
    while let Some((directory, _, pending)) = levels.last_mut() {
        let Some(name) = pending.pop() else {
            let done = levels.pop();
            if let (Some((_, name, _)), Some((above, ..))) = (done, levels.last()) {
                let _ = fs::remove_dir(below(above, &name));
            }
            continue;
        };
        let path = below(directory, &name);
        // Moving a directory takes the right to write to it, too.
        let Ok(entered) = open(&path, 0o700) else { continue };
        if levels.len() < MAX_OPEN {
            let pending = remove_shallow(&entered);
            levels.push((entered, name, pending));
        } else if let Some((top, _, pending)) = levels.first_mut() {
            moved += 1;
            let name = OsString::from(format!(".moved-{moved}"));
            if fs::rename(&path, below(top, &name)).is_ok() {
                pending.push(name);
            }
        }
    }
}

/// Removes files and empty directories; returns the directories that are left.
fn remove_shallow(directory: &File) -> Vec<OsString> {
    let mut left = Vec::new();
    for entry in fs::read_dir(handle(directory)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let path = below(directory, &name);
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_file(path);
        } else if fs::remove_dir(path).is_err() {
            left.push(name);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes directories in each other, deeper than any path can say; returns the lowest.
    fn dive(mut directory: File, levels: usize) -> File {
        for _ in 0..levels {
            let path = below(&directory, OsStr::new("d"));
            fs::create_dir(&path).unwrap();
            directory = open(&path, 0).unwrap();
        }
        directory
    }

    fn holds_more_than(path: &Path, limit: u64) -> bool {
        usage(path, Usage::at_most(limit)).is_none()
    }

    fn workdir() -> (tempfile::TempDir, Workdir) {
        let parent = tempfile::tempdir().unwrap();
        let directory = Workdir::create(parent.path(), None).unwrap();
        (parent, directory)
    }

    #[test]
    fn what_lies_deep_is_counted_and_removed() {
        let (parent, directory) = workdir();
        let deep = dive(open(&directory.path().join("tmp"), 0).unwrap(), 2_200);
        // A directory takes 4 KiB on some file systems.
        assert!(!holds_more_than(directory.path(), 20 << 20));
        let file = File::create(below(&deep, OsStr::new("file"))).unwrap();
        file.set_len(30 << 20).unwrap();
        assert!(holds_more_than(directory.path(), 30 << 20));
        // Beside the way in the middle, so that it is come upon before or after the way back up.
        let middle = open(&directory.path().join("tmp"), 0).unwrap();
        let middle = (0..1_000).fold(middle, |above, _| {
            open(&below(&above, OsStr::new("d")), 0).unwrap()
        });
        for name in ["a", "z"] {
            fs::create_dir(below(&middle, OsStr::new(name))).unwrap();
            let place = open(&below(&middle, OsStr::new(name)), 0).unwrap();
            let file = File::create(below(&place, OsStr::new("file"))).unwrap();
            file.set_len(30 << 20).unwrap();
        }
        assert!(holds_more_than(directory.path(), 90 << 20));
        for place in ["workspace", "output"] {
            let file = File::create(directory.path().join(place).join("file")).unwrap();
            file.set_len(30 << 20).unwrap();
        }
        assert!(holds_more_than(directory.path(), 150 << 20));
        assert!(!holds_more_than(directory.path(), 170 << 20));
        fs::set_permissions(handle(&deep), Permissions::from_mode(0o000)).unwrap();
        drop(directory);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_closed_directory_hides_nothing() {
        let (parent, directory) = workdir();
        let closed = directory.path().join("tmp/closed");
        fs::create_dir_all(closed.join("inner")).unwrap();
        fs::write(closed.join("inner/file"), vec![0; 1 << 20]).unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o300)).unwrap();
        assert!(holds_more_than(directory.path(), 1 << 20));
        drop(directory);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_lead_nowhere() {
        let (parent, directory) = workdir();
        let precious = tempfile::tempdir().unwrap();
        fs::write(precious.path().join("file"), vec![0; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(precious.path(), directory.path().join("tmp/link")).unwrap();
        assert!(!holds_more_than(directory.path(), 1 << 20));
        drop(directory);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(precious.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn what_is_too_much_already_may_stay_and_shrink_and_not_grow() {
        let (_parent, directory) = workdir();
        let big = directory.path().join("tmp/big");
        fs::write(&big, vec![0; 3 << 20]).unwrap();
        let most = Usage::growing(directory.path(), 1 << 20).await;
        assert!(usage(directory.path(), most).is_some());
        fs::write(directory.path().join("tmp/more"), "x").unwrap();
        assert_eq!(usage(directory.path(), most), None);
        fs::remove_file(&big).unwrap();
        assert!(usage(directory.path(), most).is_some());
        // From there on the limit holds again.
        let most = Usage::growing(directory.path(), 1 << 20).await;
        assert_eq!(most, Usage::at_most(1 << 20));
        fs::write(&big, vec![0; 2 << 20]).unwrap();
        overfull(directory.path().to_path_buf(), most, soon).await;
    }

    #[test]
    fn more_entries_than_can_be_counted_are_too_much() {
        let mut count = Count {
            found: Usage {
                bytes: 0,
                entries: MAX_ENTRIES - 3,
            },
            most: Usage::at_most(u64::MAX),
        };
        let (_parent, directory) = workdir();
        assert!(count.all_below(open(directory.path(), 0).unwrap()).is_none());
    }
}
