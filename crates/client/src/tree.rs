//! Trees of files of this machine as tar archives.
//!
//! An archive of a sandbox is hostile input, written by its programs: no entry leaves the directory that it is unpacked into,
//! none is placed through a link, and what is left out is named.

mod pack;
mod relay;
mod unpack;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use ringfence_tar::TarError;
use serde::{Deserialize, Serialize};

pub(crate) use pack::pack;
pub(crate) use relay::relay;
pub(crate) use unpack::{Bounds, unpack};

/// Maximum length of a path, as in the init.
const MAX_PATH: usize = 4095;
/// Maximum depth of a tree, in directories.
const MAX_DEPTH: usize = 128;
/// Maximum number of entries of a tree.
const MAX_ENTRIES: u64 = 1_000_000;
/// Maximum number of entries left out that are named.
const MAX_NAMED: usize = 100;
/// Size of a buffer for contents.
const BUFFER: usize = 64 * 1024;

/// Summary of a copied tree.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Number of entries that were copied.
    #[serde(default)]
    pub entries: u64,
    /// Total size of their contents, in bytes.
    #[serde(default)]
    pub bytes: u64,
    /// Number of entries left out.
    pub skipped: u64,
    /// The first of them.
    #[serde(default)]
    pub named: Vec<LeftOut>,
}

/// An entry that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Path relative to the tree; text that is not UTF-8 is replaced.
    pub path: String,
    pub reason: Reason,
}

/// A reason to leave out an entry, in the API's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    Special,
    Denied,
    Changed,
    TooLong,
    /// A symbolic link that leads out of the tree.
    Outward,
    /// Programs of this machine execute or obey it.
    Protected,
    /// A reason of a later version.
    #[serde(other)]
    Other,
}

impl Reason {
    /// Returns the reason as a clause.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Special => "it is a FIFO, a socket or a device",
            Self::Denied => "it may not be read",
            Self::Changed => "it changed while it was read, so the copy ends with zeros",
            Self::TooLong => "its path is too long or too deep",
            Self::Outward => "it is a link that leads out of the directory",
            Self::Protected => {
                "programs of this machine execute or obey files of that name (`--include-protected` copies it)"
            }
            Self::Other => "the server does not say why in a way that this version knows",
        }
    }
}

impl Report {
    fn skip(&mut self, path: &Path, reason: Reason) {
        self.skipped += 1;
        if self.named.len() < MAX_NAMED {
            let path = path.to_string_lossy().into_owned();
            self.named.push(LeftOut { path, reason });
        }
    }

    /// Adds what the other end of the copy left out.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.skipped = self.skipped.saturating_add(other.skipped);
        self.named.extend(other.named.into_iter().take(MAX_NAMED));
        self
    }
}

/// The state of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub entries: u64,
    pub bytes: u64,
}

impl fmt::Display for Progress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} entries, {} MiB", self.entries, self.bytes >> 20)
    }
}

/// Time between two reports of progress.
const INTERVAL: Duration = Duration::from_millis(100);

/// Returns a function that passes some of what it is called with on: enough for a person.
pub fn for_people(mut show: impl FnMut(Progress) + Send + 'static) -> OnProgress {
    let mut last = Instant::now();
    Box::new(move |progress| {
        if last.elapsed() >= INTERVAL {
            last = Instant::now();
            show(progress);
        }
    })
}

/// A function that is called after each entry and each piece of a content.
pub type OnProgress = Box<dyn FnMut(Progress) + Send>;

/// An error of copying a tree.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("cannot read the tree that the sandbox sent: {0}")]
    Archive(#[source] TarError),
    #[error("the sandbox sent an entry whose path is absolute, leads upwards, or is too long: {0}")]
    Name(String),
    #[error("the sandbox sent two entries for {0}, or this file system does not tell their names apart")]
    Twice(String),
    #[error("the sandbox sent {path} as another name of {first}, which it did not send before")]
    HardLink { path: String, first: String },
    #[error("the directory has more than {MAX_ENTRIES} entries")]
    TooMany,
    #[error(
        "the directory has more than {0} bytes; the files that were complete before remain, and the copy lacks the others"
    )]
    TooLarge(u64),
    #[error("{0} is a directory in the sandbox, and something else here")]
    NoDirectory(String),
    #[error("{0} is a directory here, and something else in the sandbox")]
    Directory(String),
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    /// The reader of the archive is gone.
    #[error("cannot write output: {0}")]
    Output(#[source] io::Error),
}

impl TreeError {
    /// Returns what the caller can do.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Archive(_) => "nothing that was not complete is left; copy it again",
            Self::Name(_) | Self::Twice(_) | Self::HardLink { .. } => {
                "what came before is there; look at the sandbox's files with `ringfence sandbox files`"
            }
            Self::TooMany => "copy its directories one by one, or put it into an archive inside",
            Self::TooLarge(_) => "pass a larger `--max-size`; a file with holes counts with its whole length",
            Self::NoDirectory(_) | Self::Directory(_) => "remove it, or copy to another directory",
            Self::Write { .. } | Self::Output(_) => {
                "copy to a directory that you may write, with enough room"
            }
            Self::Read { .. } => "name a directory that you may read",
        }
    }
}

/// Returns the path of a member in plain names.
fn relative(bytes: &[u8]) -> Result<PathBuf, TreeError> {
    let path = Path::new(OsStr::from_bytes(bytes));
    let refused = || TreeError::Name(path.to_string_lossy().into_owned());
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(refused()),
        }
    }
    match bytes.len() <= MAX_PATH && plain.components().count() <= MAX_DEPTH {
        true => Ok(plain),
        false => Err(refused()),
    }
}
