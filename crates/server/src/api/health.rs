//! `/healthz`, `/readyz`: answers for supervisors and load balancers, which wait for no program.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use axum::routing::on;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::body;
use super::content::Content;
use super::error::{ApiError, Reason};
use super::route::{Needs, Route};
use super::state::Api;

const CONTENT: Content = Content::new(&[body::JSON], status);

fn status(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "status": {"const": "ok"},
            "certificate": {
                "const": "stale",
                "description": "Of /readyz, while renewed files of the certificate cannot be used, and the one before is."
            }
        },
        "required": ["status"]
    })
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route {
            method: Method::GET,
            path: "/healthz",
            needs: Needs::Nothing,
            summary: "Answer while the server lives.",
            recorded: None,
            parameters: &[],
            request: None,
            answers: vec![CONTENT],
            handler: |method| on(method, lives),
        },
        Route {
            method: Method::GET,
            path: "/readyz",
            needs: Needs::Nothing,
            summary: "Answer while programs may begin: the server does not drain, its runtime can run them, and the disk has room to record them.",
            recorded: None,
            parameters: &[],
            request: None,
            answers: vec![CONTENT],
            handler: |method| on(method, is_ready),
        },
    ]
}

/// Returns `true` for a path here.
pub(super) fn is_path(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

async fn lives() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// Asks the runtime, of which the caller learns nothing more: it has shown no key.
async fn is_ready(State(api): State<Arc<Api>>) -> Result<Json<Value>, ApiError> {
    if api.drain.is_draining() {
        return Err(ApiError::draining());
    }
    if !api.toolbox.can_record() {
        return Err(ApiError::new(
            Reason::RuntimeUnavailable,
            "no program can be recorded now, so that none is answered",
            "ask the operator, who makes room where the audit log lies",
        ));
    }
    match api.toolbox.unavailable().await {
        // It serves all the same: taken out of service it would serve nobody.
        None if api.certificate.get().is_some_and(|state| state.is_stale()) => {
            Ok(Json(json!({"status": "ok", "certificate": "stale"})))
        }
        None => Ok(lives().await),
        Some(_) => Err(ApiError::new(
            Reason::RuntimeUnavailable,
            "the configured runtime cannot run programs now",
            "ask the operator, who finds the reason with a run of their own",
        )),
    }
}
