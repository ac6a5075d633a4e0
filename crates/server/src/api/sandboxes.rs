//! `/v1/sandboxes`: sandboxes that live.

mod attach;
mod contexts;
mod copies;
mod entries;
mod files;
mod life;
mod ports;
mod processes;

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query, RawPathParams};
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter};
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_exec::local::{Chunk, Stream};
use ringfence_policy::Scope;
use ringfence_sandbox::process::Process;
use ringfence_sandbox::{Error, ErrorKind, Sandbox};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::{ApiError, Reason};
use super::keys::{Grant, Right};
use super::recording::Described;
use super::table::{Content, Needs, Route};
use super::{Api, body};

pub(super) fn routes() -> Vec<Route> {
    let groups = [
        life::routes(),
        processes::routes(),
        attach::routes(),
        contexts::routes(),
        files::routes(),
        copies::routes(),
        ports::routes(),
    ];
    groups.into_iter().flatten().collect()
}

/// Returns a route without parameters, body and record.
fn route(
    method: Method,
    path: &'static str,
    summary: &'static str,
    answers: Vec<Content>,
    handler: fn(MethodFilter) -> MethodRouter<Arc<Api>>,
) -> Route {
    Route {
        method,
        path,
        needs: Needs::Key(Right::Sandboxes),
        summary,
        recorded: None,
        parameters: &[],
        request: None,
        answers,
        handler,
    }
}

/// The owner of what a request asks for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Owner {
    /// User on whose behalf the server's own user asks. Holders of keys have no others.
    user: Option<Scope>,
}

impl Api {
    /// Returns the scope of what a client makes.
    pub(super) fn scope(&self, grant: &Grant, owner: &Owner) -> Result<Scope, ApiError> {
        match (grant.is_owner(), &owner.user) {
            (true, Some(user)) => Ok(user.clone()),
            (true, None) => Ok(Scope::local()),
            (false, None) => {
                let scope = grant.scope();
                scope.ok_or_else(|| Error::Broken("its key has no scope".to_owned()).into())
            }
            (false, Some(_)) => Err(ApiError::new(
                Reason::PermissionDenied,
                "a key has its own sandboxes and no others",
                "leave `user` out",
            )),
        }
    }
}

/// The parameters of a query.
struct Params<T>(T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let parsed = Query::try_from_uri(&parts.uri);
        parsed
            .map(|Query(parameters)| Self(parameters))
            .map_err(|rejection| {
                ApiError::new(
                    Reason::InvalidArguments,
                    rejection.body_text(),
                    "GET /openapi.json describes the parameters",
                )
            })
    }
}

/// The client of a request.
pub(super) struct Client {
    /// Owner of what it makes.
    pub(super) scope: Scope,
    /// Set for the server's own user.
    is_owner: bool,
}

impl FromRequestParts<Arc<Api>> for Client {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let Params(owner) = Params::<Owner>::from_request_parts(parts, api).await?;
        let grant = parts.extensions.get::<Arc<Grant>>();
        let grant = grant.ok_or_else(|| ApiError::from(Error::Broken("nobody asks".to_owned())))?;
        Ok(Self {
            scope: api.scope(grant, &owner)?,
            is_owner: grant.is_owner(),
        })
    }
}

/// Returns a part of the path.
async fn part(name: &str, parts: &mut Parts, api: &Arc<Api>) -> Result<String, ApiError> {
    let found = RawPathParams::from_request_parts(parts, api).await;
    let found = found.map_err(|_| ApiError::from(Error::Invalid("the path is not UTF-8".to_owned())))?;
    let value = found.iter().find(|(known, _)| *known == name);
    Ok(value.map(|(_, value)| value.to_owned()).unwrap_or_default())
}

/// The id or name of the path's sandbox.
pub(super) struct IdOrName(pub(super) String);

impl FromRequestParts<Arc<Api>> for IdOrName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        part("id", parts, api).await.map(Self)
    }
}

/// The path's sandbox, which the client may use.
struct InSandbox(Arc<Sandbox>);

impl FromRequestParts<Arc<Api>> for InSandbox {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let client = Client::from_request_parts(parts, api).await?;
        let id = part("id", parts, api).await?;
        Ok(Self(api.sandboxes.get(&client.scope, &id)?))
    }
}

/// The path's process, in its sandbox.
struct InProcess(Arc<Process>);

impl FromRequestParts<Arc<Api>> for InProcess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let InSandbox(sandbox) = InSandbox::from_request_parts(parts, api).await?;
        let pid = part("pid", parts, api).await?;
        let number = pid
            .parse()
            .map_err(|_| Error::Invalid("a process id is a number".to_owned()))?;
        Ok(Self(sandbox.process(number)?))
    }
}

/// The path's process, in a sandbox that is not paused.
struct InActiveProcess(Arc<Process>);

impl FromRequestParts<Arc<Api>> for InActiveProcess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let InSandbox(sandbox) = InSandbox::from_request_parts(parts, api).await?;
        sandbox.check_running()?;
        let InProcess(process) = InProcess::from_request_parts(parts, api).await?;
        Ok(Self(process))
    }
}

/// The path's TCP port.
struct Port(u16);

impl FromRequestParts<Arc<Api>> for Port {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        let port = part("port", parts, api)
            .await?
            .parse()
            .ok()
            .filter(|port| *port != 0);
        let port = port.ok_or_else(|| Error::Invalid("a port is a number from 1 to 65535".to_owned()))?;
        Ok(Self(port))
    }
}

/// The id of the path's context.
struct ContextId(String);

impl FromRequestParts<Arc<Api>> for ContextId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Result<Self, ApiError> {
        part("context", parts, api).await.map(Self)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let reason = match error.kind() {
            ErrorKind::InvalidArguments => Reason::InvalidArguments,
            ErrorKind::NotFound => Reason::NotFound,
            ErrorKind::Conflict => Reason::Conflict,
            ErrorKind::LimitExceeded => Reason::LimitExceeded,
            ErrorKind::NotSupported => Reason::NotSupported,
            ErrorKind::RuntimeUnavailable => Reason::RuntimeUnavailable,
            ErrorKind::Internal => Reason::Internal,
        };
        Self::new(reason, error.to_string(), error.hint())
    }
}

/// A body of bytes that are passed on as they come.
const BYTES: Content = Content::new(
    &[body::BYTES],
    |_| schemars::json_schema!({"type": "string", "format": "binary"}),
);

/// Maximum size of such a request, in bytes.
const MAX_BYTES: usize = 64 << 30;

/// An answer without content.
pub(super) const NOTHING: Content =
    Content::new(&[body::JSON], |_| schemars::json_schema!({"type": "object"}));

/// Returns the part of a request that its record shows, with one more member.
fn described_as(described: &Value, name: &str, value: &str) -> Extension<Described> {
    let mut described = described.clone();
    described[name] = value.into();
    Extension(Described(described))
}

pub(super) fn done() -> Response {
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
