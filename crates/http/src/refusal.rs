//! Error responses.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error response, in the common JSON format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    status: StatusCode,
    kind: &'static str,
    message: std::borrow::Cow<'static, str>,
    hint: &'static str,
}

/// Seconds to wait after too many failures.
pub const RETRY_AFTER: u64 = 10;

impl Refusal {
    pub(crate) const UNKNOWN_PATH: Self = Self::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "there is nothing at this path",
        "the paths are described in docs/protocol/console.md",
    );
    pub(crate) const METHOD: Self = Self::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method",
        "this path does not know the method",
        "the methods are GET, HEAD and POST, as docs/protocol/console.md describes them",
    );
    pub(crate) const HOST: Self = Self::new(
        StatusCode::MISDIRECTED_REQUEST,
        "foreign_host",
        "the request names another host than this machine's own",
        "open the address that `ringfence console` prints, by 127.0.0.1 or localhost",
    );
    pub(crate) const ORIGIN: Self = Self::new(
        StatusCode::FORBIDDEN,
        "foreign_origin",
        "the request comes from another site",
        "open the link that `ringfence console` prints; a program sends no Origin, and `Authorization: Bearer`",
    );
    pub const FOREIGN_USER: Self = Self::new(
        StatusCode::FORBIDDEN,
        "foreign_user",
        "this console answers the user who started it, and root; the connection is another user's",
        "use the console of your own server, or the API with a key",
    );
    pub(crate) const CREDENTIALS: Self = Self::new(
        StatusCode::UNAUTHORIZED,
        "unauthenticated",
        "the token is missing, wrong, used or of another server",
        "open the link that `ringfence console` prints, which opens one page within ten minutes; a program sends the token of `ringfence console --json` as `Authorization: Bearer`",
    );
    pub(crate) const TOO_MANY: Self = Self::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many",
        "too many requests came without the right token",
        "wait a few seconds, then open the link that `ringfence console` prints",
    );
    pub(crate) const SLOW: Self = Self::new(
        StatusCode::REQUEST_TIMEOUT,
        "slow",
        "the request took too long",
        "send it again",
    );

    /// Creates a response with this status, kind, message and hint.
    pub const fn new(
        status: StatusCode,
        kind: &'static str,
        message: &'static str,
        hint: &'static str,
    ) -> Self {
        Self {
            status,
            kind,
            message: std::borrow::Cow::Borrowed(message),
            hint,
        }
    }

    pub fn saying(self, message: impl Into<String>) -> Self {
        Self {
            message: std::borrow::Cow::Owned(message.into()),
            ..self
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"error": {"type": self.kind, "message": self.message, "hint": self.hint}});
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST"));
            }
            _ => {}
        }
        response
    }
}
