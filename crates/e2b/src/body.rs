//! Bodies of requests and answers.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use futures_util::stream;
use http_body_util::{BodyExt, Limited};
use ringfence_policy::json::{MAX_VALUES, SMALL, most_values};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;

/// Maximum size of a request that is no file, in bytes.
pub(crate) const MAX: usize = 8 * 1024 * 1024;
/// Time for the next part of a request to arrive.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The part of a request's body that its record shows: attached to the response.
#[derive(Debug, Clone)]
pub struct Described(pub Value);

/// Reads a whole request.
pub(crate) async fn whole(request: Request) -> Result<Bytes, Error> {
    let reading = Limited::new(request.into_body(), MAX).collect();
    let read = tokio::time::timeout(TIMEOUT, reading).await;
    match read.map_err(|_| slow())? {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Error::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is larger than {MAX} bytes"),
        )),
        Err(_) => Err(broken()),
    }
}

/// Reads a request of JSON.
pub(crate) async fn json<T: DeserializeOwned + Send + 'static>(request: Request) -> Result<T, Error> {
    parse(whole(request).await?).await
}

/// Parses JSON, on a blocking thread if it is large: others are served meanwhile. An empty body counts as an empty object.
pub(crate) async fn parse<T: DeserializeOwned + Send + 'static>(bytes: Bytes) -> Result<T, Error> {
    if bytes.len() <= SMALL {
        return parse_now(&bytes);
    }
    let parsing = tokio::task::spawn_blocking(move || match most_values(&bytes) > MAX_VALUES {
        true => Err(Error::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has more than {MAX_VALUES} values and names of members"),
        )),
        false => parse_now(&bytes),
    });
    let panicked = |_| Error::internal("the body could not be parsed".to_owned());
    parsing.await.map_err(panicked)?
}

fn parse_now<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(text).map_err(|error| Error::invalid(format!("the body does not fit: {error}")))
}

/// Returns the next bytes of a body; `None` at its end.
pub(crate) async fn next(body: &mut Body) -> Result<Option<Bytes>, Error> {
    loop {
        let frame = tokio::time::timeout(TIMEOUT, body.frame()).await;
        match frame.map_err(|_| slow())? {
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Some(Err(_)) => return Err(broken()),
            None => return Ok(None),
        }
    }
}

fn slow() -> Error {
    let message = format!("no more of the body arrived within {} s", TIMEOUT.as_secs());
    Error::new(StatusCode::REQUEST_TIMEOUT, message)
}

fn broken() -> Error {
    Error::invalid("the body broke off")
}

/// Breaks a response off: its client must not take what has arrived for the whole.
#[derive(Debug)]
pub(crate) struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the response cannot be completed")
    }
}

impl std::error::Error for BrokenOff {}

/// Returns a body of the parts that `step` makes as the client reads them. Dropping it drops the state.
pub(crate) fn streamed<S, F>(state: S, step: impl FnMut(S) -> F + Send + 'static) -> Body
where
    S: Send + 'static,
    F: Future<Output = Result<Option<(Bytes, S)>, BrokenOff>> + Send + 'static,
{
    Body::from_stream(stream::try_unfold(state, step))
}
