//! Errors of the Code API.

use std::io;

use ringfence_sandbox::Error as SandboxError;

use ringfence_multipart::FormError;

/// The reason why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no file `{0}`")]
    NoFile(String),
    #[error("there is no session `{0}`")]
    NoSession(String),
    /// No program waits for these results.
    #[error("no program waits for the results of this continuation token")]
    NoContinuation,
    /// Another request with the same token is under way.
    #[error("another request with this continuation token is under way")]
    Continued,
    /// A result is for a call that the program has not made.
    #[error("the program waits for no result of a call `{0}`")]
    NoCall(String),
    #[error("there is no language `{0}` here")]
    NoLanguage(String),
    /// The Node.js of the machine cannot run TypeScript.
    #[error("there is no language `ts` here: the machine's Node.js is older than 22.6")]
    NoTypescript,
    /// A file's name leads out of its directory, is reserved, or too long.
    #[error("expected a relative path of at most 255 bytes and 10 levels, without `..`, got `{0}`")]
    Name(String),
    /// A request lacks something, or has too much of it.
    #[error("{0}")]
    Invalid(String),
    /// The sessions of all owners take what there is for them.
    #[error("the files of other sessions use the space for files")]
    Full,
    /// The server's disk is full.
    #[error("the server's disk has no room for the file")]
    NoSpace,
    /// Files cannot be stored or read.
    #[error("cannot use the server's file of a session: {0}")]
    Disk(io::Error),
    #[error(transparent)]
    Form(#[from] FormError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Disk(error),
        }
    }
}

impl Error {
    /// Returns advice for the reader of the error.
    pub fn hint(&self) -> String {
        let hint = match self {
            Self::NoFile(_) | Self::NoSession(_) => {
                "upload it again: sessions end after a day, with the server, and the oldest when an owner has too many"
            }
            Self::NoContinuation | Self::Continued => "begin the program anew",
            Self::NoCall(_) => "send the results of the calls in `tool_calls`, by their `id`",
            Self::NoLanguage(_) => "use py, js, ts or bash",
            Self::NoTypescript => "use js",
            Self::Name(_) => "give the file another name",
            Self::Invalid(_) => "GET /openapi.json describes the request",
            Self::Full => "try again later",
            Self::NoSpace => "make room on the disk of the state directory",
            Self::Disk(_) => "check the disk of the state directory",
            Self::Form(_) => "send `multipart/form-data` (RFC 7578)",
            Self::Sandbox(error) => return error.hint(),
        };
        hint.to_owned()
    }
}
