//! `/v1/approvals`: questions to people, for clients that show and answer them.

mod events;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use ringfence_records::approval::{Error, Service, Unanswerable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::body;
use super::content::Content;
use super::error::{ApiError, Reason};
use super::extract::{IdOrName, Params};
use super::keys::Grant;
use super::rights::Right;
use super::route::{Form, Parameter, Place, Route, route};
use super::state::Api;
use crate::questions::{self, Accepted, AnswerBody, Question, Reach, now};

/// Maximum size of an answer.
const MAX: usize = 1024 * 1024;

const PAST: Parameter = Parameter {
    place: Place::Query,
    name: "past",
    required: false,
    form: Form::Flag,
    description: "Show past questions, too: the newest 100, and the newest 25 each that were approved, denied or never answered.",
};

pub(super) fn routes() -> Vec<Route> {
    let list = route(
        Method::GET,
        "/v1/approvals",
        "List the questions to people that wait for an answer, the oldest first: those of the key's tenant, or with the right `admin` all.",
        vec![Content::json::<QuestionList>()],
        |method| on(method, list),
    )
    .with_parameters(&[PAST])
    .with_right(Right::Approvals);
    let show = route(
        Method::GET,
        "/v1/approvals/{id}",
        "Show a question, pending or past.",
        vec![Content::json::<Question>()],
        |method| on(method, show),
    )
    .with_right(Right::Approvals);
    let answer = route(
        Method::POST,
        "/v1/approvals/{id}",
        "Answer a question, by the digest of the text that was shown. The first answer in time counts; later ones are a conflict.",
        vec![Content::json::<Accepted>()],
        |method| on(method, answer),
    )
    .with_body(Content::json::<AnswerBody>().at_most(MAX))
    .recorded_as("approval.answer")
    .with_right(Right::Approvals);
    vec![list, events::route(), show, answer]
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ApprovalList")]
struct QuestionList {
    /// The server's clock, in milliseconds since 1970, the reference for remaining times.
    now: u64,
    /// Pending questions, oldest first.
    waiting: Vec<Question>,
    /// Past questions, newest first; empty unless they are asked for.
    past: Vec<Question>,
}

#[derive(Deserialize)]
struct ListQuery {
    #[serde(default)]
    past: bool,
}

async fn list(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    Params(query): Params<ListQuery>,
) -> Result<Response, ApiError> {
    let (service, reach) = (service(&api), grant.reach()?);
    let waiting = questions::waiting(service, &reach).await?;
    let past = match query.past {
        true => questions::past(service, &reach).await?,
        false => Vec::new(),
    };
    let list = body::render_off_thread(move || {
        let shown = |request| Question::of(request, &reach);
        QuestionList {
            now: now(),
            waiting: waiting.iter().map(shown).collect(),
            past: past.iter().map(shown).collect(),
        }
    });
    let json = list.await?;
    Ok(([(header::CONTENT_TYPE, body::JSON)], json).into_response())
}

async fn show(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    let reach = grant.reach()?;
    let found = find(&api, &reach, &id).await?;
    Ok(Json(Question::of(&found, &reach)).into_response())
}

async fn answer(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    IdOrName(id): IdOrName,
    request: Request,
) -> Result<Response, ApiError> {
    let reach = grant.reach()?;
    // An id of another tenant and an unknown one are refused alike, whatever the body.
    find(&api, &reach, &id).await?;
    let said: AnswerBody = body::json(request).await?;
    let accepted = questions::answer(service(&api), &reach, &id, said, &grant.client).await;
    let accepted = accepted.map_err(|error| match error {
        Error::Unanswerable(Unanswerable::Unknown) => unknown(&id),
        other => other.into(),
    })?;
    Ok(Json(accepted).into_response())
}

fn service(api: &Api) -> &Service {
    &api.questions.sources().approvals
}

async fn find(api: &Api, reach: &Reach, id: &str) -> Result<ringfence_records::approval::Request, ApiError> {
    let parsed = id.parse().map_err(|_| unknown(id))?;
    let found = questions::find(service(api), reach, &parsed).await?;
    found.ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> ApiError {
    ApiError::new(
        Reason::NotFound,
        format!("there is no question `{id}`"),
        "GET /v1/approvals lists the questions",
    )
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let reason = match &error {
            Error::Unanswerable(why) => match why {
                Unanswerable::Unknown => Reason::NotFound,
                Unanswerable::Late(_) | Unanswerable::OtherText => Reason::Conflict,
                Unanswerable::NotRemembered => Reason::InvalidArguments,
            },
            Error::Store(_)
            | Error::File { .. }
            | Error::Approved { .. }
            | Error::Foreign(_)
            | Error::Random(_)
            | Error::Text(_)
            | Error::TooMany(_)
            | Error::Unrecorded(_)
            | Error::Broken => Reason::Internal,
        };
        let hint = match &error {
            Error::Unanswerable(Unanswerable::Unknown | Unanswerable::Late(_)) => {
                "GET /v1/approvals lists the questions that wait"
            }
            Error::Unanswerable(_) => error.hint(),
            // What the operator can do is on the operator's machine.
            _ => "ask the operator, who finds more in `ringfence doctor`",
        };
        // Paths of the server's files are not the client's business.
        let message = match &error {
            Error::Unanswerable(why) => why.to_string(),
            _ => "the store of questions cannot be used".to_owned(),
        };
        Self::new(reason, message, hint)
    }
}
