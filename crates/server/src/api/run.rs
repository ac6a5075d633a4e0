//! `POST /v1/run`: runs one program.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use ringfence_policy::{ExecutionResult, RemoteRequest};
use ringfence_tools::toolbox::{ADVICE, wrong_arguments};
use serde_json::Value;

use super::content::Content;
use super::error::ApiError;
use super::keys::Grant;
use super::rights::Right;
use super::route::{Needs, Route};
use super::state::Api;
use super::{body, events};

/// The tool that every program goes through.
pub(super) const TOOL: &str = "run_code";

/// Maximum size of a program with its input and files, as JSON. A program of 8 MiB may double when it is escaped.
const MAX: usize = 32 * 1024 * 1024;

pub(super) fn routes() -> Vec<Route> {
    vec![Route {
        method: Method::POST,
        path: "/v1/run",
        needs: Needs::Key(Right::Run),
        summary: "Run a program, and answer with its result or, with `Accept: text/event-stream`, with events.",
        recorded: None,
        parameters: &[],
        request: Some(Content::json::<RemoteRequest>().at_most(MAX)),
        answers: vec![Content::json::<ExecutionResult>(), events::CONTENT],
        handler: |method| on(method, run),
    }]
}

/// Describes wrong arguments as a wrong body: the tool has no name in this route.
pub(super) fn of_body(error: ApiError) -> ApiError {
    match error.message().strip_prefix(&wrong_arguments(TOOL)) {
        Some(rest) => {
            let message = format!("the body does not match the schema{rest}");
            let hint = match error.hint() {
                ADVICE => body::SCHEMA_HINT,
                hint => hint,
            };
            ApiError::new(error.reason(), message, hint)
        }
        None => error,
    }
}

async fn run(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, ApiError> {
    let wants_events = events::accepts(request.headers());
    let arguments: Value = body::json(request).await?;
    let used = api.admitted(&grant, TOOL, arguments).await?;
    if wants_events {
        let (invocation, chunks) = api.invocations.stream(used);
        return Ok(events::response(invocation, chunks));
    }
    let answer = api.invocations.start(used).answer().await.map_err(of_body)?;
    // The text is the result's JSON.
    Ok(([(header::CONTENT_TYPE, body::JSON)], answer.text).into_response())
}
