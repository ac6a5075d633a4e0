//! `GET /metrics`: figures for monitoring.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use schemars::json_schema;

use super::content::Content;
use super::rights::Right;
use super::route::{Needs, Route};
use super::state::Api;
use crate::metrics::{Gauges, MEDIA};

pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::GET,
        path: "/metrics",
        needs: Needs::Key(Right::Admin),
        summary: "Show the figures of the server, in the text format of Prometheus.",
        recorded: None,
        parameters: &[],
        request: None,
        answers: vec![Content::new(
            &["text/plain"],
            |_| json_schema!({"type": "string"}),
        )],
        handler: |method| on(method, show),
    }]
}

async fn show(State(api): State<Arc<Api>>) -> Response {
    api.measure();
    let gauges = Gauges {
        sandboxes: api.sandboxes.states(),
        mcp_sessions: api.mcp.count(),
        admission: api.admission.figures(),
        has_stale_certificate: api.certificate.get().map(|state| state.is_stale()),
    };
    let text = api.metrics.render(&gauges).await;
    ([(header::CONTENT_TYPE, MEDIA)], text).into_response()
}
