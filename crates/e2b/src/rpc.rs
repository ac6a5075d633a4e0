//! Connect's remote procedure calls in JSON: one message each way, or a stream of frames.

use axum::Json;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_sandbox::files::FileErrorKind;
use ringfence_sandbox::{Error as SandboxError, ErrorKind};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::body;
use crate::error::{Error, Failure, advised, unknown_user};
use crate::token::header as single;

/// Media types of the two framings.
const UNARY: &str = "application/json";
const STREAM: &str = "application/connect+json";
/// Flag of the last frame of a stream.
const END: u8 = 2;

/// A code of Connect's errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

impl Code {
    /// Returns its name and its status in HTTP.
    const fn row(self) -> (&'static str, u16) {
        match self {
            Self::InvalidArgument => ("invalid_argument", 400),
            Self::DeadlineExceeded => ("deadline_exceeded", 504),
            Self::NotFound => ("not_found", 404),
            Self::AlreadyExists => ("already_exists", 409),
            Self::PermissionDenied => ("permission_denied", 403),
            Self::ResourceExhausted => ("resource_exhausted", 429),
            Self::FailedPrecondition => ("failed_precondition", 400),
            Self::Unimplemented => ("unimplemented", 501),
            Self::Internal => ("internal", 500),
            Self::Unavailable => ("unavailable", 503),
            Self::Unauthenticated => ("unauthenticated", 401),
        }
    }
}

/// An error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcError {
    code: Code,
    message: String,
}

impl RpcError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    fn to_json(&self) -> Value {
        json!({"code": self.code.row().0, "message": self.message})
    }

    /// Returns the last frame of a stream that fails.
    pub(crate) fn frame(&self) -> Bytes {
        frame(END, &json!({"error": self.to_json()}))
    }

    /// Answers a call that opens a stream.
    pub(crate) fn into_stream(self) -> Response {
        let mut response = ([(header::CONTENT_TYPE, STREAM)], self.frame()).into_response();
        response.extensions_mut().insert(Failure(self.code.row().0));
        response
    }
}

impl IntoResponse for RpcError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.row().1).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.to_json())).into_response();
        response.extensions_mut().insert(Failure(self.code.row().0));
        response
    }
}

impl From<SandboxError> for RpcError {
    fn from(error: SandboxError) -> Self {
        if let SandboxError::NoUser(user) = &error {
            return Self::new(Code::Unauthenticated, unknown_user(user));
        }
        let code = match error.kind() {
            ErrorKind::InvalidArguments => match &error {
                SandboxError::File(file) if file.kind == FileErrorKind::Denied => Code::PermissionDenied,
                _ => Code::InvalidArgument,
            },
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Conflict => Code::FailedPrecondition,
            ErrorKind::LimitExceeded => Code::ResourceExhausted,
            ErrorKind::NotSupported => Code::Unimplemented,
            ErrorKind::RuntimeUnavailable => Code::Unavailable,
            ErrorKind::Internal => Code::Internal,
        };
        Self::new(code, advised(&error))
    }
}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        Self::new(Code::InvalidArgument, error.message())
    }
}

/// The framing of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Unary,
    Stream,
}

/// Checks the media type and encodings of a call.
pub(crate) fn check(headers: &HeaderMap, framing: Framing) -> Result<(), Error> {
    let expected = match framing {
        Framing::Unary => UNARY,
        Framing::Stream => STREAM,
    };
    let given = single(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim();
    let encodings = ["content-encoding", "connect-content-encoding"];
    let is_plain = encodings
        .iter()
        .all(|name| single(headers, name).is_none_or(|value| value == "identity"));
    if !given.eq_ignore_ascii_case(expected) || !is_plain {
        let message = format!("send the call uncompressed as `{expected}`");
        return Err(Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    Ok(())
}

/// Reads the message of a unary call.
pub(crate) async fn message<T: DeserializeOwned + Send + 'static>(request: Request) -> Result<T, RpcError> {
    body::json(request).await.map_err(RpcError::from)
}

/// Reads the one message of a call that is answered by a stream.
pub(crate) async fn framed<T: DeserializeOwned + Send + 'static>(request: Request) -> Result<T, RpcError> {
    let bytes = body::whole(request).await?;
    match length(&bytes, body::MAX)? {
        Some(length) if bytes.len() >= HEAD + length => {
            Ok(body::parse(bytes.slice(HEAD..HEAD + length)).await?)
        }
        _ => Err(RpcError::new(Code::InvalidArgument, "the call has no message")),
    }
}

/// Length of a frame's beginning: its flags, and the length of its message.
const HEAD: usize = 5;

/// Maximum length of a message in a stream of them, in bytes.
pub(crate) const MAX_IN_STREAM: usize = 1024 * 1024;

/// Returns the length of the first frame's message, once its beginning is there.
fn length(frames: &[u8], most: usize) -> Result<Option<usize>, RpcError> {
    let invalid = |message: String| RpcError::new(Code::InvalidArgument, message);
    let Some((head, _)) = frames.split_first_chunk::<HEAD>() else {
        return Ok(None);
    };
    let [flags, length @ ..] = *head;
    let length = u32::from_be_bytes(length) as usize;
    if flags & 1 != 0 {
        return Err(invalid("compressed messages are not supported".to_owned()));
    }
    match length > most {
        true => Err(invalid(format!("a message is larger than {most} bytes"))),
        false => Ok(Some(length)),
    }
}

/// Frames that arrive in parts.
#[derive(Debug, Default)]
pub(crate) struct Frames(pub(crate) Vec<u8>);

impl Frames {
    /// Takes the next message, once it is complete.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RpcError> {
        let invalid = |message: String| RpcError::new(Code::InvalidArgument, message);
        let Some(length) = length(&self.0, MAX_IN_STREAM)? else {
            return Ok(None);
        };
        let Some(text) = self.0.get(HEAD..HEAD + length) else {
            return Ok(None);
        };
        let text = if text.is_empty() { b"{}" } else { text };
        let message = serde_json::from_slice(text);
        let message = message.map_err(|error| invalid(format!("a message does not fit: {error}")))?;
        self.0.drain(..HEAD + length);
        Ok(Some(message))
    }
}

/// Returns a frame.
fn frame(flags: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&[flags][..], &length.to_be_bytes(), text.as_bytes()]
        .concat()
        .into()
}

/// Returns the frame of a message.
pub(crate) fn data(message: &Value) -> Bytes {
    frame(0, message)
}

/// Returns the last frame of a stream that succeeds.
pub(crate) fn end() -> Bytes {
    frame(END, &json!({}))
}

/// Answers with a stream.
pub(crate) fn streaming(body: axum::body::Body) -> Response {
    ([(header::CONTENT_TYPE, STREAM)], body).into_response()
}

/// Renders bytes.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Parses bytes.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, RpcError> {
    let parsed = STANDARD.decode(text);
    parsed.map_err(|_| RpcError::new(Code::InvalidArgument, "bytes must be base64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_in_parts_and_end() {
        let whole = [data(&json!({"a": 1})), data(&json!({"b": 2}))].concat();
        let mut frames = Frames::default();
        let mut seen = Vec::new();
        for byte in whole {
            frames.0.push(byte);
            seen.extend(frames.next::<Value>().unwrap());
        }
        assert_eq!(seen, [json!({"a": 1}), json!({"b": 2})]);
        assert_eq!(end().as_ref(), b"\x02\0\0\0\x02{}");
    }

    #[test]
    fn frames_that_are_compressed_too_long_or_no_json_are_refused() {
        for bad in [&b"\x01\0\0\0\x02{}"[..], b"\0\xff\0\0\0", b"\0\0\0\0\x01["] {
            assert!(Frames(bad.to_vec()).next::<Value>().is_err(), "{bad:?}");
        }
        assert_eq!(
            Frames(b"\0\0\0\0\0".to_vec()).next::<Value>().unwrap(),
            Some(json!({}))
        );
    }

    #[test]
    fn other_media_types_are_refused() {
        let check = |media: &str, framing| {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", media.parse().unwrap());
            super::check(&headers, framing).is_ok()
        };
        assert!(check("application/json; charset=utf-8", Framing::Unary));
        assert!(check("application/connect+json", Framing::Stream));
        for other in ["application/proto", "application/connect+proto", "text/plain"] {
            assert!(
                !check(other, Framing::Unary) && !check(other, Framing::Stream),
                "{other}"
            );
        }
    }
}
