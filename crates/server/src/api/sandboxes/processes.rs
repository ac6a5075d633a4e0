//! Processes of a sandbox: start, list, output, input, signals.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use axum::{Extension, Json};
use hyper::body::Bytes as Piece;
use ringfence_policy::{Bytes, Timeout};
use ringfence_sandbox::output::{Item, Reader};
use ringfence_sandbox::process::{
    CommandLine, NewProcess, Process, ProcessEnd, ProcessInfo, Stdin, TerminalSize,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::content::{BYTES, Content, MAX_BYTES, NOTHING, done};
use super::super::error::{ApiError, Reason};
use super::super::events::output_event;
use super::super::extract::{InActiveProcess, InProcess, InSandbox, Params};
use super::super::recording::Described;
use super::super::route::{Form, Parameter, Place, Route, route};
use super::super::{body, events, stream};
use super::attach;
use super::life::Amount;

/// Maximum size of a request, in bytes: a command with its environment.
const MAX: usize = 8 * 1024 * 1024;

/// Output that `exec` keeps of each stream, unless asked for less.
const KEPT: Bytes = Bytes::mib(1);

const EVENTS: Content = Content::new(&[events::MEDIA], |_| {
    schemars::json_schema!({
        "type": "string",
        "description": "Events: `started` with the process, `stdout` and `stderr` with `{\"text\"}` or, for bytes that are \
            no text, `{\"base64\"}`; `lost` with `{\"bytes\"}` where output is no longer kept; `end` with the end.",
    })
});

const PROCESS: Content = Content::json::<ProcessInfo>();

const START: Content = Content::json::<StartProcess>().at_most(MAX);

/// The position from which output is followed.
pub(super) const FROM: Parameter = Parameter {
    place: Place::Query,
    name: "from",
    required: false,
    form: Form::Number,
    description: "First byte; 0 by default.",
};

/// The `id` of the last event that a reader got, as `EventSource` sends it with a new connection.
const LAST_EVENT_ID: Parameter = Parameter {
    place: Place::Header,
    name: "Last-Event-ID",
    required: false,
    form: Form::Number,
    description: "The `id` of the last event that the reader got, after which the output is followed; instead of `from`.",
};

pub(super) fn routes() -> Vec<Route> {
    let groups = [starts(), uses()];
    groups.into_iter().flatten().collect()
}

fn starts() -> Vec<Route> {
    vec![
        route(
            Method::POST,
            "/v1/sandboxes/{id}/exec",
            "Run a process to its end, and answer with its output or, with `Accept: text/event-stream`, with events. Closing the \
             connection kills it.",
            vec![Content::json::<CompletedProcess>(), EVENTS],
            |method| on(method, exec),
        )
        .with_body(START)
        .recorded_as("sandbox.exec"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/processes",
            "Start a process, which runs on until it ends, is killed, or its sandbox ends.",
            vec![PROCESS],
            |method| on(method, start),
        )
        .with_body(START)
        .recorded_as("sandbox.start"),
        route(
            Method::GET,
            "/v1/sandboxes/{id}/processes",
            "List the processes that run, and the last ones that have ended.",
            vec![Content::json::<ProcessList>()],
            |method| on(method, list),
        ),
        route(
            Method::GET,
            "/v1/sandboxes/{id}/processes/{pid}",
            "Describe a process.",
            vec![PROCESS],
            |method| on(method, get),
        ),
        route(
            Method::DELETE,
            "/v1/sandboxes/{id}/processes/{pid}",
            "Kill a process with its descendants, and wait for its end.",
            vec![PROCESS],
            |method| on(method, kill),
        )
        .recorded_as("sandbox.kill"),
    ]
}

fn uses() -> Vec<Route> {
    vec![
        route(
            Method::GET,
            "/v1/sandboxes/{id}/processes/{pid}/output",
            "Follow the output of a process. A reader that is slow slows the process. The `id` of an event is the position \
             behind it.",
            vec![EVENTS],
            |method| on(method, output),
        )
        .with_parameters(&[FROM, LAST_EVENT_ID]),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/processes/{pid}/stdin",
            "Send the body to the standard input of a process, as fast as it reads.",
            vec![NOTHING],
            |method| on(method, stdin),
        )
        .with_parameters(&[Parameter {
            place: Place::Query,
            name: "end",
            required: false,
            form: Form::Flag,
            description: "Close the input after that: true or false.",
        }])
        .with_body(BYTES.at_most(MAX_BYTES))
        .recorded_as("sandbox.stdin"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/processes/{pid}/signal",
            "Send a signal to a process.",
            vec![NOTHING],
            |method| on(method, signal),
        )
        .with_body(Content::json::<SendSignal>().at_most(MAX))
        .recorded_as("sandbox.signal"),
        route(
            Method::POST,
            "/v1/sandboxes/{id}/processes/{pid}/resize",
            "Change the size of the terminal of a process.",
            vec![NOTHING],
            |method| on(method, resize),
        )
        .with_body(Content::json::<Terminal>().at_most(MAX)),
    ]
}

/// A process to start.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StartProcess {
    command: Command,
    /// Working directory.
    cwd: Option<String>,
    /// Variables beside the sandbox's own.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Keep its standard input open, for `stdin`. By default it is empty.
    #[serde(default)]
    stdin: bool,
    /// Run it in a terminal of this size instead of pipes: its output is all `stdout`.
    terminal: Option<Terminal>,
    /// Time after which it is killed.
    timeout: Option<Timeout>,
    /// Name or number of its user, in a sandbox with the fence `box`; root by default.
    user: Option<String>,
    /// Bytes kept of each output stream by `exec`; at most 1 MiB.
    #[schemars(with = "Option<Amount>")]
    max_output: Option<Bytes>,
}

/// A program and its arguments, or a line for the shell.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a list of texts, which are a program and its arguments, or one text, a line for the shell"
)]
enum Command {
    Words(Vec<String>),
    Line(String),
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Terminal {
    columns: NonZero<u16>,
    rows: NonZero<u16>,
}

/// A signal, by its number or name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SendSignal {
    /// Number, or name such as `SIGTERM`; see signal(7).
    signal: SignalChoice,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected the number or name of a signal, such as `SIGTERM`"
)]
enum SignalChoice {
    Number(u32),
    Name(String),
}

#[derive(Debug, Serialize, JsonSchema)]
struct ProcessList {
    processes: Vec<ProcessInfo>,
}

/// A process that has ended, with its output.
#[derive(Debug, Serialize, JsonSchema)]
struct CompletedProcess {
    stdout: String,
    stderr: String,
    #[serde(flatten)]
    end: ProcessEnd,
    /// Set if output was left out.
    truncated: bool,
    /// Seconds from the request to the end.
    duration: f64,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct OutputQuery {
    #[serde(default)]
    pub(super) from: u64,
}

#[derive(Debug, Default, Deserialize)]
struct StdinQuery {
    #[serde(default)]
    end: bool,
}

impl StartProcess {
    fn process(self) -> (NewProcess, Bytes) {
        let kept = self.max_output.map_or(KEPT, |asked| asked.min(KEPT));
        let process = NewProcess {
            command: match self.command {
                Command::Words(words) => CommandLine::Words(words),
                Command::Line(line) => CommandLine::Shell(line),
            },
            cwd: self.cwd,
            env: self.env,
            stdin: if self.stdin { Stdin::Open } else { Stdin::Empty },
            terminal: self.terminal.map(TerminalSize::from),
            timeout: self.timeout,
            user: self.user,
        };
        (process, kept)
    }
}

impl From<Terminal> for TerminalSize {
    fn from(Terminal { columns, rows }: Terminal) -> Self {
        Self {
            columns: columns.get(),
            rows: rows.get(),
        }
    }
}

/// Returns the part of a start that its record shows. Variables are left out: most are credentials.
fn described(new: &NewProcess) -> Extension<Described> {
    let command = match &new.command {
        CommandLine::Words(words) => json!(words),
        CommandLine::Shell(line) => json!(line),
    };
    Extension(Described(
        json!({"command": command, "cwd": new.cwd, "user": new.user}),
    ))
}

/// Kills a process whose caller has gone.
struct Killed(Arc<Process>);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill();
    }
}

async fn exec(
    InSandbox(sandbox): InSandbox,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let (new, kept) = body::json::<StartProcess>(request).await?.process();
    let described = described(&new);
    let process = sandbox.start(new).await?;
    let reader = process.output.read_from(0);
    let killed = Killed(Arc::clone(&process));
    if events::accepts(&headers) {
        let response = followed(Following {
            first: Some(events::event("started", &json!(process.info()))),
            reader,
            killed: Some(killed),
        });
        return Ok((described, response).into_response());
    }
    let collected = ringfence_sandbox::output::collect(reader, kept).await;
    let executed = Json(CompletedProcess {
        truncated: collected.stdout.truncated || collected.stderr.truncated,
        stdout: collected.stdout.text,
        stderr: collected.stderr.text,
        end: collected.end,
        duration: began.elapsed().as_secs_f64(),
    });
    Ok((described, executed).into_response())
}

async fn start(InSandbox(sandbox): InSandbox, request: Request) -> Result<Response, ApiError> {
    let (new, _) = body::json::<StartProcess>(request).await?.process();
    let described = described(&new);
    let process = sandbox.start(new).await?;
    Ok((described, Json(process.info())).into_response())
}

async fn list(InSandbox(sandbox): InSandbox) -> Result<Response, ApiError> {
    let processes = sandbox.processes();
    Ok(Json(ProcessList { processes }).into_response())
}

async fn get(InProcess(process): InProcess) -> Result<Response, ApiError> {
    Ok(Json(process.info()).into_response())
}

async fn kill(InActiveProcess(process): InActiveProcess) -> Result<Response, ApiError> {
    process.kill();
    process.output.wait().await;
    Ok(Json(process.info()).into_response())
}

async fn output(
    Params(OutputQuery { from }): Params<OutputQuery>,
    InProcess(process): InProcess,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let position = last_event_id(&headers)?.unwrap_or(from);
    Ok(followed(Following {
        first: None,
        reader: process.output.read_from(position),
        killed: None,
    }))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(id) = headers.get(LAST_EVENT_ID.name) else {
        return Ok(None);
    };
    let position = id.to_str().ok().and_then(|id| id.parse().ok());
    position.map(Some).ok_or_else(|| {
        ApiError::new(
            Reason::InvalidArguments,
            "`Last-Event-ID` is no `id` of an event of output",
            "send the `id` of the last event as it came, or no such header",
        )
    })
}

async fn stdin(
    Params(StdinQuery { end }): Params<StdinQuery>,
    InActiveProcess(process): InActiveProcess,
    request: Request,
) -> Result<Response, ApiError> {
    if end && process.info().terminal {
        return Err(ApiError::new(
            Reason::Conflict,
            "the input of a terminal has no end",
            "send the character EOT (Ctrl-D, `\\x04`) at the beginning of a line, without `end`",
        ));
    }
    let mut body = request.into_body();
    while let Some(bytes) = body::next(&mut body).await? {
        if !process.write(bytes.into()).await {
            return Err(no_input(&process));
        }
    }
    if end {
        process.close_stdin();
    }
    Ok(done())
}

/// Returns the error for input that a process does not take.
fn no_input(process: &Process) -> ApiError {
    let (message, hint) = match process.is_running() {
        true => (
            "the standard input of the process is closed, or was never open",
            "start a process with `\"stdin\": true`, and send nothing after `end`",
        ),
        false => (
            "the process has ended, and reads no input any more",
            "start another with `\"stdin\": true`",
        ),
    };
    ApiError::new(Reason::Conflict, message, hint)
}

async fn signal(InActiveProcess(process): InActiveProcess, request: Request) -> Result<Response, ApiError> {
    let SendSignal { signal } = body::json(request).await?;
    process.signal(number(&signal)?);
    Ok(done())
}

async fn resize(InActiveProcess(process): InActiveProcess, request: Request) -> Result<Response, ApiError> {
    let size: Terminal = body::json(request).await?;
    attach::check_terminal(&process, "start it with `terminal`")?;
    process.resize(size.into());
    Ok(done())
}

/// Names of signals in the order of their numbers, from 1 on (signal(7), x86 and ARM).
const SIGNALS: &[&str] = &[
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

fn number(signal: &SignalChoice) -> Result<u32, ApiError> {
    let found = match signal {
        SignalChoice::Number(number) => (1..=64).contains(number).then_some(*number),
        SignalChoice::Name(name) => {
            let name = name.to_ascii_uppercase();
            let name = name.strip_prefix("SIG").unwrap_or(&name);
            SIGNALS
                .iter()
                .position(|known| *known == name)
                .map(|index| index as u32 + 1)
        }
    };
    found.ok_or_else(|| {
        ApiError::new(
            Reason::InvalidArguments,
            "there is no such signal",
            "name one of signal(7), such as `SIGTERM`, or its number",
        )
    })
}

/// The state of a response that follows a process.
struct Following {
    first: Option<String>,
    reader: Reader,
    /// Kills the process with the response.
    killed: Option<Killed>,
}

fn followed(following: Following) -> Response {
    let body = stream::body(following, |following| Box::pin(next(following)));
    ([(header::CONTENT_TYPE, events::MEDIA)], body).into_response()
}

async fn next(mut following: Following) -> Option<(Piece, Following)> {
    if let Some(first) = following.first.take() {
        return Some((first.into(), following));
    }
    let text = match tokio::time::timeout(events::HEARTBEAT, following.reader.next()).await {
        Ok(Some(Item::Chunk { position, chunk })) => {
            let (name, mut data) = output_event(&chunk);
            data["position"] = position.into();
            let event = events::event(name, &data);
            if following.killed.is_some() {
                // It ends with this response: nobody can follow it further.
                event
            } else {
                format!("id: {}\n{event}", position + chunk.bytes.len() as u64)
            }
        }
        Ok(Some(Item::Lost(bytes))) => events::event("lost", &json!({ "bytes": bytes })),
        Ok(Some(Item::End(end))) => events::event("end", &json!(end)),
        Ok(None) => return None,
        Err(_) => events::COMMENT.to_owned(),
    };
    Some((text.into(), following))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_numbers_of_the_kernel() {
        let named = |name: &str| number(&SignalChoice::Name(name.to_owned())).ok();
        assert_eq!(named("SIGTERM"), Some(15));
        assert_eq!(named("int"), Some(2));
        assert_eq!(named("KILL"), Some(9));
        assert_eq!(named("SIGWINCH"), Some(28));
        assert_eq!(named("SIGSYS"), Some(31));
        assert_eq!(named("NONE"), None);
        assert_eq!(number(&SignalChoice::Number(64)).ok(), Some(64));
        assert_eq!(number(&SignalChoice::Number(0)).ok(), None);
        assert_eq!(number(&SignalChoice::Number(65)).ok(), None);
    }
}
