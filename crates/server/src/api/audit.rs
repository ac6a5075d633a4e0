//! `/v1/audit`: the audit log, for its operator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use ringfence_gateway_protocol::visible;
use ringfence_records::audit::{self, ChainBreak, Error, Filter, Link, Verified};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::blocking::BlockingThreads;
use super::body;
use super::content::Content;
use super::error::{ApiError, Reason};
use super::extract::Params;
use super::rights::Right;
use super::route::{Form, Parameter, Place, Route, route};
use super::state::Api;
use super::tenant::Tenant;

/// Number of records shown, and the most that a client may ask for. The records among which it may choose by their members are
/// as many: each has up to 64 KiB.
const SHOWN: usize = 100;
const MAX_SHOWN: usize = 1_000;

/// Maximum length of a damaged line that is shown, in characters.
const MAX_DAMAGED: usize = 1_000;

/// Reads the log: a verification reads all of it.
static READER: BlockingThreads = BlockingThreads::new(1);

const HOST: Parameter = Parameter {
    place: Place::Query,
    name: "host",
    required: false,
    form: Form::Flag,
    description: "The log of commands on the host and of people's answers.",
};

const fn text(name: &'static str, description: &'static str) -> Parameter {
    Parameter {
        place: Place::Query,
        name,
        required: false,
        form: Form::Text,
        description,
    }
}

const TAIL: &[Parameter] = &[
    Parameter {
        place: Place::Query,
        name: "limit",
        required: false,
        form: Form::Number,
        description: "Most records to show: 100 if it is left out, 1000 at most.",
    },
    HOST,
    text(
        "tenant",
        "Only records of this tenant's keys, among the newest 1000.",
    ),
    text(
        "client",
        "Only records of this client, such as the id of a key, among the newest 1000.",
    ),
    text(
        "tool",
        "Only records of this tool or operation, among the newest 1000.",
    ),
    text(
        "outcome",
        "Only records with this outcome, such as `answered` or `failed`, among the newest 1000.",
    ),
];

const VERIFY: &[Parameter] = &[
    HOST,
    text(
        "head",
        "A head that was noted before, as `SEQUENCE:HASH`: it must still be in the log.",
    ),
];

pub(super) fn routes() -> Vec<Route> {
    let tail = route(
        Method::GET,
        "/v1/audit",
        "Show the newest records of the audit log, the newest first.",
        vec![Content::json::<Tail>()],
        |method| on(method, tail),
    )
    .with_parameters(TAIL)
    .with_right(Right::Admin);
    let verify = route(
        Method::GET,
        "/v1/audit/verify",
        "Check every record of the audit log, and that none is missing. A broken log is a success of the API.",
        vec![Content::json::<Verification>()],
        |method| on(method, verify),
    )
    .with_parameters(VERIFY)
    .with_right(Right::Admin);
    vec![tail, verify]
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditTail")]
struct Tail {
    /// Records as the log has them, newest first; `{"damaged": TEXT}` for a line that is none.
    records: Vec<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
struct TailQuery {
    limit: Option<usize>,
    #[serde(default)]
    host: bool,
    tenant: Option<Tenant>,
    client: Option<String>,
    tool: Option<String>,
    outcome: Option<String>,
}

async fn tail(State(api): State<Arc<Api>>, Params(query): Params<TailQuery>) -> Result<Response, ApiError> {
    let limit = query.limit.unwrap_or(SHOWN).min(MAX_SHOWN);
    let filter = Filter {
        scope: query.tenant.as_ref().and_then(Tenant::scope),
        client: query.client,
        tool: query.tool,
        outcome: query.outcome,
    };
    let read = if filter.is_empty() { limit } else { MAX_SHOWN };
    let tail = on_log(&api, query.host, move |directory| {
        let lines = audit::tail(directory, read).map_err(|error| unreadable(&error))?;
        let records = lines.iter().rev().map(|line| record(line));
        let records = records
            .filter(|record| filter.matches(record))
            .take(limit)
            .collect();
        body::render(&Tail { records })
    });
    Ok(([(header::CONTENT_TYPE, body::JSON)], tail.await??).into_response())
}

/// Parses a line of the log, of which nothing is believed.
fn record(line: &str) -> Map<String, Value> {
    serde_json::from_str(line).unwrap_or_else(|_| {
        let shown: String = visible(line).chars().take(MAX_DAMAGED).collect();
        Map::from_iter([("damaged".to_owned(), json!(shown))])
    })
}

/// Findings of a check of the log.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "AuditVerification")]
struct Verification {
    /// `false` if a record was changed or is missing.
    intact: bool,
    /// Number of records; null if the log is broken, as of the next members.
    records: Option<u64>,
    /// Sequence number of the oldest kept record.
    first: Option<u64>,
    /// The newest record as `SEQUENCE:HASH`. Noted elsewhere, it later shows if records were removed or replaced.
    head: Option<String>,
    /// Sequence number of the newest record that was removed to make room.
    removed: Option<u64>,
    /// Number of refused uses that are counted in a common record.
    counted: Option<u64>,
    /// Number of records of a torn line that was cut off.
    repairs: Option<u64>,
    /// Bytes of a record whose writer died.
    torn_bytes: Option<u64>,
    /// The first break; null if the log is intact.
    broken: Option<Broken>,
}

/// A break of the log's chain.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditBreak")]
struct Broken {
    /// Name of the file.
    file: Option<String>,
    /// Number of the line, from 1.
    line: Option<u64>,
    /// Expected sequence number, if it is known.
    sequence: Option<u64>,
    what: String,
}

#[derive(Debug, Deserialize)]
struct VerifyQuery {
    #[serde(default)]
    host: bool,
    head: Option<String>,
}

async fn verify(
    State(api): State<Arc<Api>>,
    Params(query): Params<VerifyQuery>,
) -> Result<Response, ApiError> {
    let head = query.head.map(|head| head.parse::<Link>()).transpose();
    let head = head.map_err(|error| {
        ApiError::new(
            Reason::InvalidArguments,
            error.to_string(),
            "send a `head` that GET /v1/audit/verify has answered",
        )
    })?;
    let verified = on_log(&api, query.host, move |directory| {
        audit::verify(directory, head.as_ref())
    });
    Ok(Json(Verification::of(verified.await?)?).into_response())
}

impl Verification {
    fn of(verified: Result<Verified, Error>) -> Result<Self, ApiError> {
        let broken = match verified {
            Ok(verified) => {
                return Ok(Self {
                    intact: true,
                    records: Some(verified.records),
                    first: verified.first,
                    head: verified.head.map(|head| head.to_string()),
                    removed: verified.removed.map(|removed| removed.last),
                    counted: Some(verified.counted),
                    repairs: Some(verified.repairs),
                    torn_bytes: Some(verified.torn_bytes),
                    broken: None,
                });
            }
            Err(Error::Broken(ChainBreak {
                file,
                line,
                sequence,
                what,
            })) => Broken {
                file: file.file_name().map(|name| name.to_string_lossy().into_owned()),
                line: Some(line),
                sequence,
                what: visible(&what),
            },
            Err(Error::Gone { sequence, why }) => Broken {
                file: None,
                line: None,
                sequence: Some(sequence),
                what: why.to_owned(),
            },
            Err(other) => return Err(unreadable(&other)),
        };
        Ok(Self {
            broken: Some(broken),
            ..Self::default()
        })
    }
}

/// Reads the directory of a log.
async fn on_log<T: Send + 'static>(
    api: &Api,
    host: bool,
    work: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T, ApiError> {
    let directory = api.questions.sources().audit.clone();
    let directory: PathBuf = if host { audit::host(&directory) } else { directory };
    READER.run(move || work(&directory)).await
}

fn unreadable(error: &Error) -> ApiError {
    let message = format!("the audit log cannot be read: {error}");
    ApiError::new(Reason::Internal, message, error.hint())
}
