//! Interpreters of a sandbox: create, list, remove, interrupt, run code.

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use hyper::body::Bytes as Piece;
use ringfence_exec::output::{Captures, Chunk};
use ringfence_policy::{Bytes, Timeout};
use ringfence_sandbox::context::{Code, ContextInfo, Execution, Language};
use ringfence_sandbox::{ContextChoice, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::super::content::{Content, NOTHING, done};
use super::super::error::ApiError;
use super::super::events::output_event;
use super::super::extract::{ContextId, InSandbox};
use super::super::recording::Described;
use super::super::route::{Route, route};
use super::super::{body, events, stream};

/// Maximum size of a request, in bytes.
const MAX: usize = 8 * 1024 * 1024;
/// Output that is kept of each stream, unless asked for as events.
const KEPT: Bytes = Bytes::mib(1);
/// Time limit of code that names none.
const TIMEOUT: Timeout = Timeout::seconds(300);
/// Pieces of output that a slow reader leaves unread before the code has to wait.
const UNREAD: usize = 16;

const EVENTS: Content = Content::new(&[events::MEDIA], |_| {
    schemars::json_schema!({
        "type": "string",
        "description": "Events: `stdout` and `stderr` as the code prints, then `end` with the execution, or `error`.",
    })
});

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(
            Method::POST,
            "/v1/sandboxes/{id}/run",
            "Run code in a context, which keeps what it defines, and answer with its results or, with `Accept: \
             text/event-stream`, with events. Closing the connection interrupts it.",
            vec![Content::json::<ExecutedCode>(), EVENTS],
            |method| on(method, run),
        )
        .with_body(Content::json::<RunCode>().at_most(MAX))
        .recorded_as("sandbox.run"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/contexts",
            "Start an interpreter.",
            vec![Content::json::<ContextInfo>()],
            |method| on(method, create),
        )
        .with_body(Content::json::<CreateContext>().at_most(MAX))
        .recorded_as("sandbox.create_context"),
        route(
            Method::GET,
            "/v1/sandboxes/{id}/contexts",
            "List the interpreters.",
            vec![Content::json::<ContextList>()],
            |method| on(method, list),
        ),
        route(
            Method::DELETE,
            "/v1/sandboxes/{id}/contexts/{context}",
            "End an interpreter.",
            vec![NOTHING],
            |method| on(method, remove),
        )
        .recorded_as("sandbox.remove_context"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/contexts/{context}/interrupt",
            "Interrupt the code that an interpreter runs; it keeps its state.",
            vec![NOTHING],
            |method| on(method, interrupt),
        )
        .recorded_as("sandbox.interrupt"),
    ]
}

/// Code to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCode {
    code: String,
    /// Language of the default context that runs it; python by default. Not with `context`.
    #[serde(default)]
    language: Option<Language>,
    /// Id of the context that runs it.
    context: Option<String>,
    /// User that runs it, in a sandbox with the fence `box`: a name of its /etc/passwd, or a number. Each user has default
    /// contexts of its own. With `context`, that one's user, else the code is refused.
    user: Option<String>,
    /// Time after which it is interrupted; 300 s by default.
    timeout: Option<Timeout>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CreateContext {
    #[serde(default)]
    language: Language,
    /// Working directory.
    cwd: Option<String>,
    /// Its user, in a sandbox with the fence `box`: a name of its /etc/passwd, or a number.
    user: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ContextList {
    contexts: Vec<ContextInfo>,
}

/// Code that has ended, with its output.
#[derive(Debug, Serialize, JsonSchema)]
struct ExecutedCode {
    stdout: String,
    stderr: String,
    /// Set if output was left out.
    truncated: bool,
    #[serde(flatten)]
    execution: Execution,
}

async fn run(
    InSandbox(sandbox): InSandbox,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    let RunCode {
        code,
        language,
        context,
        user,
        timeout,
    } = body::json(request).await?;
    let described = Extension(Described(
        json!({"code": code, "language": language, "context": context, "user": user}),
    ));
    let context = match (context, language) {
        (Some(_), Some(_)) => {
            return Err(Error::Invalid("`context` has its own language".to_owned()).into());
        }
        (Some(id), None) => ContextChoice::Id(id),
        (None, language) => ContextChoice::Default(language.unwrap_or_default()),
    };
    let code = Code {
        code,
        user,
        timeout: timeout.unwrap_or(TIMEOUT),
        variables: Vec::new(),
    };
    let (sender, chunks) = mpsc::channel(UNREAD);
    let executing = sandbox.spawn_execution(context, code, sender);
    let running = Running { executing, chunks };
    if events::accepts(&headers) {
        let body = stream::body(Some(running), |running| Box::pin(next(running)));
        return Ok((described, [(header::CONTENT_TYPE, events::MEDIA)], body).into_response());
    }
    let executed = running.collected().await?;
    Ok((described, Json(executed)).into_response())
}

/// Code under way. Dropping it closes its output, which interrupts it.
struct Running {
    executing: oneshot::Receiver<Result<Execution, Error>>,
    chunks: mpsc::Receiver<Chunk>,
}

impl Running {
    async fn ended(self) -> Result<Execution, ApiError> {
        match self.executing.await {
            Ok(executed) => executed.map_err(ApiError::from),
            Err(_) => Err(Error::Broken("it has ended".to_owned()).into()),
        }
    }

    async fn collected(mut self) -> Result<ExecutedCode, ApiError> {
        let mut captures = Captures::new(KEPT);
        while let Some(chunk) = self.chunks.recv().await {
            captures.push(chunk.stream, &chunk.bytes);
        }
        let execution = self.ended().await?;
        let (stdout, stderr) = captures.finish();
        Ok(ExecutedCode {
            truncated: stdout.truncated || stderr.truncated,
            stdout: stdout.text,
            stderr: stderr.text,
            execution,
        })
    }
}

async fn next(running: Option<Running>) -> Option<(Piece, Option<Running>)> {
    let mut running = running?;
    let text = match tokio::time::timeout(events::HEARTBEAT, running.chunks.recv()).await {
        Ok(Some(chunk)) => {
            let (name, data) = output_event(&chunk);
            events::event(name, &data)
        }
        Ok(None) => {
            let last = match running.ended().await {
                Ok(execution) => events::event("end", &json!(execution)),
                Err(error) => events::event("error", &error.to_json()),
            };
            return Some((last.into(), None));
        }
        Err(_) => events::COMMENT.to_owned(),
    };
    Some((text.into(), Some(running)))
}

async fn create(InSandbox(sandbox): InSandbox, request: Request) -> Result<Response, ApiError> {
    let CreateContext { language, cwd, user } = body::json(request).await?;
    let made = sandbox.create_context(language, cwd, user).await?;
    Ok(Json(made).into_response())
}

async fn list(InSandbox(sandbox): InSandbox) -> Result<Response, ApiError> {
    let contexts = sandbox.contexts();
    Ok(Json(ContextList { contexts }).into_response())
}

async fn remove(InSandbox(sandbox): InSandbox, ContextId(context): ContextId) -> Result<Response, ApiError> {
    sandbox.remove_context(&context)?;
    Ok(done())
}

async fn interrupt(
    InSandbox(sandbox): InSandbox,
    ContextId(context): ContextId,
) -> Result<Response, ApiError> {
    sandbox.interrupt(&context)?;
    Ok(done())
}
