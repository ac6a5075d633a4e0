//! Why the audit log cannot be written, read or believed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the audit log cannot be written, read or believed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step on the file system failed.
    #[error("cannot {step} `{path}`")]
    File {
        /// What was to be done.
        step: &'static str,
        /// With which file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The directory is open to others, or none.
    #[error("cannot keep the audit log in `{path}`: {why}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another process holds the log and does not let go.
    #[error("another process holds the audit log `{0}`")]
    Busy(PathBuf),
    /// The file does not end as any crash would leave it.
    #[error("the end of the audit log `{0}` is damaged")]
    Damaged(PathBuf),
    /// There is no room left, and nothing is old enough to be removed.
    #[error("the log of commands on the host in `{path}` has no room, and holds nothing older than {days} days", days = keep.as_secs() / 86_400)]
    Crowded {
        /// Its directory.
        path: PathBuf,
        /// For how long records are kept.
        keep: Duration,
    },
    /// The record could not be put into JSON.
    #[error("cannot encode the record of the audit log")]
    Encode(#[source] serde_json::Error),
    /// The record is longer than any may be.
    #[error("the record of the audit log would be longer than {max} bytes", max = super::line::MAX_LINE)]
    TooLong,
    /// Something that runs on this machine itself is recorded whole.
    #[error("expected a command of at most {max} bytes, as the audit log writes it, found a longer one", max = super::arguments::MAX_COMMAND)]
    Cut,
    /// The record that was noted is not in the log.
    #[error("record {sequence}, which was noted, is not in the audit log: {why}")]
    Gone {
        /// Its sequence number.
        sequence: u64,
        /// What became of it.
        why: &'static str,
    },
    /// What is written is not what was recorded.
    #[error("the audit log is broken: {0}")]
    Broken(Broken),
}

/// Where the chain breaks first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {what}", file = file.display())]
pub struct Broken {
    /// The file.
    pub file: PathBuf,
    /// The line in it, from 1.
    pub line: u64,
    /// The sequence number of the record that should stand there, where it is known.
    pub sequence: Option<u64>,
    /// What is wrong.
    pub what: String,
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => "make room on the disk and let this user write there, or set `audit.dir`",
            Self::Directory { .. } => {
                "give it to this user with mode 0700, or set `audit.dir` to another one"
            }
            Self::Busy(_) => "end the process that was stopped while it wrote, then try again",
            Self::Damaged(_) => {
                "look at it with `ringfence audit verify`, then move the directory away to begin a log"
            }
            Self::Cut => "put the long text into a file, and name that",
            Self::Crowded { .. } => {
                "look at what ran (`ringfence audit tail --host`), then move the directory away, or raise `audit.max_files`"
            }
            Self::Encode(_) | Self::TooLong => "send shorter arguments",
            Self::Gone { .. } => "compare with a backup; note the head again after each check",
            Self::Broken(_) => {
                "somebody changed it, or the disk is failing: keep a copy, compare with a backup, then move it away"
            }
        }
    }
}

/// What became of a step on the file system.
pub(super) fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File {
        step,
        path: path.to_owned(),
        source,
    }
}
