//! Lists pending and past approval requests, and accepts answers.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State as Given};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use ringfence_records::approval::{Error, Unanswerable};
use serde::Serialize;

use super::Shared;
use crate::questions::{self, Accepted, AnswerBody, Question, Reach, now};
use ringfence_http::Refusal;

/// Name of the answerer, as shown elsewhere.
const BY: &str = "console";

/// A person at this machine may answer for everybody.
const REACH: Reach = Reach::All;

pub(super) fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/api/approvals", get(list))
        .route("/api/approvals/{id}", post(answer))
        .with_state(shared)
}

#[derive(Serialize)]
struct Listed {
    /// The server's clock, in milliseconds since 1970, the reference for remaining times.
    now: u64,
    /// Pending requests, oldest first.
    waiting: Vec<Question>,
    /// Past requests, newest first.
    history: Vec<Question>,
}

async fn list(Given(shared): Given<Arc<Shared>>) -> Result<Json<Listed>, Refusal> {
    let service = &shared.hub.sources().approvals;
    let waiting = questions::waiting(service, &REACH)
        .await
        .map_err(|error| failed(&error))?;
    let past = questions::past(service, &REACH)
        .await
        .map_err(|error| failed(&error))?;
    let shown = |request| Question::of(request, &REACH);
    Ok(Json(Listed {
        now: now(),
        waiting: waiting.iter().map(shown).collect(),
        history: past.iter().map(shown).collect(),
    }))
}

async fn answer(
    Given(shared): Given<Arc<Shared>>,
    Path(id): Path<String>,
    body: Result<Json<AnswerBody>, JsonRejection>,
) -> Result<Json<Accepted>, Refusal> {
    let Json(said) = body.map_err(|rejection| MALFORMED.saying(rejection.body_text()))?;
    let service = &shared.hub.sources().approvals;
    let given = questions::answer(service, &REACH, &id, said, BY).await;
    Ok(Json(given.map_err(|error| failed(&error))?))
}

const MALFORMED: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "malformed",
    "the body is not an answer",
    "send `approved`, `digest` and, if you want, `remember`, as docs/protocol/console.md describes them",
);

fn failed(error: &Error) -> Refusal {
    let (status, kind) = match error {
        Error::Unanswerable(why) => (
            match why {
                Unanswerable::Unknown => StatusCode::NOT_FOUND,
                Unanswerable::Late(_) | Unanswerable::OtherText => StatusCode::CONFLICT,
                Unanswerable::NotRemembered => StatusCode::UNPROCESSABLE_ENTITY,
            },
            why.as_str(),
        ),
        Error::Store(_)
        | Error::File { .. }
        | Error::Approved { .. }
        | Error::Foreign(_)
        | Error::Random(_)
        | Error::Text(_)
        | Error::TooMany(_)
        | Error::Unrecorded(_)
        | Error::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
    };
    Refusal::new(status, kind, "", error.hint()).saying(error.to_string())
}
