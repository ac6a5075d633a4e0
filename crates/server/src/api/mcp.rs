//! `/mcp`: the tools of agents by the Model Context Protocol, over streamable HTTP.

pub(super) mod sessions;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use hyper::body::Bytes;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;
use tokio::sync::mpsc;

use super::content::Content;
use super::error::{ApiError, Reason};
use super::events::{COMMENT, HEARTBEAT, MEDIA};
use super::extract::Owner;
use super::keys::Grant;
use super::route::{Form, Needs, Parameter, Place, Route};
use super::state::Api;
use super::{body, stream};
use ringfence_http::single;
use ringfence_mcp::session::{
    Exchange, Incoming, Kind, MAX_FIRST, MAX_MESSAGE, MessageError, Outgoing, SendError, SessionOwner,
    is_version,
};
use ringfence_policy::json::MAX_VALUES;
use sessions::{InUse, RIGHT};

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

const VERSION_PARAMETER: Parameter = Parameter {
    place: Place::Header,
    name: "MCP-Protocol-Version",
    required: false,
    form: Form::McpVersion,
    description: "The version that `initialize` agreed on.",
};

const MAYBE_SESSION: Parameter = Parameter {
    place: Place::Header,
    name: "Mcp-Session-Id",
    required: false,
    form: Form::Text,
    description: "The session, as the answer to `initialize` named it. Without it only `initialize` is taken.",
};

const OF_SESSION: &[Parameter] = &[
    Parameter {
        required: true,
        description: "The session, as the answer to `initialize` named it.",
        ..MAYBE_SESSION
    },
    VERSION_PARAMETER,
];

const MESSAGE: Content = Content::new(&[body::JSON], message);

const MESSAGES: Content = Content::new(
    &[MEDIA],
    |_| json_schema!({"type": "string", "description": "Events `message`, each with a message as its data."}),
);

fn message(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "description": "A message of JSON-RPC 2.0, as the Model Context Protocol describes them.",
        "properties": {"jsonrpc": {"const": "2.0"}},
        "required": ["jsonrpc"],
    })
}

pub(super) fn routes() -> Vec<Route> {
    let nothing = Content::new(&[], |_| json_schema!({})).with_status(202);
    let route = |method, summary, parameters, answers, handler| Route {
        method,
        path: "/mcp",
        needs: Needs::Key(RIGHT),
        summary,
        recorded: None,
        parameters,
        request: None,
        answers,
        handler,
    };
    vec![
        route(
            Method::POST,
            "Send a message of the Model Context Protocol. A tool call is answered with events, another request with JSON.",
            &[MAYBE_SESSION, VERSION_PARAMETER],
            vec![MESSAGE, MESSAGES, nothing],
            |method| on(method, post),
        )
        .with_body(MESSAGE.at_most(MAX_MESSAGE)),
        route(
            Method::GET,
            "Listen to the messages of a session that belong to no request of it.",
            OF_SESSION,
            vec![MESSAGES],
            |method| on(method, listen),
        ),
        route(
            Method::DELETE,
            "End a session of the Model Context Protocol, and cancel its calls.",
            OF_SESSION,
            vec![Content::new(&[body::JSON], |_| json_schema!({"type": "object"}))],
            |method| on(method, end),
        ),
    ]
}

async fn post(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    request: Request,
) -> Result<Response, ApiError> {
    let headers = request.headers().clone();
    check_accept(&headers, &[body::JSON, MEDIA])?;
    check_version(&headers)?;
    let (_, bytes) = body::read(request, &[body::JSON]).await?;
    if !headers.contains_key(SESSION) && bytes.len() > MAX_FIRST {
        return Err(body::too_large(MAX_FIRST));
    }
    let parsed = body::off_thread(bytes, |bytes| {
        body::check_values(bytes, MAX_VALUES)?;
        Incoming::parse(bytes).map_err(Into::into)
    })
    .await?;
    let Some(mut message) = parsed else {
        // A notification that is not known: there is nothing to do about it.
        session(&api, &grant, &headers)?;
        return Ok(StatusCode::ACCEPTED.into_response());
    };
    match message.kind() {
        Kind::Initialize => initialize(&api, &grant, &headers, message).await,
        Kind::Question => answer(session(&api, &grant, &headers)?.session().ask(message)?).await,
        Kind::Call => {
            let session = session(&api, &grant, &headers)?;
            let work = api.drain.begin()?;
            api.check_quota(&grant)?;
            let turn = api.admission.enter(&grant).await?;
            // As for calls on other paths, until the run is stored.
            let using = api.key_uses.begin(&grant.client, RIGHT);
            message.keep((turn, api.begin(&grant)?, using));
            let exchange = session.session().ask(message)?;
            Ok(stream::holding(events(Messages::Call(exchange), session), work))
        }
        Kind::Notice => {
            session(&api, &grant, &headers)?.session().tell(message)?;
            Ok(StatusCode::ACCEPTED.into_response())
        }
    }
}

/// Opens a session, and answers with its id.
async fn initialize(
    api: &Arc<Api>,
    grant: &Grant,
    headers: &HeaderMap,
    message: Incoming,
) -> Result<Response, ApiError> {
    if headers.contains_key(SESSION) {
        return Err(malformed(
            "the session has begun already",
            "send `initialize` without `Mcp-Session-Id`",
        ));
    }
    let owner = SessionOwner {
        toolbox: Arc::clone(&api.toolbox),
        // As for tools on other paths.
        scope: Owner::default().scope(grant)?,
        credential: grant.client.clone(),
    };
    let (id, session) = api.mcp.open(grant, owner, &api.key_uses)?;
    let mut response = answer(session.session().ask(message)?).await?;
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(SESSION, id);
    }
    Ok(response)
}

/// Answers a request with JSON.
async fn answer(mut exchange: Exchange) -> Result<Response, ApiError> {
    while let Some(message) = exchange.next().await {
        if let Outgoing::Answer(json) = message {
            return Ok(([(header::CONTENT_TYPE, body::JSON)], json).into_response());
        }
    }
    Err(ApiError::new(
        Reason::Cancelled,
        "the request was cancelled, or its session has ended",
        "send it again, in a new session if this one is not found",
    ))
}

async fn listen(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    check_accept(&headers, &[MEDIA])?;
    check_version(&headers)?;
    let session = session(&api, &grant, &headers)?.listening();
    let messages = session.session().listen();
    Ok(events(Messages::Standing(messages), session))
}

async fn end(
    State(api): State<Arc<Api>>,
    Extension(grant): Extension<Arc<Grant>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    check_version(&headers)?;
    api.mcp.end(&grant, session_id(&headers)?)?;
    Ok(Json(json!({})).into_response())
}

/// Returns the session that the headers name.
fn session(api: &Api, grant: &Grant, headers: &HeaderMap) -> Result<InUse, ApiError> {
    api.mcp.find(grant, session_id(headers)?)
}

fn session_id(headers: &HeaderMap) -> Result<&str, ApiError> {
    single(headers, SESSION).ok_or_else(|| {
        malformed(
            "the request names no session",
            "POST `initialize` first, and send the `Mcp-Session-Id` of its answer with every other request",
        )
    })
}

/// Checks that the client takes each of these media types: the protocol demands that it says so.
fn check_accept(headers: &HeaderMap, media: &[&str]) -> Result<(), ApiError> {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    let ranges: Vec<&str> = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|range| Some(range.split(';').next()?.trim()))
        .collect();
    let takes = |media: &str| {
        let kind = media.split('/').next().unwrap_or_default();
        let is_taken = |range: &&str| {
            range.eq_ignore_ascii_case(media) || *range == "*/*" || **range == format!("{kind}/*")
        };
        ranges.iter().any(is_taken)
    };
    match media.iter().all(|media| takes(media)) {
        true => Ok(()),
        false => Err(ApiError::new(
            Reason::NotAcceptable,
            "the client does not take the media types of the answer",
            format!("send `Accept: {}`", media.join(", ")),
        )),
    }
}

/// Checks the version of the protocol, where a client names one.
fn check_version(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_known = !headers.contains_key(VERSION) || single(headers, VERSION).is_some_and(is_version);
    match is_known {
        true => Ok(()),
        false => Err(malformed(
            "`MCP-Protocol-Version` names no version that is served in sessions",
            "send the version that the answer to `initialize` names",
        )),
    }
}

fn malformed(message: &str, hint: &str) -> ApiError {
    ApiError::new(Reason::Malformed, message, hint)
}

impl From<MessageError> for ApiError {
    fn from(error: MessageError) -> Self {
        malformed(
            &error.to_string(),
            "send one message of JSON-RPC 2.0; begin with `initialize`, whose answer names the session",
        )
    }
}

impl From<SendError> for ApiError {
    fn from(error: SendError) -> Self {
        let (reason, hint) = match error {
            SendError::Full => (Reason::Busy, "wait for some of the answers, then send it again"),
            SendError::SameId => (Reason::Conflict, "give each request an id of its own"),
            SendError::Ended => (
                Reason::NotFound,
                "begin a new one: POST `initialize` without `Mcp-Session-Id`",
            ),
        };
        Self::new(reason, error.to_string(), hint)
    }
}

/// An answer of events.
struct Events {
    messages: Messages,
    /// In use as long as the answer is read.
    _session: InUse,
}

enum Messages {
    /// A call at work, which ends with its answer.
    Call(Exchange),
    Standing(mpsc::Receiver<Outgoing>),
}

fn events(messages: Messages, session: InUse) -> Response {
    let events = Events {
        messages,
        _session: session,
    };
    let body = stream::body(events, |events| Box::pin(next(events)));
    ([(header::CONTENT_TYPE, MEDIA)], body).into_response()
}

async fn next(mut events: Events) -> Option<(Bytes, Events)> {
    let message = match &mut events.messages {
        Messages::Call(exchange) => tokio::time::timeout(HEARTBEAT, exchange.next()).await,
        Messages::Standing(messages) => tokio::time::timeout(HEARTBEAT, messages.recv()).await,
    };
    let event = match message {
        Ok(message) => match message? {
            Outgoing::Answer(json) | Outgoing::Notice(json) => {
                // JSON has no raw line breaks.
                [b"event: message\ndata: ", &json[..], b"\n\n"].concat().into()
            }
        },
        Err(_) => Bytes::from_static(COMMENT.as_bytes()),
    };
    Some((event, events))
}
