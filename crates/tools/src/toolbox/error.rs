//! Errors of tool calls.

use ringfence_exec::backend::{self, Reason};
use ringfence_network::fetch::{FetchError, FetchErrorKind, RequestError};
use ringfence_policy::{Remedy, remedy};
use serde_json::{Value, json};

use crate::files::{self, Kind};
use crate::workspaces;
use ringfence_records::approval::{self, Decision};

/// A tool call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    pub kind: ErrorKind,
    pub message: String,
    /// Advice, in words for a model.
    pub hint: String,
}

/// Kinds of errors, the same on every interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The arguments violate the tool's schema, or are invalid.
    InvalidArguments,
    /// The caller is not allowed to do that.
    PermissionDenied,
    /// A check rejected the code before it ran.
    Blocked,
    /// The deadline passed.
    Timeout,
    /// A person rejected it.
    Rejected,
    /// The approval request timed out.
    ApprovalTimeout,
    /// The tool, file, host or program does not exist.
    NotFound,
    RuntimeUnavailable,
    /// The runtime failed before anything began; the call may be retried.
    RuntimeLost,
    /// A size or number limit is exceeded.
    LimitExceeded,
    /// The capacity is in use by others; the call may be retried.
    Busy,
    /// The caller cancelled the invocation.
    Cancelled,
    /// An internal failure.
    Internal,
}

impl ErrorKind {
    /// Returns `true` if the error is a refusal rather than a failure.
    pub const fn is_refusal(self) -> bool {
        match self {
            Self::InvalidArguments
            | Self::PermissionDenied
            | Self::Blocked
            | Self::Rejected
            | Self::ApprovalTimeout => true,
            Self::Timeout
            | Self::NotFound
            | Self::RuntimeUnavailable
            | Self::RuntimeLost
            | Self::LimitExceeded
            | Self::Busy
            | Self::Cancelled
            | Self::Internal => false,
        }
    }

    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArguments => "invalid_arguments",
            Self::PermissionDenied => "permission_denied",
            Self::Blocked => "blocked",
            Self::Timeout => "timeout",
            Self::Rejected => "rejected",
            Self::ApprovalTimeout => "approval_timeout",
            Self::NotFound => "not_found",
            Self::RuntimeUnavailable | Self::RuntimeLost => "runtime_unavailable",
            Self::LimitExceeded => "limit_exceeded",
            Self::Busy => "busy",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }
}

impl ToolError {
    pub fn new(kind: ErrorKind, message: impl Into<String>, hint: impl Into<Remedy>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: hint.into().model().into_owned(),
        }
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(
            ErrorKind::Cancelled,
            "the invocation was cancelled",
            "invoke the tool again",
        )
    }

    /// Returns the approver, or the error for a model that distinguishes rejection from timeout.
    ///
    /// # Errors
    /// If it was not approved.
    pub fn unless_approved(decision: Decision) -> Result<String, Self> {
        match decision {
            Decision::Approved { by } => Ok(by),
            Decision::Rejected { .. } => Err(Self::new(
                ErrorKind::Rejected,
                "rejected by the user",
                "do not try it again in other words; ask the user what to do instead",
            )),
            Decision::Expired | Decision::Dismissed { .. } => Err(Self::new(
                ErrorKind::ApprovalTimeout,
                "approval timed out: nobody answered, and nothing was done",
                "go on without it, or ask again when somebody is there",
            )),
        }
    }

    /// Renders the error as every interface prints it: `{"type", "message", "hint"}`.
    pub fn to_json(&self) -> Value {
        json!({"type": self.kind.as_str(), "message": self.message, "hint": self.hint})
    }
}

impl From<approval::Error> for ToolError {
    fn from(error: approval::Error) -> Self {
        use approval::Error as E;
        let kind = match error {
            E::Text(_) => ErrorKind::LimitExceeded,
            E::TooMany(_) => ErrorKind::Busy,
            E::Unanswerable(_) => ErrorKind::NotFound,
            E::Store(_)
            | E::File { .. }
            | E::Approved { .. }
            | E::Foreign(_)
            | E::Random(_)
            | E::Unrecorded(_)
            | E::Broken => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string(), error.hint())
    }
}

impl From<files::Error> for ToolError {
    fn from(error: files::Error) -> Self {
        let kind = match error.kind() {
            Kind::InvalidPath | Kind::WrongKind => ErrorKind::InvalidArguments,
            Kind::Outside | Kind::Protected => ErrorKind::PermissionDenied,
            Kind::NotFound => ErrorKind::NotFound,
            Kind::TooLarge | Kind::Limit => ErrorKind::LimitExceeded,
            Kind::Io => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string(), error.hint())
    }
}

impl From<RequestError> for ToolError {
    fn from(error: RequestError) -> Self {
        Self::new(ErrorKind::InvalidArguments, error.to_string(), error.hint())
    }
}

impl From<FetchError> for ToolError {
    fn from(error: FetchError) -> Self {
        use FetchErrorKind as F;
        let kind = match error.kind() {
            F::InvalidUrl => ErrorKind::InvalidArguments,
            F::Denied => ErrorKind::PermissionDenied,
            F::NotFound => ErrorKind::NotFound,
            F::Unreachable | F::Tls | F::Protocol => ErrorKind::RuntimeUnavailable,
            F::Timeout => ErrorKind::Timeout,
            F::TooManyRedirects => ErrorKind::LimitExceeded,
        };
        Self::new(kind, error.to_string(), error.hint())
    }
}

impl From<workspaces::Error> for ToolError {
    fn from(error: workspaces::Error) -> Self {
        match error {
            workspaces::Error::Which(error) => Self::new(
                ErrorKind::PermissionDenied,
                error.to_string(),
                remedy::Tool::CorrectOwner,
            ),
            workspaces::Error::Open(error) => Self::from(error),
        }
    }
}

impl From<Reason> for ErrorKind {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Unavailable => Self::RuntimeUnavailable,
            Reason::Lost => Self::RuntimeLost,
            Reason::Busy => Self::LimitExceeded,
            Reason::NotFound => Self::NotFound,
            Reason::Invalid => Self::InvalidArguments,
            Reason::Failed => Self::Internal,
        }
    }
}

impl From<backend::Error> for ToolError {
    fn from(error: backend::Error) -> Self {
        let kind = ErrorKind::from(error.reason);
        // Some messages already begin with the kind.
        let said = error.message.strip_prefix(kind.as_str());
        let message = said
            .and_then(|rest| rest.strip_prefix(": "))
            .unwrap_or(&error.message);
        Self::new(kind, message, error.hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_told_of_three_outcomes() {
        let by = || "ann".to_owned();
        let told = |decision| ToolError::unless_approved(decision).map_err(|error| error.kind.as_str());
        assert_eq!(told(Decision::Approved { by: by() }), Ok(by()));
        assert_eq!(told(Decision::Rejected { by: by() }), Err("rejected"));
        assert_eq!(told(Decision::Expired), Err("approval_timeout"));
    }

    #[test]
    fn too_many_questions_are_busy() {
        let error = ToolError::from(ringfence_records::approval::Error::TooMany(1));
        assert_eq!(error.kind, ErrorKind::Busy);
    }
}
