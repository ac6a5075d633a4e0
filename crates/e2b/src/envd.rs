//! Files and processes of a sandbox, as E2B's daemon serves them.

mod entry;
mod filesystem;
pub(crate) mod metadata;
mod multipart;
mod paths;
mod process;
pub(crate) mod signature;
pub(crate) mod tags;
mod transfer;
mod watch;
pub(crate) mod watchers;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use paths::User;
pub(crate) use paths::{ACCOUNT, HOME};

use crate::error::Error;
use crate::known::Opened;
use crate::rpc::{self, Framing};
use crate::target::plane_parts;

/// Returns `true` for a request that needs no credential.
pub(crate) fn is_open(request: &Request) -> bool {
    request.uri().path() == "/health"
}

/// Returns `true` for a request that may carry a signature instead of the token.
pub(crate) fn is_signable(request: &Request) -> bool {
    request.uri().path() == "/files"
}

pub(crate) async fn answer(opened: Opened, request: Request) -> Result<Response, Error> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match (method.as_str(), &plane_parts(&path)[..]) {
        ("GET", ["health"]) => Ok(StatusCode::NO_CONTENT.into_response()),
        ("GET", ["files"]) => transfer::download(&opened, request).await,
        ("POST", ["files"]) => transfer::upload(&opened, request).await,
        ("POST", [service @ ("process.Process" | "filesystem.Filesystem"), method]) => {
            call(opened, service, method, request).await
        }
        _ => Err(unknown()),
    }
}

fn unknown() -> Error {
    Error::not_found("there is no such route")
}

/// Answers a remote procedure call.
async fn call(opened: Opened, service: &str, method: &str, request: Request) -> Result<Response, Error> {
    let framing = match method {
        "Start" | "Connect" | "StreamInput" | "WatchDir" => Framing::Stream,
        _ => Framing::Unary,
    };
    rpc::check(request.headers(), framing)?;
    let answer = match User::of_call(request.headers(), &opened.sandbox) {
        Err(error) => Err(error),
        Ok(user) if service == "process.Process" => process::call(opened, user, method, request).await,
        Ok(user) => filesystem::call(opened, user, method, request).await,
    };
    Ok(answer.unwrap_or_else(|error| match framing {
        Framing::Unary => error.into_response(),
        Framing::Stream => error.into_stream(),
    }))
}
