//! Why a question could not be asked, or an answer not be taken.

use std::io;
use std::path::PathBuf;

use super::State;

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store's file.
    #[error("the store of approvals failed")]
    Store(#[from] rusqlite::Error),
    /// A file beside it.
    #[error("cannot use {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file of lasting approvals says what makes no sense, or others may write to it.
    #[error("{path} cannot be used: {what}")]
    Approved {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A row that this version did not write.
    #[error("the store of approvals holds something that this version does not understand: {0}")]
    Foreign(String),
    /// The kernel gave no random bytes.
    #[error("no random bytes for an id")]
    Random(#[source] io::Error),
    /// The text is empty, or more than a person can be expected to read.
    #[error("a text of {0} characters cannot be asked about; 1 to 10000 can")]
    Text(usize),
    /// Too many questions wait.
    #[error("{0} questions wait for an answer already, and no more can wait at once")]
    TooMany(usize),
    /// The answer cannot be taken.
    #[error(transparent)]
    Unanswerable(#[from] Unanswerable),
    /// The audit log does not take it, and no approval counts that is not recorded.
    #[error("the approval was not taken, for the audit log cannot record it")]
    Unrecorded(#[source] crate::audit::Error),
    /// The work broke off.
    #[error("the work on the store of approvals broke off")]
    Broken,
}

/// Why an answer is not taken. It changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswerable {
    /// There is no such request, or none in that chat.
    #[error("no request has this id")]
    Unknown,
    /// It is no longer pending.
    #[error("the request is no longer pending: it is {}", .0.as_str())]
    Late(State),
    /// The text that was answered is not the text that was asked.
    #[error("the answer is about another text than the request's")]
    OtherText,
    /// Such an answer may not be remembered so.
    #[error("an answer to this request cannot be remembered so")]
    NotRemembered,
}

impl Unanswerable {
    /// The name in the protocol.
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
    /// Whether the store could not be used because another uses it.
    pub(super) fn is_busy(&self) -> bool {
        let Self::Store(error) = self else { return false };
        matches!(
            error.sqlite_error_code(),
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked)
        )
    }

    /// What the reader can do about it.
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
                "`ringfence approvals ls` lists the requests that wait"
            }
            Self::Unanswerable(Unanswerable::OtherText) => {
                "look at the request again, and answer what it says"
            }
            Self::Unanswerable(Unanswerable::NotRemembered) => "approve it once, or for the session",
        }
    }
}
