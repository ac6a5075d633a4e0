//! Lists the newest tool calls from the audit log.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use ringfence_records::audit;
use serde::Serialize;

use super::Shared;
use super::messages::Run;
use ringfence_http::Refusal;

/// Maximum number of runs shown.
const MAX_SHOWN: usize = 100;

pub(super) fn routes(shared: Arc<Shared>) -> Router {
    Router::new().route("/api/runs", get(list)).with_state(shared)
}

#[derive(Serialize)]
struct Listed {
    /// Newest first.
    runs: Vec<Run>,
}

async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Listed>, Refusal> {
    let directory = shared.hub.sources().audit.clone();
    let lines = tokio::task::spawn_blocking(move || audit::tail(&directory, MAX_SHOWN)).await;
    let lines = lines.map_err(|_| UNREADABLE)?.map_err(|_| UNREADABLE)?;
    Ok(Json(Listed {
        runs: lines.iter().rev().filter_map(|line| Run::read(line)).collect(),
    }))
}

const UNREADABLE: Refusal = Refusal::new(
    StatusCode::INTERNAL_SERVER_ERROR,
    "internal",
    "the audit log cannot be read",
    "`ringfence audit verify` tells what is wrong with it",
);
