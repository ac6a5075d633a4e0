//! `/v1/keys`: the keys of the API, for its operator.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use ringfence_policy::Scope;
use schemars::JsonSchema;
use serde::Serialize;

use super::content::{Content, NOTHING, done};
use super::error::{ApiError, Reason};
use super::extract::IdOrName;
use super::key_store::{EndKeyError, Revoked, ShownKey, StoredKey};
use super::rights::Right;
use super::route::{Route, route};
use super::state::Api;
use super::tenant::scope_of;
use crate::remains::RemainsError;

/// Time for what is open in the name of a key to end.
const CLOSING: Duration = Duration::from_secs(10);

pub(super) fn routes() -> Vec<Route> {
    let list = route(
        Method::GET,
        "/v1/keys",
        "List the keys, the oldest first, those that are revoked or have expired among them.",
        vec![Content::json::<KeyList>()],
        |method| on(method, list),
    )
    .with_right(Right::Admin);
    let revoke = route(
        Method::POST,
        "/v1/keys/{id}/revoke",
        "Revoke a key: it opens nothing any more, and what is open in its name ends within a second. A key that is revoked already stays so.",
        vec![NOTHING],
        |method| on(method, revoke),
    )
    .with_right(Right::Admin)
    .recorded_as("key.revoke");
    let remove = route(
        Method::DELETE,
        "/v1/keys/{id}",
        "Remove a key that is revoked or has expired and, unless other keys of its tenant are left, its sandboxes, snapshots, sessions, stored runs and usage. The audit log stays.",
        vec![NOTHING],
        |method| on(method, remove),
    )
    .with_right(Right::Admin)
    .recorded_as("key.remove");
    vec![list, revoke, remove]
}

#[derive(Debug, Serialize, JsonSchema)]
struct KeyList {
    keys: Vec<ShownKey>,
}

async fn list(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    let keys = api.keys.store().list().map_err(EndKeyError::from)?;
    let keys = keys.into_iter().map(StoredKey::shown).collect();
    Ok(Json(KeyList { keys }).into_response())
}

async fn revoke(State(api): State<Arc<Api>>, IdOrName(id): IdOrName) -> Result<Response, ApiError> {
    match api.keys.store().revoke(&id).map_err(EndKeyError::from)? {
        Revoked::Now | Revoked::Before => Ok(done()),
        Revoked::Unknown => Err(EndKeyError::unknown(&id).into()),
    }
}

async fn remove(State(api): State<Arc<Api>>, IdOrName(id): IdOrName) -> Result<Response, ApiError> {
    let ended = api.keys.store().ended(&id)?;
    // What is under way in its name could make something that nobody removes.
    let closing = tokio::time::timeout(CLOSING, api.key_uses.end(&ended.id));
    closing.await.map_err(|_| {
        ApiError::new(
            Reason::Conflict,
            format!("requests of the key `{id}` are still running"),
            "try again in a few seconds",
        )
    })?;
    if let Some(account) = api.keys.store().closed_with(&ended).map_err(EndKeyError::from)? {
        if let Some(scope) = scope_of(&account) {
            api.sandboxes.clear(&scope).await?;
            api.e2b.clear(&scope);
            api.jupyter.clear(&scope);
            api.librechat.clear(&scope);
            remove_remains(&api, scope).await?;
        }
        api.idempotency.forget(&account);
        api.measure();
        api.usage.remove(&account).map_err(|error| {
            let hint = error.hint();
            ApiError::new(Reason::Internal, error.to_string(), hint)
        })?;
    }
    // Last: what has failed can be tried again.
    api.keys.store().remove(&ended).map_err(EndKeyError::from)?;
    Ok(done())
}

/// Removes what the runs of an owner have left, on a thread that may block on the disk.
async fn remove_remains(api: &Api, owner: Scope) -> Result<(), ApiError> {
    let Some(remains) = api.keys.remains().cloned() else {
        return Ok(());
    };
    let removed = tokio::task::spawn_blocking(move || remains.remove(&owner)).await;
    removed.map_err(|_| ApiError::panicked())?.map_err(|error| {
        let reason = match &error {
            RemainsError::Outputs(cause) if cause.kind() == io::ErrorKind::ResourceBusy => Reason::Conflict,
            RemainsError::Outputs(_) | RemainsError::Runs(_) | RemainsError::Questions(_) => Reason::Internal,
        };
        let hint = error.hint();
        ApiError::new(reason, error.to_string(), hint)
    })
}

impl From<EndKeyError> for ApiError {
    fn from(error: EndKeyError) -> Self {
        let reason = match error {
            EndKeyError::Unknown(_) => Reason::NotFound,
            EndKeyError::InForce(_) => Reason::Conflict,
            EndKeyError::Store(_) => Reason::Internal,
        };
        Self::new(reason, error.to_string(), error.hint())
    }
}
