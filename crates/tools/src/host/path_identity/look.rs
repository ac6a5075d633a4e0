//! Examining paths without opening FIFOs or devices.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat};

use crate::host::{PATH, project};
use ringfence_records::audit::Digest;

/// Maximum number of paths.
const MAX_PATHS: usize = 120_000;
/// Maximum length of a file that is hashed; longer ones are compared by inode, length and change time.
const MAX_DIGESTED: u64 = 4 << 20;
/// Maximum number of bytes read in all.
const MAX_READ: u64 = 64 << 20;
/// Maximum length of a script whose words are examined.
const MAX_SCRIPT: usize = 64 << 10;
/// The kernel reads no more of a script's first line.
const MAX_FIRST_LINE: usize = 256;

/// The error for a line that names too many files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// The identity of a file and of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    is_directory: bool,
    length: u64,
    /// Change time (ctime), which only root can set back.
    changed: (i64, i64),
    digest: Option<Digest>,
}

/// The examination of many paths.
#[derive(Debug, Default)]
pub(super) struct Examination {
    seen: BTreeSet<PathBuf>,
    found: BTreeMap<PathBuf, Stamp>,
    read: u64,
    /// Set if a FIFO was examined: somebody chooses its content as it is read.
    has_fifo: bool,
    /// Texts of scripts, and of settings that name scripts.
    scripts: BTreeMap<PathBuf, String>,
}

impl Examination {
    pub(super) fn found(self) -> BTreeMap<PathBuf, Stamp> {
        self.found
    }

    pub(super) fn has_fifo(&self) -> bool {
        self.has_fifo
    }

    /// Returns the text of an examined script.
    pub(super) fn script(&self, path: &Path) -> Option<String> {
        self.scripts.get(path).cloned()
    }

    /// Returns the paths of the examined scripts.
    pub(super) fn scripts(&self) -> Vec<PathBuf> {
        self.scripts.keys().cloned().collect()
    }

    /// Returns the examined paths that are no directories.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let files = self.found.iter().filter(|(_, stamp)| !stamp.is_directory);
        files.map(|(path, _)| path.as_path())
    }

    /// Examines each of the paths.
    pub(super) fn all(&mut self, paths: Vec<PathBuf>) -> Result<(), TooMuch> {
        paths.into_iter().try_for_each(|path| self.at(path).map(drop))
    }

    /// Examines a path, and the interpreter if it is a script. Returns `true` for a directory.
    pub(super) fn at(&mut self, path: PathBuf) -> Result<bool, TooMuch> {
        // An interpreter may be a script in turn: no recursion whose depth is chosen by a chain of files.
        let mut pending = vec![path.clone()];
        while let Some(next) = pending.pop() {
            if self.seen.contains(&next) {
                continue;
            }
            if self.seen.len() >= MAX_PATHS {
                return Err(TooMuch);
            }
            self.seen.insert(next.clone());
            let Some((stamp, interpreter)) = self.stamp(&next) else {
                continue;
            };
            self.found.insert(next, stamp);
            let words = interpreter.split(u8::is_ascii_whitespace).map(OsStr::from_bytes);
            for word in words.map(Path::new) {
                pending.extend(places(word));
                pending.extend(word.is_absolute().then(|| word.to_path_buf()));
            }
        }
        Ok(self.found.get(&path).is_some_and(|stamp| stamp.is_directory))
    }

    /// Examines the programs of this name on the search path.
    pub(super) fn on_path(&mut self, name: &Path) -> Result<(), TooMuch> {
        places(name).try_for_each(|path| self.at(path).map(drop))
    }

    /// Returns a path's identity, and the interpreter line of a script.
    fn stamp(&mut self, path: &Path) -> Option<(Stamp, Vec<u8>)> {
        // `O_PATH` opens nothing: no FIFO blocks, no device is activated, and the file read below is the one
        // examined here.
        let place = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let found = rustix::fs::fstat(&place).ok()?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let is_file = kind == FileType::RegularFile;
        self.has_fifo |= kind == FileType::Fifo && !path.starts_with("/dev") && !path.starts_with("/proc");
        if !is_file || is_made_up(place.as_fd()) {
            return Some((Stamp::of_place(&found), Vec::new()));
        }
        // System programs are writable by root only, and large: not hashed.
        let length = (!is_systems(path)).then_some(found.st_size.unsigned_abs());
        let known = format!("/proc/self/fd/{}", place.as_raw_fd());
        let (digest, bytes) = self.content(Path::new(&known), length).unwrap_or_default();
        let interpreter = interpreter(&bytes);
        let is_script = project::is_followed(path) || !interpreter.is_empty();
        if digest.is_some() && is_script && bytes.len() <= MAX_SCRIPT {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.scripts.insert(path.to_path_buf(), text);
        }
        Some((Stamp::of_file(&found, digest), interpreter))
    }

    /// Reads a file; returns its digest if `length` is given and within the limits, and the bytes read.
    fn content(&mut self, path: &Path, length: Option<u64>) -> Option<(Option<Digest>, Vec<u8>)> {
        let file = std::fs::File::open(path).ok()?;
        let room = MAX_DIGESTED.min(MAX_READ.saturating_sub(self.read));
        let digested = length.filter(|length| *length <= room);
        let wanted = digested.unwrap_or_default().max(MAX_FIRST_LINE as u64);
        let mut bytes = Vec::new();
        file.take(wanted).read_to_end(&mut bytes).ok()?;
        self.read += bytes.len() as u64;
        Some((digested.map(|_| Digest::of(&bytes)), bytes))
    }
}

/// Returns the rest of the line behind `#!`.
fn interpreter(bytes: &[u8]) -> Vec<u8> {
    let first = &bytes[..bytes.len().min(MAX_FIRST_LINE)];
    let script = first.strip_prefix(b"#!").unwrap_or_default();
    let line = script.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.to_vec()
}

/// Returns `true` for a file directly in a directory of the search path.
pub(super) fn is_systems(path: &Path) -> bool {
    std::env::split_paths(PATH).any(|folder| path.parent() == Some(&folder))
}

impl Stamp {
    /// Returns the digest, or inode, length and change time of a file that was not hashed.
    pub(super) fn content(&self) -> Option<String> {
        match self.digest {
            Some(digest) => Some(digest.to_string()),
            None if self.length > 0 && !self.is_directory => {
                Some(format!("{} {} {:?}", self.inode, self.length, self.changed))
            }
            None => None,
        }
    }

    fn of_file(found: &Stat, digest: Option<Digest>) -> Self {
        Self {
            length: found.st_size.unsigned_abs(),
            changed: (found.st_ctime, found.st_ctime_nsec.cast_signed()),
            digest,
            ..Self::of_place(found)
        }
    }

    /// A directory changes with every file in it, a device with every use: only their identity counts.
    fn of_place(found: &Stat) -> Self {
        Self {
            device: found.st_dev,
            inode: found.st_ino,
            is_directory: FileType::from_raw_mode(found.st_mode) == FileType::Directory,
            length: 0,
            changed: (0, 0),
            digest: None,
        }
    }
}

/// Returns `true` for procfs and sysfs, whose files are generated on reading, which can block or consume the
/// content.
fn is_made_up(place: BorrowedFd<'_>) -> bool {
    const SYSFS_MAGIC: u64 = 0x6265_6572;
    let kind = rustix::fs::fstatfs(place).map(|system| system.f_type.cast_unsigned());
    kind.map_or(true, |kind| {
        kind == PROC_SUPER_MAGIC.cast_unsigned() || kind == SYSFS_MAGIC
    })
}

/// Returns the paths on the search path where a program of this name could be.
fn places(name: &Path) -> impl Iterator<Item = PathBuf> {
    let is_name = !name.as_os_str().is_empty() && !name.as_os_str().as_bytes().contains(&b'/');
    std::env::split_paths(PATH)
        .filter(move |_| is_name)
        .map(move |folder| folder.join(name))
}
