//! Writes audit records for routes that call no tool.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ringfence_records::audit::{AuditedCaller, Operation, Outcome};
use ringfence_tools::toolbox::Surface;
use serde_json::{Value, json};

use super::error::{ApiError, Reason};
use super::extract::Owner;
use super::keys::Grant;
use super::state::Api;
use ringfence_http as http;

/// Record of one route.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    pub(super) api: Arc<Api>,
    /// Name of the operation, in the place of a tool's.
    pub(super) name: &'static str,
}

impl Recorder {
    /// Checks that the operation can be recorded. What ends something is done all the same: it may make the room.
    fn check_room(&self) -> Result<(), ApiError> {
        if ends_something(self.name) || self.api.log.has_room() {
            return Ok(());
        }
        Err(ApiError::new(
            Reason::RuntimeUnavailable,
            "it was not done: the disk of the audit log is full, so that it could not be recorded",
            "ask the operator, who makes room where the audit log lies",
        ))
    }
}

/// Returns `true` if an operation, by the name of its record, ends, removes or denies something.
pub(super) fn ends_something(operation: &str) -> bool {
    matches!(
        operation,
        // Approvals are refused by the log of answers, which are recorded there before they count.
        "approval.answer"
            | "image.remove"
            | "key.remove"
            | "key.revoke"
            | "sandbox.delete"
            | "sandbox.interrupt"
            | "sandbox.kill"
            | "sandbox.pause"
            | "sandbox.remove"
            | "sandbox.remove_context"
            | "sandbox.signal"
            | "snapshot.remove"
            | "template.untag"
    )
}

/// The part of a request's body that its record shows; a handler puts it into its response.
#[derive(Debug, Clone)]
pub(super) struct Described(pub(super) Value);

/// Returns the part of a request that its record shows, with one more member.
pub(super) fn described_as(described: &Value, name: &str, value: &str) -> Extension<Described> {
    let mut described = described.clone();
    described[name] = value.into();
    Extension(Described(described))
}

/// An operation under way. Dropped without an answer, it is recorded as cancelled.
struct UnderWay {
    recorder: Recorder,
    scope: String,
    client: String,
    arguments: Value,
    started: SystemTime,
    began: Instant,
    is_recorded: bool,
}

/// Records a request with its outcome, before its answer leaves. A stream is recorded as it begins.
pub(super) async fn record(State(recorder): State<Recorder>, request: Request, next: Next) -> Response {
    let Some(mut operation) = UnderWay::of(recorder, &request) else {
        return next.run(request).await;
    };
    if let Err(error) = operation.recorder.check_room() {
        operation.is_recorded = true;
        return error.into_response();
    }
    let response = next.run(request).await;
    if let Some(Described(described)) = response.extensions().get() {
        operation.arguments["request"] = described.clone();
    }
    let error = response.extensions().get::<Reason>().map(|reason| reason.row().1);
    match operation.end(error) {
        Ok(()) => response,
        Err(error) => error.into_response(),
    }
}

/// Like [`record`], for a request of one of E2B's clients, with the arguments of its record.
pub(super) async fn record_e2b(
    recorder: Recorder,
    client: &ringfence_e2b::Client,
    arguments: Value,
    answer: impl Future<Output = Response>,
) -> Response {
    if let Err(error) = recorder.check_room() {
        return ringfence_e2b::Error::internal(error.message().to_owned()).into_response();
    }
    let mut operation = UnderWay {
        scope: client.scope.as_str().to_owned(),
        client: client.name.clone(),
        arguments,
        started: SystemTime::now(),
        began: Instant::now(),
        is_recorded: false,
        recorder,
    };
    let response = answer.await;
    if let Some(ringfence_e2b::Described(described)) = response.extensions().get() {
        operation.arguments["request"] = described.clone();
    }
    let failure = response.extensions().get::<ringfence_e2b::Failure>();
    match operation.end(failure.map(|failure| failure.0)) {
        Ok(()) => response,
        Err(error) => ringfence_e2b::Error::internal(error.message().to_owned()).into_response(),
    }
}

/// Records an act that a client asks for by a message, before it is done.
pub(super) fn record_act(recorder: Recorder, grant: &Grant, described: &Value) -> Result<(), ApiError> {
    let mut act = UnderWay {
        scope: Owner::default().scope(grant)?.as_str().to_owned(),
        client: grant.client.clone(),
        arguments: described.clone(),
        started: SystemTime::now(),
        began: Instant::now(),
        is_recorded: false,
        recorder,
    };
    act.end(None)
}

/// Returns a path, with its query unless that has a token, which may be a key.
fn shown(uri: &Uri) -> String {
    match http::has_token(uri) {
        true => uri.path().to_owned(),
        false => uri.to_string(),
    }
}

impl UnderWay {
    /// Describes a request by its path and query. `None` if nobody was let in.
    fn of(recorder: Recorder, request: &Request) -> Option<Self> {
        let grant = request.extensions().get::<Arc<Grant>>()?;
        let owner = axum::extract::Query::<Owner>::try_from_uri(request.uri());
        let owner = owner.map(|query| query.0).unwrap_or_default();
        let scope = owner.scope(grant);
        Some(Self {
            scope: scope.map_or_else(|_| "-".to_owned(), |scope| scope.as_str().to_owned()),
            client: grant.client.clone(),
            arguments: json!({ "path": shown(request.uri()) }),
            started: SystemTime::now(),
            began: Instant::now(),
            is_recorded: false,
            recorder,
        })
    }

    /// Records the end: a failure, if there is an error.
    fn end(&mut self, error: Option<&str>) -> Result<(), ApiError> {
        let outcome = match error {
            Some(_) => Outcome::Failed,
            None => Outcome::Answered,
        };
        self.append(outcome, error)
    }

    fn append(&mut self, outcome: Outcome, error: Option<&str>) -> Result<(), ApiError> {
        self.is_recorded = true;
        let operation = Operation {
            who: AuditedCaller {
                scope: &self.scope,
                session: None,
                surface: Surface::Http.as_str(),
                client: Some(&self.client),
            },
            name: self.recorder.name,
            arguments: &self.arguments,
            started: self.started,
            duration: self.began.elapsed(),
            outcome,
            error,
        };
        self.recorder.api.log.append(&operation).map_err(|error| {
            ApiError::new(
                Reason::Internal,
                format!("the audit log cannot be written: {error}"),
                error.hint(),
            )
        })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.is_recorded {
            // Nobody is left who could be told.
            let _ = self.append(Outcome::Cancelled, Some("cancelled"));
        }
    }
}
