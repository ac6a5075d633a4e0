//! Lists pending and past approval requests, and accepts answers.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State as Given};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use ringfence_records::approval::{Answer, Error, Id, Remember, State, Unanswerable, Verdict};
use ringfence_records::audit::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Shared;
use super::messages::Question;
use crate::http::Refusal;

/// Maximum number of past requests shown.
pub(super) const MAX_SHOWN: usize = 100;

/// Name of the answerer, as shown elsewhere.
const BY: &str = "console";

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
    let service = &shared.sources.approvals;
    let waiting = service.waiting().await.map_err(|error| failed(&error))?;
    let newest = service.newest(MAX_SHOWN).await.map_err(|error| failed(&error))?;
    let over = newest
        .iter()
        .rev()
        .filter(|request| request.state != State::Pending);
    Ok(Json(Listed {
        now: now(),
        waiting: waiting.iter().map(Question::from).collect(),
        history: over.map(Question::from).collect(),
    }))
}

/// A person's answer. It must name the digest of the text that the person was shown.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    approved: bool,
    digest: Digest,
    #[serde(default)]
    remember: Remember,
}

async fn answer(
    Given(shared): Given<Arc<Shared>>,
    Path(id): Path<String>,
    body: Result<Json<AnswerBody>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let Json(said) = body.map_err(|rejection| MALFORMED.saying(rejection.body_text()))?;
    let service = &shared.sources.approvals;
    let id: Id = id.parse().map_err(|_| UNKNOWN)?;
    let request = service.request(&id).await.map_err(|error| failed(&error))?;
    // A person at this machine may answer for every chat.
    let chat = request.ok_or(UNKNOWN)?.chat;
    let verdict = if said.approved {
        Verdict::Approve
    } else {
        Verdict::Reject
    };
    let answer = Answer {
        id: id.clone(),
        verdict,
        remember: said.remember,
        chat,
        digest: said.digest,
        by: BY.to_owned(),
    };
    service.answer(answer).await.map_err(|error| failed(&error))?;
    Ok(Json(json!({"id": id, "approved": said.approved})))
}

const MALFORMED: Refusal = Refusal::new(
    StatusCode::BAD_REQUEST,
    "malformed",
    "the body is not an answer",
    "send `approved`, `digest` and, if you want, `remember`, as docs/protocol/console.md describes them",
);

const UNKNOWN: Refusal = Refusal::new(
    StatusCode::NOT_FOUND,
    "unknown",
    "there is no approval request with this id",
    "GET /api/approvals lists the pending requests",
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

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
