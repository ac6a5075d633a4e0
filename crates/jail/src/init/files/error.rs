//! The error of a file operation, as it crosses to the server.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The error of a file operation: one JSON object on standard error, with exit status 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}{}{path}", if path.is_empty() { "" } else { ": " })]
pub struct FileError {
    pub kind: FileErrorKind,
    /// Error number of the failed system call (errno(3)); 0 if none failed.
    pub errno: i32,
    /// Path at which it failed, which may lie below the operation's own, or address; empty if it was neither.
    pub path: String,
    /// Sentence in lower case, without the path.
    pub message: String,
}

/// Class of an error, by which callers decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileErrorKind {
    NotFound,
    Denied,
    Exists,
    NotADirectory,
    IsADirectory,
    NotEmpty,
    /// Neither a regular file nor a directory, where one of them is necessary.
    NotAFile,
    /// The file system, a quota or the limit on a file's size.
    NoSpace,
    ReadOnly,
    /// A name, a path, or a tree's depth or number of entries.
    TooLong,
    /// An argument, or the content of standard input.
    Invalid,
    /// In use: a mount point, a running program, a leased file.
    Busy,
    Other,
}

impl FileError {
    /// Returns the error of a failed system call.
    pub(super) fn of_call(path: &Path, error: &io::Error) -> Self {
        Self {
            kind: kind(error),
            errno: error.raw_os_error().unwrap_or_default(),
            path: path.to_string_lossy().into_owned(),
            message: message(error),
        }
    }

    /// Returns an error that did not come from a system call.
    pub(super) fn new(kind: FileErrorKind, path: &Path, message: impl Into<String>) -> Self {
        Self {
            kind,
            errno: 0,
            path: path.to_string_lossy().into_owned(),
            message: message.into(),
        }
    }

    /// Returns the error of invalid arguments.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(FileErrorKind::Invalid, Path::new(""), message)
    }
}

/// Attaches a path to an error.
pub(super) trait At<T> {
    /// Attaches the path.
    fn at(self, path: &Path) -> Result<T, FileError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, FileError> {
        self.map_err(|error| FileError::of_call(path, &error))
    }
}

fn kind(error: &io::Error) -> FileErrorKind {
    let Some(number) = error.raw_os_error() else {
        return match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                FileErrorKind::Invalid
            }
            io::ErrorKind::NotFound => FileErrorKind::NotFound,
            io::ErrorKind::PermissionDenied => FileErrorKind::Denied,
            _ => FileErrorKind::Other,
        };
    };
    match number {
        libc::ENOENT => FileErrorKind::NotFound,
        libc::EACCES | libc::EPERM => FileErrorKind::Denied,
        libc::EEXIST => FileErrorKind::Exists,
        libc::ENOTDIR => FileErrorKind::NotADirectory,
        libc::EISDIR => FileErrorKind::IsADirectory,
        libc::ENOTEMPTY => FileErrorKind::NotEmpty,
        // Opening a socket, or a device without a driver.
        libc::ENXIO | libc::ENODEV => FileErrorKind::NotAFile,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => FileErrorKind::NoSpace,
        libc::EROFS => FileErrorKind::ReadOnly,
        libc::ENAMETOOLONG | libc::E2BIG => FileErrorKind::TooLong,
        libc::EINVAL | libc::ELOOP => FileErrorKind::Invalid,
        libc::EBUSY | libc::ETXTBSY | libc::EAGAIN => FileErrorKind::Busy,
        _ => FileErrorKind::Other,
    }
}

/// Returns the words of an error, without the number that std appends.
fn message(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    words.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_object_that_names_its_class() {
        let call = io::Error::from_raw_os_error(libc::EDQUOT);
        let error = FileError::of_call(Path::new("/a\nb"), &call);
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"no_space","errno":122,"path":"/a\nb","message":"disk quota exceeded"}"#
        );
        assert_eq!(serde_json::from_str::<FileError>(&text).unwrap(), error);
        assert_eq!(error.to_string(), "disk quota exceeded: /a\nb");
        assert_eq!(FileError::invalid("no path").to_string(), "no path");
    }

    #[test]
    fn classes_are_those_of_the_protocol() {
        let check = |number: i32, expected: &str| {
            let found = kind(&io::Error::from_raw_os_error(number));
            assert_eq!(serde_json::to_value(found).unwrap(), expected, "{number}");
        };
        check(libc::ENOENT, "not_found");
        check(libc::EPERM, "denied");
        check(libc::EEXIST, "exists");
        check(libc::ENOTDIR, "not_a_directory");
        check(libc::EISDIR, "is_a_directory");
        check(libc::ENOTEMPTY, "not_empty");
        check(libc::ENXIO, "not_a_file");
        check(libc::EROFS, "read_only");
        check(libc::ENAMETOOLONG, "too_long");
        check(libc::ELOOP, "invalid");
        check(libc::EAGAIN, "busy");
        check(libc::EIO, "other");
    }
}
