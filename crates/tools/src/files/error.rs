//! Errors of file tools.

use std::io;
use std::path::Path;

use ringfence_exec::trust::Conflict;
use ringfence_policy::Remedy;
use rustix::io::Errno;

/// A file tool failed. No message contains a path other than the given one, except [`Error::Relied`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{path}` {why}")]
    InvalidPath {
        path: String,
        /// Defect of the path.
        why: &'static str,
    },
    /// The path leads out of the workspace.
    #[error("`{path}` leads out of the workspace")]
    Outside {
        /// Path as given.
        path: String,
    },
    /// The path holds configuration that a program on the host would execute.
    #[error("`{path}` is protected: it {why}")]
    Protected {
        path: String,
        /// Reason for the protection.
        why: &'static str,
    },
    /// Nothing in this workspace may be changed.
    #[error("`{path}` is protected: {conflict}")]
    Relied {
        path: String,
        /// The trusted path in the way.
        conflict: Conflict,
    },
    /// The path does not exist.
    #[error("`{path}` does not exist")]
    NotFound {
        /// Path as given.
        path: String,
    },
    /// The entry has the wrong kind for the tool.
    #[error("`{path}` is {is}, not {wanted}")]
    WrongKind {
        path: String,
        is: &'static str,
        wanted: &'static str,
    },
    /// A size limit is exceeded.
    #[error("`{path}`: {what} more than {limit} bytes")]
    TooLarge {
        path: String,
        what: &'static str,
        limit: u64,
    },
    /// The limit of entries is exceeded.
    #[error("`{path}`: its directory holds {limit} entries already")]
    Limit {
        path: String,
        /// Maximum number of entries.
        limit: usize,
    },
    /// The tree kept changing during every attempt to resolve the path.
    #[error("`{path}`: the directories on the way to it keep changing")]
    Changing {
        /// Path as given.
        path: String,
    },
    /// The kernel does not support `openat2`, so a path cannot be contained in a directory.
    #[error("openat2 cannot be used here, and without it file tools could be led out of the workspace")]
    NoOpenat2,
    /// A system call failed.
    #[error("could not {doing} `{path}`: {source}")]
    Io {
        path: String,
        /// Operation that failed.
        doing: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Expected kind of a directory to delete.
const EMPTY: &str = "an empty one";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    InvalidPath,
    /// The path leads out of the workspace.
    Outside,
    Protected,
    /// The path does not exist.
    NotFound,
    /// The entry has the wrong kind for the tool.
    WrongKind,
    /// A size limit is exceeded.
    TooLarge,
    /// The limit of entries is exceeded.
    Limit,
    /// A system call failed.
    Io,
}

impl Error {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::InvalidPath { .. } => Kind::InvalidPath,
            Self::Outside { .. } => Kind::Outside,
            Self::Protected { .. } | Self::Relied { .. } => Kind::Protected,
            Self::NotFound { .. } => Kind::NotFound,
            Self::WrongKind { .. } => Kind::WrongKind,
            Self::TooLarge { .. } => Kind::TooLarge,
            Self::Limit { .. } => Kind::Limit,
            Self::Changing { .. } | Self::NoOpenat2 | Self::Io { .. } => Kind::Io,
        }
    }

    pub fn hint(&self) -> Remedy {
        match self {
            Self::InvalidPath { .. } => "write a path relative to the workspace, such as `notes/a.txt`".into(),
            Self::Outside { .. } => {
                "write a path relative to the workspace, or one below `/workspace`; links must stay inside, too".into()
            }
            Self::Relied { conflict, .. } => conflict.hint(),
            Self::Protected { .. } => "leave it as it is, or ask the user to change it".into(),
            Self::NotFound { .. } => "list the directory to see what is there; `.` is the workspace itself".into(),
            Self::WrongKind { is, wanted, .. } => match (*is, *wanted) {
                (_, EMPTY) => "delete what it holds first; code can delete much at once",
                ("a directory", _) => "list it with `file_list`, or name a file in it",
                (_, "a directory") => "name a directory; a file is read with `file_read`",
                ("below a file", _) => "use another name, or delete the file on the way to it first",
                _ => "only regular files are read and written; look at it with `file_list`",
            }
            .into(),
            Self::TooLarge { .. } => "work on it with code, or in smaller parts".into(),
            Self::Limit { .. } => "use another directory, or delete what is not needed".into(),
            Self::Changing { .. } => "try again when whatever changes them has ended".into(),
            Self::NoOpenat2 => "use Linux 5.6 or later, and let a container's filter allow openat2".into(),
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => "give the user that Ringfence runs as the right to it",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on the disk",
                io::ErrorKind::WouldBlock => "try again when the program that holds it has ended",
                _ => "look at the file and its disk on the host",
            }
            .into(),
        }
    }

    /// Converts the errno of an operation on a tool's path.
    pub(super) fn of(path: &str, doing: &'static str, errno: Errno) -> Self {
        let path = shown(path);
        match errno {
            Errno::NOENT => Self::NotFound { path },
            Errno::LOOP => Self::Changing { path },
            Errno::XDEV => Self::Outside { path },
            Errno::NOSYS => Self::NoOpenat2,
            Errno::NAMETOOLONG => Self::InvalidPath {
                path,
                why: "is too long",
            },
            Errno::NOTDIR => Self::WrongKind {
                path,
                is: "below a file",
                wanted: "in a directory",
            },
            Errno::ISDIR => Self::directory(&path, "a file"),
            Errno::NOTEMPTY | Errno::EXIST => Self::directory(&path, EMPTY),
            errno => Self::Io {
                path,
                doing,
                source: errno.into(),
            },
        }
    }

    /// Converts the errno of an operation on the workspace itself.
    pub(super) fn root(path: &Path, doing: &'static str, errno: Errno) -> Self {
        let text = path.to_string_lossy();
        match errno {
            Errno::LOOP | Errno::NOTDIR => Self::WrongKind {
                path: shown(&text),
                is: "a link or a file",
                wanted: "a directory",
            },
            Errno::XDEV => Self::Outside { path: shown(&text) },
            // Not the directory's permissions, which give EACCES, but a seccomp filter.
            Errno::PERM => Self::NoOpenat2,
            errno => Self::of(&text, doing, errno),
        }
    }

    pub(super) fn directory(path: &str, wanted: &'static str) -> Self {
        Self::WrongKind {
            path: shown(path),
            is: "a directory",
            wanted,
        }
    }
}

/// Escapes a path for a message: one line of bounded length.
pub(super) fn shown(path: &str) -> String {
    const LONGEST: usize = 200;
    let mut text: String = path.escape_debug().take(LONGEST).collect();
    if path.escape_debug().nth(LONGEST).is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_whatever_the_path() {
        let long = "x\n\u{202e}\u{1b}[31m".repeat(100);
        let error = Error::of(&long, "read", Errno::NOENT);
        let message = error.to_string();
        assert!(
            message.chars().all(|c| !c.is_control() && c != '\u{202e}'),
            "{message}"
        );
        assert!(message.chars().count() < 260, "{message}");
        assert_eq!(error.kind(), Kind::NotFound);
    }

    #[test]
    fn an_old_kernel_is_refused() {
        let error = Error::of("a", "open", Errno::NOSYS);
        assert_eq!(error.kind(), Kind::Io);
        assert!(error.hint().model().contains("5.6"));
    }
}
