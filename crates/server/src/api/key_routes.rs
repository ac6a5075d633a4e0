//! `/v1/keys`: the keys of the API, for its operator.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::routing::on;

use super::Api;
use super::error::{ApiError, Reason};
use super::key_store::RemoveKeyError;
use super::keys::{Right, scope_of};
use super::sandboxes::{IdOrName, NOTHING, done};
use super::table::{Needs, Route};

pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::DELETE,
        path: "/v1/keys/{id}",
        needs: Needs::Key(Right::Admin),
        summary: "Remove a key that is revoked or has expired and, unless other keys of its tenant are left, its sandboxes, snapshots, sessions and usage. The audit log stays.",
        recorded: Some("key.remove"),
        parameters: &[],
        request: None,
        answers: vec![NOTHING],
        handler: |method| on(method, remove),
    }]
}

async fn remove(State(api): State<Arc<Api>>, IdOrName(id): IdOrName) -> Result<Response, ApiError> {
    let ended = api.keys.store().ended(&id)?;
    if let Some(account) = api
        .keys
        .store()
        .closed_with(&ended)
        .map_err(RemoveKeyError::from)?
    {
        if let Some(scope) = scope_of(&account) {
            api.sandboxes.clear(&scope).await?;
        }
        api.idempotency.forget(&account);
        api.measure();
        api.usage.remove(&account).map_err(|error| {
            let hint = error.hint();
            ApiError::new(Reason::Internal, error.to_string(), hint)
        })?;
    }
    // Last: what has failed can be tried again.
    api.keys.store().remove(&ended).map_err(RemoveKeyError::from)?;
    Ok(done())
}

impl From<RemoveKeyError> for ApiError {
    fn from(error: RemoveKeyError) -> Self {
        let reason = match error {
            RemoveKeyError::Unknown(_) => Reason::NotFound,
            RemoveKeyError::InForce(_) => Reason::Conflict,
            RemoveKeyError::Store(_) => Reason::Internal,
        };
        Self::new(reason, error.to_string(), error.hint())
    }
}
