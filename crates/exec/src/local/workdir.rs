//! The host directory of a guest without a cell: created, measured and removed.
//!
//! A guest can create directories that no path reaches, and close them; so everything below is reached from
//! an open file descriptor, one component at a time and without following links.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::destination::{below, handle, unpredictable};
use super::user::effective_uid;
use super::workspace::owner_for_guests;
use crate::open_flags::{O_DIRECTORY, O_NOFOLLOW, O_PATH};
use crate::owner::{owner_is_dead, owner_name};

/// Maximum number of entries of a guest: measuring must terminate.
const MAX_ENTRIES: u64 = 100_000;
/// Bytes counted for an entry at least: one without content takes space too.
const ENTRY_BYTES: u64 = 512;
/// Unit of `st_blocks` in stat(2).
const BLOCK: u64 = 512;
/// Maximum number of directories held open on the way down, when measuring and when removing.
const MAX_OPEN: usize = 64;

/// A host directory that is removed with its contents on drop.
#[derive(Debug)]
pub struct Workdir(PathBuf);

impl Workdir {
    /// Creates a directory below `parent`, with the writable directories of a guest in it, owned by `owner` if given.
    pub fn create(parent: &Path, owner: Option<u32>) -> io::Result<Self> {
        let open = if owner.is_some() { 0o711 } else { 0o700 };
        // Another user can read the owner in /proc, and could take names in advance.
        let path = parent.join(format!("{}-{:016x}", owner_name(), unpredictable()));
        // Not recursive: an existing directory belongs to somebody else.
        fs::DirBuilder::new().mode(open).create(&path)?;
        // Whatever the umask, its owner must be able to enter.
        fs::set_permissions(&path, Permissions::from_mode(open))?;
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

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes directories below `parent` left by processes that were killed.
    pub(crate) fn sweep(parent: &Path) {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let owner = name
                .to_str()
                .and_then(|name| name.strip_prefix("ringfence-")?.rsplit_once('-'));
            // The name is checked first: this directory may have many unrelated entries.
            let Some((owner, _)) = owner else { continue };
            let ours = entry
                .metadata()
                .is_ok_and(|entry| entry.is_dir() && Some(entry.uid()) == effective_uid());
            if ours && owner_is_dead(owner) {
                drop(Self(entry.path()));
            }
        }
    }

    /// Writes the program's text to the guest's code directory.
    pub fn write_code(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.0.join("code").join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        Ok(path)
    }
}

/// A private host directory of one run, removed on drop; one left by a killed process is removed by the next
/// sweep of the same parent.
#[derive(Debug)]
pub struct PrivateDirectory {
    path: PathBuf,
    _whole: Workdir,
}

impl PrivateDirectory {
    /// Creates one below `parent`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(parent: &Path) -> io::Result<Self> {
        Self::owned_by(parent, owner_for_guests())
    }

    /// Creates one that no guest may enter.
    pub fn closed(parent: &Path) -> io::Result<Self> {
        Self::owned_by(parent, None)
    }

    fn owned_by(parent: &Path, owner: Option<u32>) -> io::Result<Self> {
        let whole = Workdir::create(parent, owner)?;
        Ok(Self {
            path: whole.path().join("workspace"),
            _whole: whole,
        })
    }

    /// Lets every guest read its contents.
    pub(crate) fn open_to_guests(&self) -> io::Result<()> {
        fs::set_permissions(&self.path, Permissions::from_mode(0o755))
    }

    /// Removes those below `parent` whose process was killed.
    pub fn sweep(parent: &Path) {
        Workdir::sweep(parent);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes a run's directory as far as possible, in any state that guests left it.
pub fn remove_tree(path: PathBuf) {
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

/// Minimum interval for measuring a host directory during a run.
const MEASURE_EVERY: Duration = Duration::from_millis(50);

/// Returns the pause after a measurement of this duration, during a run. The more there is to measure, the
/// more may be written meanwhile.
pub fn soon(took: Duration) -> Duration {
    MEASURE_EVERY.max(took / 4)
}

/// Size and number of entries of a directory, or a limit on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    bytes: u64,
    entries: u64,
}

impl Usage {
    /// Returns the limit for a directory that was empty before the run.
    pub const fn at_most(bytes: u64) -> Self {
        Self {
            bytes,
            entries: MAX_ENTRIES,
        }
    }

    /// Returns the limit for a directory with existing content: that may stay, however large, but a run must
    /// not add to an excess.
    pub async fn growing(path: &Path, bytes: u64) -> Self {
        let before = measured(path.to_path_buf(), Self::COUNTABLE).await;
        let most = Self::at_most(bytes);
        // Content that cannot be counted is too large, and must not grow.
        before.map_or(most, |before| Self {
            bytes: most.bytes.max(before.bytes),
            entries: most.entries.max(before.entries),
        })
    }

    /// More than a run ever writes before it is killed.
    const COUNTABLE: Self = Self {
        bytes: u64::MAX,
        entries: 10 * MAX_ENTRIES,
    };
}

/// Resolves when the directory at `path` exceeds `most`.
///
/// `pause` maps the duration of a measurement to the pause after it.
pub async fn disk_limit_exceeded(path: PathBuf, most: Usage, pause: impl Fn(Duration) -> Duration) {
    loop {
        let since = Instant::now();
        if measured(path.clone(), most).await.is_none() {
            return;
        }
        tokio::time::sleep(pause(since.elapsed())).await;
    }
}

/// Measures a directory; `None` if it exceeds `most` or cannot be measured: in both cases the guest is
/// killed.
async fn measured(path: PathBuf, most: Usage) -> Option<Usage> {
    // No thread is started for a directory that nothing was written to: most stay so.
    if is_empty(&path) {
        return Some(Usage { bytes: 0, entries: 0 });
    }
    // One at a time, because each holds directories open; waiting holds no blocking thread, which others
    // need.
    static TURN: Semaphore = Semaphore::const_new(1);
    let turn = TURN.acquire().await;
    let measuring = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        usage(&path, most)
    });
    measuring.await.unwrap_or(None)
}

/// Returns `true` for a directory without entries, as far as it can be read.
fn is_empty(path: &Path) -> bool {
    let entries = open(path, 0o500).and_then(|directory| fs::read_dir(handle(&directory)));
    entries.is_ok_and(|mut entries| entries.next().is_none())
}

/// Measures the directory at `path`; `None` if it exceeds `most`.
///
/// This blocks: not for an async thread.
fn usage(path: &Path, most: Usage) -> Option<Usage> {
    let mut count = Count {
        found: Usage { bytes: 0, entries: 0 },
        most,
    };
    // A missing directory is empty.
    if let Ok(top) = open(path, 0o500) {
        count.all_below(top)?;
    }
    Some(count.found)
}

/// A measurement in progress.
struct Count {
    found: Usage,
    most: Usage,
}

/// A directory whose entries are counted, except those below the pending directories.
struct Level {
    /// Closed if the path down is long, and then found again from below.
    directory: Option<File>,
    identity: (u64, u64),
    pending: Vec<OsString>,
}

impl Count {
    /// Counts everything below `top`; `None` as soon as the limit is exceeded.
    fn all_below(&mut self, top: File) -> Option<()> {
        let mut levels: Vec<Level> = Vec::new();
        let mut current = top;
        let mut level = self.level(&current)?;
        loop {
            if let Some(name) = level.pending.pop() {
                // A directory that is gone, or that its owner cannot enter, has nothing that counts.
                let Ok(directory) = open(&below(&current, &name), 0o500) else {
                    continue;
                };
                let found = self.level(&directory)?;
                let above = std::mem::replace(&mut current, directory);
                level.directory = (levels.len() < MAX_OPEN).then_some(above);
                levels.push(std::mem::replace(&mut level, found));
                continue;
            }
            // Back up to the nearest level with pending directories.
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

    /// Counts the direct entries of a directory.
    fn level(&mut self, directory: &File) -> Option<Level> {
        let mut pending = Vec::new();
        for entry in fs::read_dir(handle(directory)).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let Usage { bytes, entries } = &mut self.found;
            *entries += 1;
            // What was allocated beyond its size is not in its length.
            let held = metadata.len().max(metadata.blocks().saturating_mul(BLOCK));
            *bytes = bytes.saturating_add(held.max(ENTRY_BYTES));
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

/// Climbs through the expected parent directories. Fails if one was moved meanwhile, in which case the size
/// of so deep a tree is unknown.
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

/// Opens a directory, and restores the rights in `mode` to its owner, which we are, if a guest has removed
/// them.
fn open(path: &Path, mode: u32) -> io::Result<File> {
    // O_PATH needs no read permission.
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

/// Removes the contents of a directory, as far as possible. Very deep directories are first moved up to
/// `top`.
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
        // Moving a directory also needs write permission on it.
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

/// Removes files and empty directories; returns the remaining directories.
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

    /// Creates nested directories, deeper than any path can reach; returns the innermost.
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
        // Halfway down, so that they are visited before or after the climb.
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
    fn what_is_allocated_beyond_a_files_size_counts() {
        let (_parent, directory) = workdir();
        let file = File::create(directory.path().join("tmp/file")).unwrap();
        let mode = rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, mode, 0, 2 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert!(holds_more_than(directory.path(), 1 << 20));
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
        // From then on the limit applies again.
        let most = Usage::growing(directory.path(), 1 << 20).await;
        assert_eq!(most, Usage::at_most(1 << 20));
        fs::write(&big, vec![0; 2 << 20]).unwrap();
        disk_limit_exceeded(directory.path().to_path_buf(), most, soon).await;
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
