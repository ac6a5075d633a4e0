//! `/v1/sandboxes`: sandboxes that live.

mod contexts;
mod files;
mod life;
mod processes;

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_exec::local::{Chunk, Stream};
use ringfence_policy::Scope;
use ringfence_sandbox::{Error, ErrorKind as Kind, Sandbox};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, Reason};
use super::keys::Grant;
use super::table::{Content, Route};
use super::{Api, body};

pub(super) fn routes() -> Vec<Route> {
    let groups = [
        life::routes(),
        processes::routes(),
        contexts::routes(),
        files::routes(),
    ];
    groups.into_iter().flatten().collect()
}

/// The owner of what a request asks for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Owner {
    /// User on whose behalf the server's own user asks. Holders of keys have no others.
    user: Option<Scope>,
}

impl Api {
    /// Returns the scope of a client's sandboxes.
    pub(super) fn scope(&self, grant: &Grant, owner: &Owner) -> Result<Scope, ApiError> {
        match (grant.is_owner(), &owner.user) {
            (true, Some(user)) => Ok(user.clone()),
            (true, None) => Ok(Scope::local()),
            (false, None) => grant
                .scope()
                .ok_or_else(|| Error::Broken("its key has no scope".to_owned()).into()),
            (false, Some(_)) => Err(ApiError::new(
                Reason::PermissionDenied,
                "a key has its own sandboxes and no others",
                "leave `user` out",
            )),
        }
    }

    /// Returns a sandbox of a client.
    pub(super) fn sandbox(&self, grant: &Grant, owner: &Owner, id: &str) -> Result<Arc<Sandbox>, ApiError> {
        let scope = self.scope(grant, owner)?;
        Ok(self.sandboxes.get(&scope, id)?)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let reason = match error.kind() {
            Kind::InvalidArguments => Reason::InvalidArguments,
            Kind::NotFound => Reason::NotFound,
            Kind::Conflict => Reason::Conflict,
            Kind::LimitExceeded => Reason::LimitExceeded,
            Kind::NotSupported => Reason::NotSupported,
            Kind::RuntimeUnavailable => Reason::RuntimeUnavailable,
            Kind::Internal => Reason::Internal,
        };
        Self::new(reason, error.to_string(), error.hint())
    }
}

/// A body of bytes that are passed on as they come.
const BYTES: Content = Content {
    media: &[body::BYTES],
    schema: |_| schemars::json_schema!({"type": "string", "format": "binary"}),
    max: 64 << 30,
};

fn done() -> Response {
    Json(json!({})).into_response()
}

/// Returns the name and data of the event of a piece of output: as text, or in base64 what is none.
fn output_event(chunk: &Chunk) -> (&'static str, Value) {
    let name = match chunk.stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let data = match std::str::from_utf8(&chunk.bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "base64": STANDARD.encode(&chunk.bytes) }),
    };
    (name, data)
}
