//! Fingerprint of the directory trees from which the programs of a line can load code.
//!
//! A loader takes what its search order finds first: a file more (`re.py` beside a script, a program in
//! `node_modules/.bin`) runs as well as a file that changed. So all files count, by their contents: a guest
//! that has mapped a file into its memory changes it without a change of its times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::audit::Digest;
use crate::host::Place;

/// Maximum number of files and directories.
pub(super) const MAX_ENTRIES: usize = 10_000;
/// Maximum number of bytes that are read.
pub(super) const MAX_READ: u64 = 64 << 20;
/// Threads that read.
const MAX_THREADS: usize = 4;

/// A file, a link or a device in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaf {
    /// Type and permissions.
    mode: u32,
    /// The text of a symbolic link.
    target: Option<PathBuf>,
    content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Digest(Digest),
    /// Device, inode, length and change time of a file that is not read.
    Identity(u64, u64, u64, (i64, i64)),
    /// A device, a pipe, or a link to none of the trees' files.
    None,
}

/// The files of several trees.
#[derive(Debug, Default)]
pub(super) struct Trees {
    pub(super) leaves: BTreeMap<PathBuf, Leaf>,
    /// Set if there are more files than are fingerprinted.
    pub(super) partial: bool,
}

/// Fingerprints all files below these directories.
pub(super) fn of(roots: BTreeSet<PathBuf>, place: &Place) -> Trees {
    let mut walk = Walk {
        place,
        pending: VecDeque::new(),
        entered: BTreeSet::new(),
        entries: 0,
        to_read: Vec::new(),
        trees: Trees::default(),
    };
    for root in roots {
        walk.trees.partial |= is_among_records(&root);
        walk.pending.push_back((root, None));
    }
    while let Some((directory, device)) = walk.pending.pop_front() {
        walk.enter(&directory, device);
    }
    let Walk {
        to_read, mut trees, ..
    } = walk;
    trees.partial |= read(to_read, &mut trees.leaves);
    trees
}

/// A walk through directories, those near the roots first.
struct Walk<'a> {
    place: &'a Place,
    /// Directories, with the file system that they must be on; `None` for a root.
    pending: VecDeque<(PathBuf, Option<u64>)>,
    /// Device and inode of each directory: none is entered twice.
    entered: BTreeSet<(u64, u64)>,
    entries: usize,
    to_read: Vec<(PathBuf, Metadata)>,
    trees: Trees,
}

impl Walk<'_> {
    fn enter(&mut self, directory: &Path, device: Option<u64>) {
        let Ok(found) = fs::metadata(directory) else {
            return;
        };
        if !found.is_dir() || !self.entered.insert((found.dev(), found.ino())) {
            return;
        }
        if device.is_some_and(|device| device != found.dev()) {
            self.trees.partial = true;
            return;
        }
        let shallow = device.is_none() && is_broad(directory, self.place.home.as_deref());
        self.trees.partial |= shallow;
        let mut names: Vec<_> = fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        names.sort_unstable();
        for path in names {
            if self.place.own.contains(&path) || is_record(&path) {
                continue;
            }
            if self.entries >= MAX_ENTRIES {
                self.trees.partial = true;
                self.pending.clear();
                return;
            }
            self.entries += 1;
            self.entry(path, found.dev(), shallow);
        }
    }

    fn entry(&mut self, path: PathBuf, device: u64, shallow: bool) {
        let Ok(found) = fs::symlink_metadata(&path) else {
            return;
        };
        if found.is_dir() {
            if !shallow {
                self.pending.push_back((path, Some(device)));
            }
            return;
        }
        let target = found
            .is_symlink()
            .then(|| fs::read_link(&path).unwrap_or_default());
        let behind = match target {
            Some(_) => fs::metadata(&path).ok(),
            None => Some(found.clone()),
        };
        if let Some(behind) = behind.filter(|_| target.is_none() || !is_systems(&path)) {
            if behind.is_dir() && !shallow {
                self.pending.push_back((path.clone(), None));
            }
            // Somebody chooses its content as it is read.
            self.trees.partial |= behind.file_type().is_fifo();
            if behind.is_file() {
                self.to_read.push((path.clone(), behind));
            }
        }
        let leaf = Leaf {
            mode: found.mode(),
            target,
            content: Content::None,
        };
        self.trees.leaves.insert(path, leaf);
    }
}

/// Reads the files, as many as the limit lets be. Returns `true` if not all of them.
fn read(files: Vec<(PathBuf, Metadata)>, leaves: &mut BTreeMap<PathBuf, Leaf>) -> bool {
    let mut left = MAX_READ;
    let mut partial = false;
    let mut small = Vec::new();
    for (path, found) in files {
        match left.checked_sub(found.len()) {
            Some(rest) => {
                left = rest;
                small.push((path, found));
            }
            None => {
                partial = true;
                set(leaves, path, identity(&found));
            }
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = small.len().div_ceil(threads.min(MAX_THREADS)).max(1);
    let contents: Vec<Content> = std::thread::scope(|scope| {
        let readers: Vec<_> = small
            .chunks(share)
            .map(|files| {
                scope.spawn(|| {
                    let mut bytes = Vec::new();
                    let read = |(path, found): &(PathBuf, Metadata)| digest(path, found, &mut bytes);
                    files.iter().map(read).collect::<Vec<_>>()
                })
            })
            .collect();
        // A reader that panicked has read nothing: the files differ from any that were read.
        readers
            .into_iter()
            .flat_map(|reader| reader.join().unwrap_or_default())
            .collect()
    });
    partial |= contents.len() != small.len();
    for ((path, _), content) in small.into_iter().zip(contents) {
        set(leaves, path, content);
    }
    partial
}

fn set(leaves: &mut BTreeMap<PathBuf, Leaf>, path: PathBuf, content: Content) {
    if let Some(leaf) = leaves.get_mut(&path) {
        leaf.content = content;
    }
}

/// Returns the digest of a file; its identity if it cannot be read. A pipe that took its place blocks nothing.
fn digest(path: &Path, found: &Metadata, bytes: &mut Vec<u8>) -> Content {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let is_file = |file: &fs::File| file.metadata().is_ok_and(|now| now.is_file());
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).map(fs::File::from);
    let Some(file) = file.ok().filter(is_file) else {
        return identity(found);
    };
    bytes.clear();
    match file.take(found.len() + 1).read_to_end(bytes) {
        Ok(_) => Content::Digest(Digest::of(bytes)),
        Err(_) => identity(found),
    }
}

fn identity(found: &Metadata) -> Content {
    let changed = (found.ctime(), found.ctime_nsec());
    Content::Identity(found.dev(), found.ino(), found.len(), changed)
}

/// Returns `true` for a home, a directory above it, and the directories for temporary files: programs that
/// have nothing to do with the line write there all the time.
pub(in crate::host) fn is_broad(directory: &Path, home: Option<&Path>) -> bool {
    let Some(directory) = resolved(directory) else {
        return true;
    };
    home.is_some_and(|home| home.starts_with(&directory))
        || home
            .and_then(resolved)
            .is_some_and(|home| home.starts_with(&directory))
        || ["/", "/tmp", "/var/tmp"]
            .iter()
            .any(|broad| directory == Path::new(broad))
}

/// Returns `true` for a path of the system, which only root writes.
pub(super) fn is_systems(path: &Path) -> bool {
    const SYSTEM: &[&str] = &[
        "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/boot", "/proc", "/sys",
        "/dev",
    ];
    resolved(path).is_some_and(|path| SYSTEM.iter().any(|system| path.starts_with(system)))
}

/// Returns the path without links.
fn resolved(path: &Path) -> Option<PathBuf> {
    let place = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
}

/// Returns `true` for a log, for what a tool remembers of its last run, and for what git records: programs
/// write it and load no code from it, unless the line or a script names it, which binds it by itself.
fn is_record(path: &Path) -> bool {
    const CACHES: &[&str] = &[".pytest_cache", ".mypy_cache", ".ruff_cache"];
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let parent = path.parent().and_then(Path::file_name);
    let in_git = parent.is_some_and(|parent| parent == ".git");
    CACHES.contains(&name) || name.ends_with(".log") && path.is_file() || in_git && !GITS.contains(&name)
}

/// Files and directories of a repository that name programs, or are some.
const GITS: &[&str] = &[
    "config",
    "config.worktree",
    "hooks",
    "info",
    "modules",
    "commondir",
];

/// Returns `true` for a directory of which a part is taken for records: code that starts there could load it.
fn is_among_records(directory: &Path) -> bool {
    let mut parts = directory
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    let in_git = parts.any(|part| part == ".git");
    in_git && !parts.next().is_some_and(|part| GITS.contains(&&*part))
}

/// Returns the digest of all leaves.
pub(super) fn digest_of(leaves: &BTreeMap<PathBuf, Leaf>) -> Digest {
    use std::os::unix::ffi::OsStrExt;

    let mut bytes = Vec::new();
    let mut part = |text: &[u8]| {
        bytes.extend(text.len().to_le_bytes());
        bytes.extend(text);
    };
    for (path, leaf) in leaves {
        part(path.as_os_str().as_bytes());
        part(&leaf.mode.to_le_bytes());
        part(
            leaf.target
                .as_ref()
                .map_or(b"", |target| target.as_os_str().as_bytes()),
        );
        match &leaf.content {
            Content::Digest(digest) => part(digest.to_string().as_bytes()),
            other => part(format!("{other:?}").as_bytes()),
        }
    }
    Digest::of(&bytes)
}
