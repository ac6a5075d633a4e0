//! Errors of the audit log.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An error of writing, reading or verifying the audit log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file system operation failed.
    #[error("cannot {step} `{path}`")]
    File {
        /// Failed operation.
        step: &'static str,
        /// File or directory.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The directory belongs to another user, or others may enter it.
    #[error("cannot keep the audit log in `{path}`: {why}")]
    Directory {
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// Another process holds the lock for too long.
    #[error("another process holds the audit log `{0}`")]
    Busy(PathBuf),
    /// The end of the file is not one that a crash could leave.
    #[error("the end of the audit log `{0}` is damaged")]
    Damaged(PathBuf),
    /// The log is full, and nothing is old enough to be removed.
    #[error("the log of host commands in `{path}` is full, and none of it is older than {days} days", days = keep.as_secs() / 86_400)]
    Crowded {
        /// Directory of the log.
        path: PathBuf,
        /// Minimum age for removal.
        keep: Duration,
    },
    /// The record cannot be serialized.
    #[error("cannot encode the record of the audit log")]
    Encode(#[source] serde_json::Error),
    /// The record is longer than a line may be.
    #[error("the record of the audit log would be longer than {max} bytes", max = super::MAX_LINE)]
    TooLong,
    /// The command is too long to be recorded whole, as host commands must be.
    #[error("expected a command of at most {max} bytes, as the audit log writes it, found a longer one", max = super::arguments::MAX_COMMAND)]
    Cut,
    /// The noted record is not in the log.
    #[error("the audit log does not contain the expected record {sequence}: {why}")]
    Gone {
        /// Sequence number of the record.
        sequence: u64,
        /// The reason.
        why: &'static str,
    },
    /// The log's content differs from the recorded one.
    #[error("the audit log is broken: {0}")]
    Broken(ChainBreak),
}

/// The first break of the chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {what}", file = file.display())]
pub struct ChainBreak {
    pub file: PathBuf,
    /// Line number, from 1.
    pub line: u64,
    /// Expected sequence number, if known.
    pub sequence: Option<u64>,
    /// Description of the break.
    pub what: String,
}

impl Error {
    /// Returns advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "run this as the user whose log it is, or set `audit.dir` to a directory of this user"
            }
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

/// Converts an I/O error of a step.
pub(super) fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::File {
        step,
        path: path.to_owned(),
        source,
    }
}
