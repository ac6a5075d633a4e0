//! Errors of the API: every status and type that it answers with, in one table.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringfence_sandbox::{Error as SandboxError, ErrorKind as SandboxErrorKind};
use ringfence_tools::toolbox::{ErrorKind, ToolError};
use serde_json::{Value, json};

use ringfence_http::RETRY_AFTER;

/// A reason for which the API answers with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Malformed,
    Unauthenticated,
    PermissionDenied,
    Blocked,
    Rejected,
    NotFound,
    Method,
    NotAcceptable,
    Slow,
    Conflict,
    InProgress,
    BodyTooLarge,
    MediaType,
    ForeignHost,
    InvalidArguments,
    NotSupported,
    LimitExceeded,
    Busy,
    Cancelled,
    Internal,
    RuntimeUnavailable,
    RuntimeLost,
    Timeout,
    ApprovalTimeout,
}

/// Maximum number of seconds after which a client is asked to send a call again.
const MAX_RETRY_AFTER: u64 = 60;

/// Client closed the request. Nobody reads it but a batch's other results and the log of a proxy.
const CANCELLED: u16 = 499;

impl Reason {
    pub(super) const ALL: &[Self] = &[
        Self::Malformed,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::Blocked,
        Self::Rejected,
        Self::NotFound,
        Self::Method,
        Self::NotAcceptable,
        Self::Slow,
        Self::Conflict,
        Self::InProgress,
        Self::BodyTooLarge,
        Self::MediaType,
        Self::ForeignHost,
        Self::InvalidArguments,
        Self::NotSupported,
        Self::LimitExceeded,
        Self::Busy,
        Self::Cancelled,
        Self::Internal,
        Self::RuntimeUnavailable,
        Self::RuntimeLost,
        Self::Timeout,
        Self::ApprovalTimeout,
    ];

    /// Returns the status, the type and its meaning.
    pub(super) const fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Malformed => (400, "invalid_arguments", "The body or a header is malformed."),
            Self::Unauthenticated => (
                401,
                "unauthenticated",
                "There is no key, or it is wrong, expired or revoked.",
            ),
            Self::PermissionDenied => (
                403,
                "permission_denied",
                "The key has not the right, or the operator allows it to nobody; or a web page of another site asks.",
            ),
            Self::Blocked => (403, "blocked", "A check rejected it before it started."),
            Self::Rejected => (403, "rejected", "A person was asked and said no."),
            Self::NotFound => (404, "not_found", "There is no such route, tool, file or host."),
            Self::Method => (
                405,
                "method_not_allowed",
                "The route has other methods (`Allow`).",
            ),
            Self::NotAcceptable => (
                406,
                "invalid_arguments",
                "`Accept` lacks the answer's media type.",
            ),
            Self::Slow => (408, "timeout", "The body came too slowly."),
            Self::Conflict => (
                409,
                "conflict",
                "The state of what it is about does not allow it: a name is taken, an input closed, a directory not empty.",
            ),
            Self::InProgress => (409, "in_progress", "A request with this `Idempotency-Key` runs."),
            Self::BodyTooLarge => (413, "limit_exceeded", "The body is larger than the route takes."),
            Self::MediaType => (
                415,
                "invalid_arguments",
                "The body has another media type than the route takes.",
            ),
            Self::ForeignHost => (
                421,
                "permission_denied",
                "`Host` is not a name of this machine's own.",
            ),
            Self::InvalidArguments => (422, "invalid_arguments", "The JSON does not match the schema."),
            Self::NotSupported => (422, "not_supported", "The runtime of the sandbox lacks it."),
            Self::LimitExceeded => (
                429,
                "limit_exceeded",
                "A limit of size, number or rate is exceeded, or the key's quota: ask again after `Retry-After`, if there is one.",
            ),
            Self::Busy => (
                429,
                "busy",
                "Others use the capacity; ask again after `Retry-After`.",
            ),
            Self::Cancelled => (
                CANCELLED,
                "cancelled",
                "The client, or the end of the server, cancelled it.",
            ),
            Self::Internal => (500, "internal", "The server failed. The program did not."),
            Self::RuntimeUnavailable => (503, "runtime_unavailable", "The runtime cannot run programs now."),
            Self::RuntimeLost => (503, "runtime_unavailable", "No program began: ask again."),
            Self::Timeout => (
                504,
                "timeout",
                "The tool's deadline passed. A program's own time limit is a result.",
            ),
            Self::ApprovalTimeout => (504, "approval_timeout", "A person was asked and did not answer."),
        }
    }
}

impl From<ErrorKind> for Reason {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidArguments => Self::InvalidArguments,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::Blocked => Self::Blocked,
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Rejected => Self::Rejected,
            ErrorKind::ApprovalTimeout => Self::ApprovalTimeout,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::RuntimeUnavailable => Self::RuntimeUnavailable,
            ErrorKind::RuntimeLost => Self::RuntimeLost,
            ErrorKind::LimitExceeded => Self::LimitExceeded,
            ErrorKind::Busy => Self::Busy,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::Internal => Self::Internal,
        }
    }
}

/// An error response: `{"error": {"type", "message", "hint"}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    reason: Reason,
    message: String,
    hint: String,
    retry: Retry,
}

/// Advice to the client about the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    Never,
    /// After so many seconds.
    Later(u64),
}

impl ApiError {
    pub(crate) fn new(reason: Reason, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let retry = match reason {
            Reason::Busy | Reason::RuntimeLost => Retry::Later(RETRY_AFTER),
            _ => Retry::Never,
        };
        Self {
            reason,
            message: message.into(),
            hint: hint.into(),
            retry,
        }
    }

    /// Creates the error for too many requests without a right key.
    pub(super) fn too_many_failures() -> Self {
        Self {
            retry: Retry::Later(RETRY_AFTER),
            ..Self::new(
                Reason::LimitExceeded,
                "too many requests came without the right key",
                "wait a few seconds, and send the right key",
            )
        }
    }

    /// Creates the error for a call that finds no room in a queue whose first call has waited so long.
    pub(super) fn busy_for(message: String, waited: Duration) -> Self {
        Self {
            retry: Retry::Later(waited.as_secs().clamp(1, MAX_RETRY_AFTER)),
            ..Self::new(
                Reason::Busy,
                message,
                "send it again after `Retry-After`, and fewer at once",
            )
        }
    }

    /// Creates the error for work beyond a quota, which begins anew after so many seconds.
    pub(super) fn quota_exceeded(message: String, hint: String, seconds: u64) -> Self {
        Self {
            retry: Retry::Later(seconds),
            ..Self::new(Reason::LimitExceeded, message, hint)
        }
    }

    /// Returns the seconds after which the client is asked to send it again.
    pub(super) const fn retry_after(&self) -> Option<u64> {
        match self.retry {
            Retry::Never => None,
            Retry::Later(seconds) => Some(seconds),
        }
    }

    /// Creates the error for a request whose key ended while it was carried out.
    pub(super) fn key_ended() -> Self {
        Self::new(
            Reason::Unauthenticated,
            "the key was revoked or has expired while the request was carried out",
            "send it again with another key",
        )
    }

    /// Creates the error for work that would begin while the server drains.
    pub(super) fn draining() -> Self {
        Self {
            retry: Retry::Later(1),
            ..Self::new(
                Reason::RuntimeUnavailable,
                "the server is about to end, and begins nothing more",
                "send it again after `Retry-After`, to the server that follows",
            )
        }
    }

    /// Creates the error for a call that the end of the server cancelled.
    pub(super) fn stopped() -> Self {
        Self::new(
            Reason::Cancelled,
            "the server stopped while the call ran",
            "send it again when the server is there",
        )
    }

    pub(super) fn unknown_path() -> Self {
        Self::new(
            Reason::NotFound,
            "there is nothing at this path",
            "GET /openapi.json lists the paths",
        )
    }

    pub(super) fn method() -> Self {
        Self::new(
            Reason::Method,
            "this path has other methods",
            "the header `Allow` lists them, and GET /openapi.json describes them",
        )
    }

    pub(super) fn panicked() -> Self {
        Self::new(
            Reason::Internal,
            "the task of the call panicked",
            "report this as a defect",
        )
    }

    pub(super) fn reason(&self) -> Reason {
        self.reason
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn hint(&self) -> &str {
        &self.hint
    }

    /// Renders the body.
    pub(super) fn to_json(&self) -> Value {
        let (_, kind, _) = self.reason.row();
        json!({"error": {"type": kind, "message": self.message, "hint": self.hint}})
    }
}

impl From<ToolError> for ApiError {
    fn from(error: ToolError) -> Self {
        Self::new(error.kind.into(), error.message, error.hint)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, ..) = self.reason.row();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.to_json())).into_response();
        response.extensions_mut().insert(self.reason);
        response.extensions_mut().insert(self.clone());
        let headers = response.headers_mut();
        if self.reason == Reason::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<SandboxError> for ApiError {
    fn from(error: SandboxError) -> Self {
        let reason = match error.kind() {
            SandboxErrorKind::InvalidArguments => Reason::InvalidArguments,
            SandboxErrorKind::NotFound => Reason::NotFound,
            SandboxErrorKind::Conflict => Reason::Conflict,
            SandboxErrorKind::LimitExceeded => Reason::LimitExceeded,
            SandboxErrorKind::NotSupported => Reason::NotSupported,
            SandboxErrorKind::RuntimeUnavailable => Reason::RuntimeUnavailable,
            SandboxErrorKind::Internal => Reason::Internal,
        };
        let refused = Self::new(reason, error.to_string(), error.hint());
        let SandboxError::Quota {
            ends_in: Some(left), ..
        } = error
        else {
            return refused;
        };
        Self {
            // Not before it has expired.
            retry: Retry::Later(left.as_secs() + 1),
            ..refused
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_a_tool_keeps_its_name() {
        for kind in [
            ErrorKind::InvalidArguments,
            ErrorKind::PermissionDenied,
            ErrorKind::Blocked,
            ErrorKind::Timeout,
            ErrorKind::Rejected,
            ErrorKind::ApprovalTimeout,
            ErrorKind::NotFound,
            ErrorKind::RuntimeUnavailable,
            ErrorKind::RuntimeLost,
            ErrorKind::LimitExceeded,
            ErrorKind::Busy,
            ErrorKind::Cancelled,
            ErrorKind::Internal,
        ] {
            assert_eq!(Reason::from(kind).row().1, kind.as_str());
        }
    }

    #[test]
    fn every_row_is_an_error_and_the_rows_are_in_order() {
        let statuses: Vec<u16> = Reason::ALL.iter().map(|reason| reason.row().0).collect();
        assert!(statuses.is_sorted() && statuses[0] >= 400, "{statuses:?}");
        for reason in Reason::ALL {
            let response = ApiError::new(*reason, "m", "h").into_response();
            assert_eq!(response.status().as_u16(), reason.row().0);
        }
    }
}
