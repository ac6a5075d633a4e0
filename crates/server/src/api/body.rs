//! Bodies of requests: JSON within the limit of their route, in time.

use std::fmt::{self, Write};
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use ringfence_policy::json::{MAX_VALUES, SMALL, most_values};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::blocking::BlockingThreads;
use super::error::{ApiError, Reason};

/// Timeout for a body to arrive: a client that sends nothing must not hold its connection.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Parses and renders large bodies.
static LARGE: BlockingThreads = BlockingThreads::new(2);

pub(super) const JSON: &str = "application/json";
pub(super) const BYTES: &str = "application/octet-stream";
pub(super) const NDJSON: &str = "application/x-ndjson";

/// Reads a body with one of these media types. Returns it with its own.
pub(super) async fn read(
    request: Request,
    media: &[&'static str],
) -> Result<(&'static str, Bytes), ApiError> {
    let found = media_type(request.headers(), media).ok_or_else(|| {
        ApiError::new(
            Reason::MediaType,
            "the body has another media type than this path takes",
            format!("send `Content-Type: {}`", media.join("` or `")),
        )
    })?;
    Ok((found, whole(request).await?))
}

/// Reads a body within the limit of its route, in time.
pub(super) async fn whole(request: Request) -> Result<Bytes, ApiError> {
    let reading = tokio::time::timeout(TIMEOUT, Bytes::from_request(request, &()));
    let bytes = reading.await.map_err(|_| slow())?;
    bytes.map_err(|rejection| unread(&rejection))
}

/// Reads a body of JSON.
pub(super) async fn json<T: DeserializeOwned + Send + 'static>(request: Request) -> Result<T, ApiError> {
    let (_, bytes) = read(request, &[JSON]).await?;
    off_thread(bytes, |bytes| parse_object(bytes, MAX_VALUES)).await
}

/// Parses JSON, beside the runtime's only thread if it is large: others are served meanwhile.
pub(super) async fn parse_off_thread<T: DeserializeOwned + Send + 'static>(
    bytes: Bytes,
) -> Result<T, ApiError> {
    off_thread(bytes, parse).await
}

/// Makes a large value and renders it, beside the runtime's only thread.
pub(super) async fn render_off_thread<T: Serialize>(
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Vec<u8>, ApiError> {
    LARGE.run(move || render(&make())).await?
}

/// Renders a value as JSON.
pub(super) fn render<T: Serialize>(value: &T) -> Result<Vec<u8>, ApiError> {
    serde_json::to_vec(value).map_err(|_| ApiError::panicked())
}

/// Like [`parse_off_thread`], by another parser.
pub(super) async fn off_thread<T: Send + 'static>(
    bytes: Bytes,
    parse: fn(&[u8]) -> Result<T, ApiError>,
) -> Result<T, ApiError> {
    if bytes.len() <= SMALL {
        return parse(&bytes);
    }
    LARGE.run(move || parse(&bytes)).await?
}

/// Returns the next bytes of a body, as they come; `None` at its end.
pub(super) async fn next(body: &mut Body) -> Result<Option<Bytes>, ApiError> {
    while let Some(frame) = body.frame().await {
        let broken = |_| ApiError::new(Reason::Malformed, "the body broke off", "send it again");
        if let Ok(bytes) = frame.map_err(broken)?.into_data() {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// Parses a JSON object of at most `most` values. A list is refused: serde takes one for a struct.
pub(super) fn parse_object<T: DeserializeOwned>(bytes: &[u8], most: usize) -> Result<T, ApiError> {
    match bytes.trim_ascii_start().first() {
        Some(b'[') => Err(ApiError::new(
            Reason::InvalidArguments,
            "the body does not match the schema: expected an object, found a list",
            SCHEMA_HINT,
        )),
        _ => parse_of_values(bytes, most),
    }
}

/// Parses JSON. Text that is not JSON is malformed; JSON of another shape has invalid arguments.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    parse_of_values(bytes, MAX_VALUES)
}

/// Refuses JSON of too many values, which would take too much memory.
pub(super) fn check_values(bytes: &[u8], most: usize) -> Result<(), ApiError> {
    match bytes.len() > SMALL && most_values(bytes) > most {
        true => Err(ApiError::new(
            Reason::LimitExceeded,
            format!("the body has more than {most} values and names of members"),
            "send less at once",
        )),
        false => Ok(()),
    }
}

fn parse_of_values<T: DeserializeOwned>(bytes: &[u8], most: usize) -> Result<T, ApiError> {
    check_values(bytes, most)?;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        match error.classify() {
            Category::Data => ApiError::new(Reason::InvalidArguments, mismatch(&path, &error), SCHEMA_HINT),
            _ => malformed(&error),
        }
    })?;
    deserializer.end().map_err(|error| malformed(&error))?;
    Ok(parsed)
}

pub(super) const SCHEMA_HINT: &str = "GET /openapi.json describes the body";

fn malformed(error: &serde_json::Error) -> ApiError {
    ApiError::new(
        Reason::Malformed,
        format!("the body is not JSON: {error}"),
        SCHEMA_HINT,
    )
}

/// Describes the mismatch of a body with its type, by the path of the member in the place of its line and column.
fn mismatch(path: &str, error: &serde_json::Error) -> String {
    let position = format!(" at line {} column {}", error.line(), error.column());
    let text = shortened(error);
    let text = plain(text.strip_suffix(&position).unwrap_or(&text));
    match path {
        "." => format!("the body does not match the schema: {text}"),
        path => format!(
            "the body does not match the schema: `{}`: {text}",
            shortened(path.escape_debug())
        ),
    }
}

/// Renames Rust's types in an error of serde's to JSON's.
fn plain(text: &str) -> String {
    let text = text
        .replacen("invalid type: map,", "invalid type: object,", 1)
        .replacen("invalid type: sequence,", "invalid type: list,", 1);
    let Some((found, expected)) = text.rsplit_once(", expected ") else {
        return text;
    };
    if let Some(word) = found.strip_prefix("unknown variant ") {
        return format!("{word} is not {expected}");
    }
    let mut words = expected.split(' ');
    let expected = match (words.next(), words.next()) {
        (Some("usize" | "u64" | "u32" | "u16" | "u8"), None) => "a whole number from 0",
        (Some("i64" | "i32"), None) => "a whole number",
        (Some("f64"), None) => "a number",
        (Some("a"), Some("sequence")) => "a list",
        (Some("a"), Some("map")) | (Some("struct"), Some(_)) => "an object",
        _ => expected,
    };
    format!("{found}, expected {expected}")
}

/// Returns the beginning of a text: errors repeat values of the body, which may be as large as it.
fn shortened(text: impl fmt::Display) -> String {
    let mut start = Start(String::new());
    // The only error is that the text has more.
    if write!(start, "{text}").is_err() {
        start.0.push('…');
    }
    start.0
}

/// The beginning of a text, of at most [`Start::MAX`] bytes.
struct Start(String);

impl Start {
    const MAX: usize = 500;
}

impl fmt::Write for Start {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let end = piece.floor_char_boundary(Self::MAX - self.0.len());
        self.0.push_str(&piece[..end]);
        if end < piece.len() {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}

/// Returns the one of `media` that the headers name. A browser sends a form or plain text without asking the
/// server first, but no JSON: so a body without a media type is refused, too.
fn media_type(headers: &HeaderMap, media: &[&'static str]) -> Option<&'static str> {
    let given = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let given = given.split(';').next()?.trim();
    media
        .iter()
        .find(|known| known.eq_ignore_ascii_case(given))
        .copied()
}

fn slow() -> ApiError {
    ApiError::new(
        Reason::Slow,
        format!("the body did not arrive within {} s", TIMEOUT.as_secs()),
        "send it again, faster or in parts",
    )
}

/// Creates the error for a body of more than `max` bytes.
pub(super) fn too_large(max: usize) -> ApiError {
    ApiError::new(
        Reason::BodyTooLarge,
        format!("the body is larger than the {max} bytes that this path takes"),
        "send less at once",
    )
}

fn unread(rejection: &BytesRejection) -> ApiError {
    if rejection.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE {
        return ApiError::new(
            Reason::BodyTooLarge,
            "the body is larger than this path takes",
            "send less at once; GET /openapi.json says how much each path takes",
        );
    }
    ApiError::new(
        Reason::Malformed,
        "the body ended before it was complete",
        "send as many bytes as `Content-Length` says",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::RemoteRequest;
    use serde_json::Value;
    use std::sync::Mutex;

    #[test]
    fn a_media_type_is_compared_without_its_parameters() {
        let check = |given: Option<&str>, expected| {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(header::CONTENT_TYPE, given.parse().unwrap());
            }
            assert_eq!(media_type(&headers, &[JSON, NDJSON]), expected, "{given:?}");
        };
        check(Some("application/json"), Some(JSON));
        check(Some("Application/JSON; charset=utf-8"), Some(JSON));
        check(Some("application/x-ndjson"), Some(NDJSON));
        check(Some("text/plain"), None);
        check(Some("application/jsonx"), None);
        check(None, None);
    }

    #[tokio::test]
    async fn a_large_body_lets_others_go_first() {
        let order = Mutex::new(Vec::new());
        let of = |name, size: usize| {
            let (order, text) = (&order, format!("\"{}\"", "a".repeat(size)));
            async move {
                let text = parse_off_thread::<String>(text.into()).await.unwrap();
                assert_eq!(text.len(), size);
                order.lock().unwrap().push(name);
            }
        };
        // Polled in this order.
        tokio::join!(biased; of("large", 30 << 20), of("small", 10));
        assert_eq!(*order.lock().unwrap(), ["small", "large"]);
    }

    #[test]
    fn a_mismatch_names_the_member() {
        let check = |text: &str, expected: &str| {
            let told = parse::<RemoteRequest>(text.as_bytes()).unwrap_err().to_json();
            let expected = format!("the body does not match the schema: {expected}");
            let message = told["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(&expected), "{message}");
            assert!(!message.contains("column"), "{message}");
        };
        check(r#"{"code": 1}"#, "`code`: invalid type: integer `1`");
        check(
            r#"{"code": "1", "files": {"a": 2}}"#,
            "`files.a`: invalid type: integer `2`",
        );
        check(
            r#"{"cod": "1"}"#,
            "`cod`: unknown field `cod`, expected one of `code`",
        );
        check("{}", "missing field");
        let long = format!(r#"{{"code": "1", "files": "{}"}}"#, "\u{7f}".repeat(1 << 20));
        let told = parse::<RemoteRequest>(long.as_bytes()).unwrap_err().to_json();
        assert!(told.to_string().len() < 2000);
    }

    #[test]
    fn types_have_the_names_of_json() {
        for (text, expected) in [
            (
                "invalid type: string \"2\", expected usize",
                "invalid type: string \"2\", expected a whole number from 0",
            ),
            (
                "invalid type: map, expected a string",
                "invalid type: object, expected a string",
            ),
            (
                "invalid type: null, expected struct Run",
                "invalid type: null, expected an object",
            ),
            (
                "invalid type: integer `1`, expected a map",
                "invalid type: integer `1`, expected an object",
            ),
            ("missing field `code`", "missing field `code`"),
        ] {
            assert_eq!(plain(text), expected);
        }
        let refused = parse_object::<RemoteRequest>(b" [\"print(1)\"]", MAX_VALUES).unwrap_err();
        assert!(
            refused.message().ends_with("expected an object, found a list"),
            "{refused:?}"
        );
    }

    #[test]
    fn no_json_is_malformed_and_other_json_is_invalid() {
        let reason = |text: &str| parse::<Vec<u8>>(text.as_bytes()).unwrap_err().to_json();
        for (text, message) in [
            ("[1", "the body is not JSON"),
            ("", "the body is not JSON"),
            ("{}", "the body does not match the schema"),
        ] {
            let told = reason(text);
            let told = told["error"]["message"].as_str().unwrap();
            assert!(told.starts_with(message), "{told}");
        }
        // Deep nesting must not overflow the stack.
        assert!(parse::<Value>("[".repeat(100_000).as_bytes()).is_err());
    }
}
