//! Fingerprint of the directory trees from which the programs of a line can load code.
//!
//! A loader takes what its search order finds first: a file more (`re.py` beside a script, a program in
//! `node_modules/.bin`) runs as well as a file that changed. So all files count, by their contents: a guest
//! that has mapped a file into its memory changes it without a change of its times.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use super::references;
use crate::host::line_directory::{LineDirectory, is_broad, resolved};
use crate::host::project;
use ringfence_exec::trust::glob;
use ringfence_records::audit::Digest;

/// Maximum number of files and directories.
pub(super) const MAX_ENTRIES: usize = 10_000;
/// Maximum number of bytes that are read.
pub(super) const MAX_READ: u64 = 64 << 20;
/// Maximum number of paths that files of the trees name.
const MAX_LEADS: usize = 100_000;
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

/// Fingerprints all files below these directories, and below those that their files reference.
///
/// `with_records` adds what git records of the project.
pub(super) fn of(roots: BTreeSet<PathBuf>, place: &LineDirectory, with_records: bool) -> Trees {
    let records = (!with_records).then(|| project::repository(place).join(".git"));
    let mut walk = Walk {
        place,
        records,
        pending: VecDeque::new(),
        tops: BTreeSet::new(),
        entered: BTreeSet::new(),
        entries: 0,
        left: MAX_READ,
        to_read: Vec::new(),
        leads: BTreeSet::new(),
        trees: Trees::default(),
    };
    for root in roots {
        walk.trees.partial |= walk.is_among_records(&root);
        walk.start(root);
    }
    let mut reached = BTreeSet::new();
    while !walk.pending.is_empty() || !walk.to_read.is_empty() {
        while let Some((directory, device)) = walk.pending.pop_front() {
            walk.enter(&directory, device);
        }
        walk.read();
        for path in std::mem::take(&mut walk.leads) {
            if reached.len() >= MAX_LEADS {
                walk.trees.partial = true;
                break;
            }
            if reached.insert(path.clone()) {
                walk.reach(path);
            }
        }
    }
    walk.trees
}

/// A walk through directories, those near the roots first.
struct Walk<'a> {
    place: &'a LineDirectory,
    /// Directories, with the file system that they must be on; `None` for a root.
    pending: VecDeque<(PathBuf, Option<u64>)>,
    /// The roots, without links.
    tops: BTreeSet<PathBuf>,
    /// The repository whose records are left out.
    records: Option<PathBuf>,
    /// Device and inode of each directory: none is entered twice.
    entered: BTreeSet<(u64, u64)>,
    entries: usize,
    /// Number of bytes that may still be read.
    left: u64,
    to_read: Vec<(PathBuf, Metadata)>,
    /// Paths that files of the trees name, or that links lead to.
    leads: BTreeSet<PathBuf>,
    trees: Trees,
}

impl Walk<'_> {
    fn start(&mut self, root: PathBuf) {
        if !is_broad(&root, self.place.home.as_deref()) {
            self.tops.extend(resolved(&root));
        }
        self.pending.push_back((root, None));
    }

    /// Adds the directory that a path leads to, or that of a file, if it lies outside the trees. A path that does not
    /// exist is bound by its absence.
    fn reach(&mut self, path: PathBuf) {
        let real = resolved(&path);
        let directory = match &real {
            Some(real) if real.is_dir() => Some(real.clone()),
            Some(real) => real.parent().map(Path::to_path_buf),
            None => path.parent().and_then(resolved),
        };
        if real
            .as_deref()
            .is_some_and(|real| real.is_file() && self.is_record_below(real))
        {
            return self.entry(path, 0, true);
        }
        match directory {
            Some(directory)
                if is_systems(&directory) || self.covers(&directory) || self.is_own(&directory) => {}
            Some(directory) if is_broad(&directory, self.place.home.as_deref()) => {
                // Without an ending, it can mean a file with one.
                let ended = path.with_file_name(format!("{}.*", name_of(&path)));
                self.trees.partial |= real.is_some() || !glob::expand(&ended, 1).paths.is_empty();
                self.absent(path);
            }
            Some(directory) => self.start(directory),
            None => self.absent(path),
        }
    }

    fn is_own(&self, directory: &Path) -> bool {
        self.place.own.iter().any(|own| directory.starts_with(own))
    }

    fn covers(&self, directory: &Path) -> bool {
        self.tops.iter().any(|top| directory.starts_with(top))
    }

    /// Binds a path where nothing is.
    fn absent(&mut self, path: PathBuf) {
        if path.symlink_metadata().is_err() {
            let nothing = Leaf {
                mode: 0,
                target: None,
                content: Content::None,
            };
            self.trees.leaves.insert(path, nothing);
        }
    }

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
            if self.place.own.contains(&path) || self.is_record(&path) {
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
                // Interpreters load what lies beside a link's target.
                self.leads.extend(target.as_ref().and_then(|_| resolved(&path)));
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

impl Walk<'_> {
    /// Reads the files, as many as the limit lets be, and collects the paths that they name.
    fn read(&mut self) {
        let mut small = Vec::new();
        for (path, found) in std::mem::take(&mut self.to_read) {
            match self.left.checked_sub(found.len()) {
                Some(rest) => {
                    self.left = rest;
                    small.push((path, found));
                }
                None => {
                    self.trees.partial = true;
                    set(&mut self.trees.leaves, path, identity(&found));
                }
            }
        }
        let contents = contents(&small, self.place.home.as_deref());
        self.trees.partial |= contents.len() != small.len();
        for ((path, _), (content, leads)) in small.into_iter().zip(contents) {
            set(&mut self.trees.leaves, path, content);
            // What is partial is approved once, however much more is found.
            self.leads
                .extend(leads.into_iter().filter(|_| !self.trees.partial));
        }
    }

    /// Returns `true` for what git records of the project: programs write it with every commit. What a file of
    /// the trees names is bound nevertheless.
    fn is_record(&self, path: &Path) -> bool {
        const RECORDS: &[&str] = &[
            "AUTO_MERGE",
            "CHERRY_PICK_HEAD",
            "COMMIT_EDITMSG",
            "FETCH_HEAD",
            "HEAD",
            "MERGE_HEAD",
            "MERGE_MODE",
            "MERGE_MSG",
            "ORIG_HEAD",
            "REBASE_HEAD",
            "REVERT_HEAD",
            "SQUASH_MSG",
            "TAG_EDITMSG",
            "description",
            "gc.log",
            "index",
            "logs",
            "objects",
            "packed-refs",
            "refs",
            "shallow",
        ];
        let name = name_of(path);
        self.records.is_some() && path.parent() == self.records.as_deref() && RECORDS.contains(&&*name)
    }

    fn is_record_below(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.is_record(above))
    }

    /// Returns `true` for a directory of records: code that starts there could load it.
    fn is_among_records(&self, directory: &Path) -> bool {
        resolved(directory).is_some_and(|directory| self.is_record_below(&directory))
    }
}

fn name_of(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Returns each file's content with the paths that it names; fewer if a reader panicked.
fn contents(files: &[(PathBuf, Metadata)], home: Option<&Path>) -> Vec<(Content, Vec<PathBuf>)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = files.len().div_ceil(threads.min(MAX_THREADS)).max(1);
    std::thread::scope(|scope| {
        let readers: Vec<_> = files
            .chunks(share)
            .map(|files| {
                scope.spawn(move || {
                    let mut bytes = Vec::new();
                    let mut read = |(path, found): &(PathBuf, Metadata)| {
                        let content = digest(path, found, &mut bytes);
                        (content, references::of(path, &bytes, home))
                    };
                    files.iter().map(&mut read).collect::<Vec<_>>()
                })
            })
            .collect();
        // A reader that panicked has read nothing: the files differ from any that were read.
        readers
            .into_iter()
            .flat_map(|reader| reader.join().unwrap_or_default())
            .collect()
    })
}

fn set(leaves: &mut BTreeMap<PathBuf, Leaf>, path: PathBuf, content: Content) {
    if let Some(leaf) = leaves.get_mut(&path) {
        leaf.content = content;
    }
}

/// Returns the digest of a file; its identity if it cannot be read. A pipe that took its place blocks nothing.
fn digest(path: &Path, found: &Metadata, bytes: &mut Vec<u8>) -> Content {
    bytes.clear();
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let is_file = |file: &fs::File| file.metadata().is_ok_and(|now| now.is_file());
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).map(fs::File::from);
    let Some(file) = file.ok().filter(is_file) else {
        return identity(found);
    };
    match file.take(found.len() + 1).read_to_end(bytes) {
        Ok(_) => Content::Digest(Digest::of(bytes)),
        Err(_) => identity(found),
    }
}

fn identity(found: &Metadata) -> Content {
    let changed = (found.ctime(), found.ctime_nsec());
    Content::Identity(found.dev(), found.ino(), found.len(), changed)
}

/// Returns `true` for a path of the system, which only root writes.
pub(super) fn is_systems(path: &Path) -> bool {
    const SYSTEM: &[&str] = &[
        "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/boot", "/proc", "/sys",
        "/dev",
    ];
    resolved(path).is_some_and(|path| SYSTEM.iter().any(|system| path.starts_with(system)))
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
