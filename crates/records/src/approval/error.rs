//! Errors of asking and answering.

use std::io;
use std::path::PathBuf;

use super::State;

/// An error of the approval store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error("the approval store failed")]
    Store(#[from] rusqlite::Error),
    /// A file beside the database cannot be used.
    #[error("cannot open or lock {path}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file of persistent approvals is invalid, or another user may write to it.
    #[error("{path} cannot be used: {what}")]
    Approved {
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// A row or schema that this version did not write.
    #[error("the approval store has a row or schema that this version does not understand: {0}")]
    Foreign(String),
    /// The kernel returned no random bytes.
    #[error("no random bytes for an id")]
    Random(#[source] io::Error),
    /// The text is empty, or longer than a person can be expected to read.
    #[error("approval text must be 1 to 10000 characters long, got {0}")]
    Text(usize),
    /// Too many requests are pending.
    #[error("the limit of {0} pending questions is reached")]
    TooMany(usize),
    /// The answer was rejected.
    #[error(transparent)]
    Unanswerable(#[from] Unanswerable),
    /// The audit log rejects the record, and an unrecorded approval does not count.
    #[error("the approval was not used: the audit log cannot record it")]
    Unrecorded(#[source] crate::audit::Error),
    /// The blocking task panicked.
    #[error("the task of the approval store panicked")]
    Broken,
}

/// An error for a rejected answer, which changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswerable {
    /// No such request exists, or none in that chat.
    #[error("there is no approval request with this id")]
    Unknown,
    /// The request is no longer pending.
    #[error("the request is no longer pending: {}", .0.description())]
    Late(State),
    /// The digest in the answer is not that of the request's text.
    #[error("the answer is for a different text than the request's")]
    OtherText,
    /// The request does not allow to remember the answer this way.
    #[error("an answer to this request cannot be remembered for that long")]
    NotRemembered,
}

impl Unanswerable {
    /// Returns the name in the protocol.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Late(_) => "late",
            Self::OtherText => "other_text",
            Self::NotRemembered => "not_remembered",
        }
    }
}

impl Error {
    /// Returns `true` if another connection holds the database's lock.
    pub(super) fn is_busy(&self) -> bool {
        let Self::Store(error) = self else { return false };
        matches!(
            error.sqlite_error_code(),
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
        )
    }

    /// Returns advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Store(_) | Self::File { .. } | Self::Foreign(_) => {
                "check the state directory and its room; `approvals.db` there may be removed while nothing runs"
            }
            Self::Approved { .. } => "correct the file, or remove it to revoke every lasting approval",
            Self::Random(_) | Self::Broken => "report this as a defect",
            Self::Unrecorded(error) => error.hint(),
            Self::Text(_) => "ask about less at once",
            Self::TooMany(_) => "answer them first: `ringfence approvals ls` lists them",
            Self::Unanswerable(Unanswerable::Unknown | Unanswerable::Late(_)) => {
                "`ringfence approvals ls` lists the pending requests"
            }
            Self::Unanswerable(Unanswerable::OtherText) => {
                "look at the request again, and answer what it says"
            }
            Self::Unanswerable(Unanswerable::NotRemembered) => "approve it once, or for the session",
        }
    }
}
