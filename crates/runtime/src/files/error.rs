//! What can go wrong with a file of the workspace.

use std::io;
use std::path::Path;

use rustix::io::Errno;

/// Why a file tool did not do what it was asked to. No message holds a path other than the one that was given.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No path that could name anything.
    #[error("`{path}` {why}")]
    InvalidPath {
        /// The path.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A path that leads out of the workspace.
    #[error("`{path}` leads out of the workspace")]
    Outside {
        /// The path.
        path: String,
    },
    /// Configuration that a program on the host would execute.
    #[error("`{path}` is protected: it {why}")]
    Protected {
        /// The path.
        path: String,
        /// What protects it.
        why: &'static str,
    },
    /// Nothing there.
    #[error("`{path}` does not exist")]
    NotFound {
        /// The path.
        path: String,
    },
    /// Something else than what the tool is for.
    #[error("`{path}` is {is}, not {wanted}")]
    WrongKind {
        /// The path.
        path: String,
        /// What it is.
        is: &'static str,
        /// What was expected.
        wanted: &'static str,
    },
    /// More bytes than are allowed.
    #[error("`{path}`: {what} more than {limit} bytes")]
    TooLarge {
        /// The path.
        path: String,
        /// What there would be.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// More entries than are allowed.
    #[error("`{path}`: its directory holds {limit} entries already")]
    Limit {
        /// The path.
        path: String,
        /// How many there may be.
        limit: usize,
    },
    /// The tree was rebuilt under our feet, again and again.
    #[error("`{path}`: the directories on the way to it keep changing")]
    Changing {
        /// The path.
        path: String,
    },
    /// The kernel cannot keep a path inside a directory.
    #[error("openat2 cannot be used here, and without it file tools could be led out of the workspace")]
    NoOpenat2,
    /// The system said no.
    #[error("could not {doing} `{path}`: {source}")]
    Io {
        /// The path.
        path: String,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What a directory must be to be deleted.
const EMPTY: &str = "an empty one";

/// What sort of error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No path that could name anything.
    InvalidPath,
    /// A path that leads out of the workspace.
    Outside,
    /// Something that must not be changed.
    Protected,
    /// Nothing there.
    NotFound,
    /// Something else than what the tool is for.
    WrongKind,
    /// More bytes than are allowed.
    TooLarge,
    /// More entries than are allowed.
    Limit,
    /// The system said no.
    Io,
}

impl Error {
    /// What sort of error it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::InvalidPath { .. } => Kind::InvalidPath,
            Self::Outside { .. } => Kind::Outside,
            Self::Protected { .. } => Kind::Protected,
            Self::NotFound { .. } => Kind::NotFound,
            Self::WrongKind { .. } => Kind::WrongKind,
            Self::TooLarge { .. } => Kind::TooLarge,
            Self::Limit { .. } => Kind::Limit,
            Self::Changing { .. } | Self::NoOpenat2 | Self::Io { .. } => Kind::Io,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::InvalidPath { .. } => "write a path relative to the workspace, such as `notes/a.txt`",
            Self::Outside { .. } => {
                "write a path relative to the workspace, or one below `/workspace`; links must stay inside, too"
            }
            Self::Protected { .. } => "leave it as it is, or ask the user to change it",
            Self::NotFound { .. } => "list the directory to see what is there; `.` is the workspace itself",
            Self::WrongKind { is, wanted, .. } => match (*is, *wanted) {
                (_, EMPTY) => "delete what it holds first; code can delete much at once",
                ("a directory", _) => "list it with `file_list`, or name a file in it",
                (_, "a directory") => "name a directory; a file is read with `file_read`",
                ("below a file", _) => "use another name, or delete the file on the way to it first",
                _ => "only regular files are read and written; look at it with `file_list`",
            },
            Self::TooLarge { .. } => "work on it with code, or in smaller parts",
            Self::Limit { .. } => "use another directory, or delete what is not needed",
            Self::Changing { .. } => "try again when whatever changes them has ended",
            Self::NoOpenat2 => "use Linux 5.6 or later, and let a container's filter allow openat2",
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => "give the user that Ringfence runs as the right to it",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on the disk",
                io::ErrorKind::WouldBlock => "try again when the program that holds it has ended",
                _ => "look at the file and its disk on the host",
            },
        }
    }

    /// What an error of the system means for a path of a tool.
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

    /// What an error of the system means for the workspace itself.
    pub(super) fn root(path: &Path, doing: &'static str, errno: Errno) -> Self {
        let text = path.to_string_lossy();
        match errno {
            Errno::LOOP | Errno::NOTDIR => Self::WrongKind {
                path: shown(&text),
                is: "a link or a file",
                wanted: "a directory",
            },
            Errno::XDEV => Self::Outside { path: shown(&text) },
            // Not the directory's own rights, which are EACCES, but a filter of system calls.
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

/// A path as a message shows it: in one line, and not too long a one.
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
        assert!(error.hint().contains("5.6"));
    }
}
