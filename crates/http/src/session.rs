//! The exchange of a browser's ticket for a session.

use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;

use super::Refusal;
use super::credentials::SESSION_PATH;
use super::guard::Guard;

/// A ticket; links name it `token`.
#[derive(Deserialize)]
struct Exchange {
    token: String,
}

/// Returns the route that exchanges a ticket for a session.
pub(crate) fn routes(guard: Arc<Guard>) -> Router {
    Router::new()
        .route(SESSION_PATH, post(exchange))
        .with_state(guard)
}

async fn exchange(
    State(guard): State<Arc<Guard>>,
    body: Result<Json<Exchange>, JsonRejection>,
) -> Result<Response, Refusal> {
    let credentials = guard.credentials();
    match body {
        Ok(Json(Exchange { token })) if credentials.take(&token) => Ok(credentials.open()),
        _ => Err(guard.failed()),
    }
}
