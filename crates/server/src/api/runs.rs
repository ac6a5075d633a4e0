//! `/v1/runs`: stored runs, for those whose programs they were.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use ringfence_exec::artifact::{self, Store, Stored};
use ringfence_policy::{ExecutionResult, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::blocking::BlockingThreads;
use super::body;
use super::content::Content;
use super::error::{ApiError, Reason};
use super::extract::{IdOrName, Params};
use super::keys::Grant;
use super::rights::Right;
use super::route::{Form, Parameter, Place, Route, route};
use super::state::Api;
use crate::questions::Reach;

/// Number of runs of a page, and the most that a client may ask for.
const PAGE: usize = 50;
const MAX_PAGE: usize = 100;

/// Maximum length of the records read for a page, which may be one record longer.
const MAX_READ: usize = 16 << 20;

/// Reads records: each may be a large one.
static READERS: BlockingThreads = BlockingThreads::new(2);

const LIMIT: Parameter = Parameter {
    place: Place::Query,
    name: "limit",
    required: false,
    form: Form::Number,
    description: "Most runs to list: 50 if it is left out, 100 at most. A page of long records has fewer.",
};

const BEFORE: Parameter = Parameter {
    place: Place::Query,
    name: "before",
    required: false,
    form: Form::Text,
    description: "List runs that are older than the one of this id: `next` of the page before.",
};

pub(super) fn routes() -> Vec<Route> {
    let list = route(
        Method::GET,
        "/v1/runs",
        "List stored runs, the newest first: those of the key's tenant, or with the right `admin` all. By default the server stores failed runs alone.",
        vec![Content::json::<RunPage>()],
        |method| on(method, list),
    )
    .with_parameters(&[LIMIT, BEFORE])
    .with_right(Right::Run);
    let show = route(
        Method::GET,
        "/v1/runs/{id}",
        "Show a stored run with its code and output, by the name that its result has as `meta.artifact`.",
        vec![Content::json::<StoredRun>()],
        |method| on(method, show),
    )
    .with_right(Right::Run);
    vec![list, show]
}

#[derive(Debug, Serialize, JsonSchema)]
struct RunPage {
    runs: Vec<RunSummary>,
    /// `before` of the next page; null at the end.
    next: Option<String>,
}

/// A stored run in a list.
#[derive(Debug, Serialize, JsonSchema)]
struct RunSummary {
    id: String,
    /// Time of the request, in UTC.
    time: String,
    language: &'static str,
    outcome: Outcome,
    exit_code: i32,
}

/// A stored run. Values that look like credentials were removed before it was stored.
#[derive(Debug, Serialize, JsonSchema)]
struct StoredRun {
    id: String,
    /// Time of the request, in UTC.
    time: String,
    language: &'static str,
    code: String,
    result: ExecutionResult,
}

#[derive(Debug, Deserialize)]
struct PageQuery {
    limit: Option<usize>,
    before: Option<String>,
}

async fn list(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    Params(query): Params<PageQuery>,
) -> Result<Response, ApiError> {
    let reach = grant.reach()?;
    if query.limit == Some(0) {
        return Err(ApiError::new(
            Reason::InvalidArguments,
            format!("`limit` must be from 1 to {MAX_PAGE}, got 0"),
            format!("leave it out for {PAGE}"),
        ));
    }
    let page = read(&api, move |runs| page(runs, &reach, &query)).await?;
    Ok(Json(page.map_err(|_| unreadable())?).into_response())
}

async fn show(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    IdOrName(id): IdOrName,
) -> Result<Response, ApiError> {
    let reach = grant.reach()?;
    // As `meta.artifact` names it.
    let name = id.strip_suffix(".json").unwrap_or(&id).to_owned();
    let found = read(&api, move |runs| {
        let (stored, _) = runs.open(&name)?;
        let shown = reach.has_run(&stored).then(|| StoredRun {
            id: name,
            time: stored.timestamp,
            language: stored.language.as_str(),
            code: stored.code,
            result: stored.result,
        })?;
        Some(body::render(&shown))
    });
    let found = found.await?.ok_or_else(|| {
        ApiError::new(
            Reason::NotFound,
            format!("there is no stored run `{id}`"),
            "GET /v1/runs lists them",
        )
    })?;
    let json = found?;
    Ok(([(header::CONTENT_TYPE, body::JSON)], json).into_response())
}

/// Reads stored runs.
async fn read<T: Send + 'static>(
    api: &Api,
    work: impl FnOnce(&Store) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let runs = api.questions.sources().runs.clone();
    READERS.run(move || work(&runs)).await
}

impl Reach {
    /// Returns `true` if a record is within reach.
    fn has_run(&self, stored: &Stored) -> bool {
        match self {
            Self::All => true,
            Self::Of(scope) => stored.is_of(scope),
        }
    }
}

fn page(runs: &Store, reach: &Reach, query: &PageQuery) -> Result<RunPage, artifact::Error> {
    let scope = match reach {
        Reach::All => None,
        Reach::Of(scope) => Some(scope),
    };
    let limit = query.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let names = runs.newest(scope)?;
    let is_older = |name: &String| query.before.as_ref().is_none_or(|before| name < before);
    let mut names = names.into_iter().filter(is_older).peekable();
    let (mut page, mut bytes, mut last) = (Vec::new(), 0, None);
    while page.len() < limit && bytes < MAX_READ {
        let Some(name) = names.next() else { break };
        if let Some((stored, length)) = runs.open(&name) {
            bytes += length;
            page.extend(reach.has_run(&stored).then(|| RunSummary {
                id: name.clone(),
                time: stored.timestamp,
                language: stored.language.as_str(),
                outcome: stored.result.meta.outcome,
                exit_code: stored.result.exit_code,
            }));
        }
        last = Some(name);
    }
    let next = names.peek().and(last);
    Ok(RunPage { runs: page, next })
}

fn unreadable() -> ApiError {
    ApiError::new(
        Reason::Internal,
        "the stored runs cannot be read",
        "ask the operator, who checks the directory of `artifacts.dir`",
    )
}
