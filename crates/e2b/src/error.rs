//! Errors in E2B's shape: `{"code": 404, "message": "…"}`.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ringfence_sandbox::files::FileErrorKind;
use ringfence_sandbox::{Error as SandboxError, ErrorKind};
use serde_json::{Value, json};

/// Asks E2B's clients not to repeat a request by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");

/// An error of a request that is no remote procedure call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    status: StatusCode,
    message: String,
    /// Set if a sandbox or a program in it does not answer: its id.
    sandbox: Option<String>,
    /// Set if a program at a port of the sandbox does not answer.
    port: Option<u16>,
}

/// The type of an error, for records: attached to the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure(pub &'static str);

impl Error {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            sandbox: None,
            port: None,
        }
    }

    /// Creates the error for a request without the right key or token.
    pub fn unauthenticated(message: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// Creates the error for a request that its sender may not make.
    pub fn forbidden(message: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// Creates the error for too many requests without the right key or token.
    pub fn too_many_failures() -> Self {
        Self::busy("too many requests came without the right key: wait a few seconds".to_owned())
    }

    /// Creates the error for a request that finds no room.
    pub fn busy(message: String) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, message)
    }

    /// Creates the error of this server's own failure.
    pub fn internal(message: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Creates the error for what E2B has and this server lacks.
    pub(crate) fn not_supported(what: &str, hint: &str) -> Self {
        Self::new(
            StatusCode::NOT_IMPLEMENTED,
            format!("not supported: {what} ({hint})"),
        )
    }

    /// Creates the answer of a sandbox that is not there: clients look for `was not found`.
    pub fn gone(sandbox: &str) -> Self {
        Self {
            sandbox: Some(sandbox.chars().take(80).collect()),
            ..Self::new(StatusCode::BAD_GATEWAY, "The sandbox was not found")
        }
    }

    /// Creates the answer of a port on which no program listens: clients look for `port is not open`.
    pub(crate) fn closed_port(sandbox: &str, port: u16) -> Self {
        Self {
            message: "The sandbox is running but port is not open".to_owned(),
            port: Some(port),
            ..Self::gone(sandbox)
        }
    }

    /// Creates the answer of a program that breaks HTTP.
    pub(crate) fn no_http(sandbox: &str, port: u16) -> Self {
        Self {
            message: "The program on the port did not answer by HTTP/1.1".to_owned(),
            ..Self::closed_port(sandbox, port)
        }
    }

    /// Creates the error for a visitor without the right traffic token.
    pub(crate) fn no_visitor(sandbox: &str, why: &str) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            message: format!("Sandbox is secured with traffic access token. {why}"),
            ..Self::gone(sandbox)
        }
    }

    /// Returns `true` if the credential was wrong or missing.
    pub fn is_unauthenticated(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    #[cfg(test)]
    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            400 | 406 | 413 | 415 => "invalid_arguments",
            401 => "unauthenticated",
            403 => "permission_denied",
            404 | 502 => "not_found",
            409 => "conflict",
            429 | 507 => "limit_exceeded",
            501 => "not_supported",
            503 => "runtime_unavailable",
            _ => "internal",
        }
    }

    fn to_json(&self) -> Value {
        let mut json = json!({"code": self.status.as_u16(), "message": self.message});
        if let Some(sandbox) = &self.sandbox {
            json["sandboxId"] = sandbox.as_str().into();
        }
        if let Some(port) = self.port {
            json["port"] = port.into();
        }
        json
    }
}

impl From<SandboxError> for Error {
    fn from(error: SandboxError) -> Self {
        if let SandboxError::NoUser(user) = &error {
            return Self::unauthenticated(&unknown_user(user));
        }
        let status = match error.kind() {
            ErrorKind::InvalidArguments => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::LimitExceeded if is_full_disk(&error) => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::LimitExceeded => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::NotSupported => StatusCode::NOT_IMPLEMENTED,
            ErrorKind::RuntimeUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, advised(&error))
    }
}

/// Renders the error for a user that a sandbox does not have, in E2B's words.
pub(crate) fn unknown_user(user: &str) -> String {
    format!("invalid username: '{user}'")
}

/// Renders an error with its hint.
pub(crate) fn advised(error: &SandboxError) -> String {
    format!("{error} (hint: {})", error.hint())
}

/// Returns `true` if there is no room for a file, which lies in the sandbox's memory.
fn is_full_disk(error: &SandboxError) -> bool {
    match error {
        SandboxError::File(error) => error.kind == FileErrorKind::NoSpace,
        error => matches!(error, SandboxError::FileMemory),
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.to_json())).into_response();
        response.extensions_mut().insert(Failure(self.kind()));
        if matches!(self.status.as_u16(), 429 | 502 | 503 | 504) {
            let headers = response.headers_mut();
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}
