//! `process.Process`: starts processes, follows them, and sends them input and signals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use ringfence_policy::{Outcome, Timeout};
use ringfence_sandbox::Error as SandboxError;
use ringfence_sandbox::Sandbox;
use ringfence_sandbox::output::{Item, Reader, Stream};
use ringfence_sandbox::process::{CommandLine, NewProcess, Process, ProcessEnd, Stdin, TerminalSize};
use serde::Deserialize;
use serde_json::{Value, json};

use super::paths::User;
use super::tags::{Config, Tagged};
use crate::body::{self, BrokenOff, Described};
use crate::known::Opened;
use crate::rpc::{self, Code, Frames, RpcError};
use crate::token::header;

/// Maximum length of a tag, in bytes: the server keeps it while the process runs.
const MAX_TAG: usize = 1024;
/// Time without output after which a stream says that it lives, unless the client asks for another.
const KEEPALIVE: Duration = Duration::from_secs(90);

const SIGKILL: u32 = 9;
/// Time for a process that was killed to be gone: one in the kernel may take longer.
const REAPING: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
struct StartRequest {
    process: Config,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Pty {
    size: Option<PtySize>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct PtySize {
    #[serde(default)]
    cols: u16,
    #[serde(default)]
    rows: u16,
}

impl From<PtySize> for TerminalSize {
    fn from(size: PtySize) -> Self {
        Self {
            columns: size.cols,
            rows: size.rows,
        }
    }
}

/// The process of a call.
#[derive(Debug, Clone, Default, Deserialize)]
struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Selected {
    process: Selector,
}

#[derive(Debug, Deserialize)]
struct InputRequest {
    process: Selector,
    #[serde(default)]
    input: Input,
}

#[derive(Debug, Default, Deserialize)]
struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

#[derive(Debug, Deserialize)]
struct SignalRequest {
    process: Selector,
    signal: Value,
}

#[derive(Debug, Deserialize)]
struct UpdateRequest {
    process: Selector,
    pty: Option<Pty>,
}

/// A message of a stream of input.
#[derive(Debug, Deserialize)]
struct StreamedInput {
    start: Option<Selected>,
    data: Option<StreamedData>,
}

#[derive(Debug, Deserialize)]
struct StreamedData {
    #[serde(default)]
    input: Input,
}

pub(super) async fn call(
    opened: Opened,
    user: User,
    method: &str,
    request: Request,
) -> Result<Response, RpcError> {
    match method {
        "Start" => start(opened, user, request).await,
        "Connect" => connect(opened, request).await,
        "List" => Ok(Json(list(&opened)).into_response()),
        "SendInput" => {
            let InputRequest { process, input } = rpc::message(request).await?;
            let process = find(&opened, &process)?;
            send(&process, &input).await?;
            Ok(done())
        }
        "StreamInput" => stream_input(&opened, request).await,
        "SendSignal" => {
            let SignalRequest { process, signal } = rpc::message(request).await?;
            let (process, number) = (find(&opened, &process)?, number(&signal)?);
            process.signal(number);
            if number == SIGKILL {
                // Clients look for its id next.
                let _ = tokio::time::timeout(REAPING, ended(&process)).await;
            }
            Ok(done())
        }
        "CloseStdin" => {
            let Selected { process } = rpc::message(request).await?;
            let process = find(&opened, &process)?;
            if process.info().terminal {
                let message = "a terminal has no end of input: send it the character EOT (Ctrl-D)";
                return Err(RpcError::new(Code::FailedPrecondition, message));
            }
            process.close_stdin();
            Ok(done())
        }
        "Update" => {
            let UpdateRequest { process, pty } = rpc::message(request).await?;
            let process = find(&opened, &process)?;
            if let Some(size) = pty.and_then(|pty| pty.size) {
                process.resize(size.into());
            }
            Ok(done())
        }
        _ => Err(RpcError::new(Code::Unimplemented, "there is no such method")),
    }
}

/// Resolves once a process has ended and is reaped.
async fn ended(process: &Process) {
    let mut reader = process.output.read_from(u64::MAX);
    while let Some(item) = reader.next().await {
        if matches!(item, Item::End(_)) {
            break;
        }
    }
}

fn done() -> Response {
    Json(json!({})).into_response()
}

/// Returns the environment of a process: that of the request, with E2B's own variables where it sets none of that name.
fn environment(sandbox: &Sandbox, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = [
        ("E2B_SANDBOX", "true".to_owned()),
        ("E2B_SANDBOX_ID", sandbox.id().to_string()),
    ];
    let mut all = given.clone();
    for (name, value) in own {
        all.entry(name.to_owned()).or_insert(value);
    }
    all
}

/// Starts a process, which outlives the stream that follows it.
async fn start(opened: Opened, user: User, request: Request) -> Result<Response, RpcError> {
    let headers = request.headers().clone();
    let StartRequest {
        process: config,
        pty,
        tag,
        stdin,
    } = rpc::framed(request).await?;
    if let Some(tag) = tag.as_ref().filter(|tag| tag.len() > MAX_TAG) {
        let message = format!("`tag` has at most {MAX_TAG} bytes, got {}", tag.len());
        return Err(RpcError::new(Code::InvalidArgument, &message));
    }
    let cwd = match config.cwd.as_deref().filter(|cwd| !cwd.is_empty()) {
        Some(cwd) => Some(user.absolute(&opened.sandbox, cwd).await?),
        None => None,
    };
    let words = [&[config.cmd.clone()][..], &config.args].concat();
    let new = NewProcess {
        command: CommandLine::Words(words.clone()),
        cwd,
        env: environment(&opened.sandbox, &config.envs),
        stdin: match stdin {
            Some(false) => Stdin::Empty,
            Some(true) | None => Stdin::Open,
        },
        terminal: pty.map(|pty| pty.size.unwrap_or(PtySize { cols: 80, rows: 24 }).into()),
        timeout: timeout(&headers)?,
        user: user.name().map(str::to_owned),
    };
    let described = Described(json!({"command": words, "cwd": new.cwd, "user": new.user}));
    let process = opened.sandbox.start(new).await.map_err(|error| match error {
        SandboxError::NoDirectory { directory, .. } => {
            RpcError::new(Code::InvalidArgument, format!("cwd '{directory}' does not exist"))
        }
        other => other.into(),
    })?;
    opened.known.shared.tags.add(
        &opened.sandbox,
        process.pid(),
        Tagged {
            tag,
            config: config.shown(),
        },
    );
    let reader = process.output.read_from(0);
    Ok((Extension(described), follow(opened, &process, reader, &headers)).into_response())
}

/// Returns the time after which a process is killed; `None` if the client sets none.
fn timeout(headers: &HeaderMap) -> Result<Option<Timeout>, RpcError> {
    let millis = header(headers, "connect-timeout-ms").and_then(|millis| millis.parse::<u64>().ok());
    let Some(millis) = millis.filter(|millis| *millis > 0) else {
        return Ok(None);
    };
    let timeout = Timeout::try_from(millis as f64 / 1000.0);
    timeout
        .map(Some)
        .map_err(|error| RpcError::new(Code::InvalidArgument, error.to_string()))
}

/// Follows a process from now on.
async fn connect(opened: Opened, request: Request) -> Result<Response, RpcError> {
    let headers = request.headers().clone();
    let Selected { process } = rpc::framed(request).await?;
    let process = find(&opened, &process)?;
    let reader = process.output.read_from(u64::MAX);
    Ok(follow(opened, &process, reader, &headers))
}

fn list(opened: &Opened) -> Value {
    let tagged = opened.known.shared.tags.all();
    let running = opened
        .sandbox
        .processes()
        .into_iter()
        .filter(|info| info.end.is_none());
    let processes: Vec<Value> = running
        .map(|info| match tagged.get(&info.pid) {
            Some(Tagged { tag, config }) => {
                let mut process = json!({"config": config, "pid": info.pid});
                if let Some(tag) = tag {
                    process["tag"] = tag.as_str().into();
                }
                process
            }
            None => {
                let (cmd, args) = info
                    .command
                    .split_first()
                    .map_or((String::new(), Vec::new()), |(cmd, args)| {
                        (cmd.clone(), args.to_vec())
                    });
                let cwd = Some(info.cwd);
                let config = Config {
                    cmd,
                    args,
                    cwd,
                    ..Config::default()
                };
                json!({"config": config, "pid": info.pid})
            }
        })
        .collect();
    json!({ "processes": processes })
}

/// Finds a process that runs.
fn find(opened: &Opened, selector: &Selector) -> Result<Arc<Process>, RpcError> {
    let missing = || RpcError::new(Code::NotFound, "there is no such process, or it has ended");
    let pid = match (selector.pid, &selector.tag) {
        (Some(pid), _) => pid,
        (None, Some(tag)) => {
            let all = opened.known.shared.tags.all();
            let found = all.iter().find(|(_, tagged)| tagged.tag.as_ref() == Some(tag));
            *found.ok_or_else(missing)?.0
        }
        (None, None) => {
            return Err(RpcError::new(
                Code::InvalidArgument,
                "name a process by `pid` or `tag`",
            ));
        }
    };
    let process = opened.sandbox.process(pid).map_err(|_| missing())?;
    if process.is_running() {
        Ok(process)
    } else {
        Err(missing())
    }
}

/// Sends input to a process, as fast as it reads.
async fn send(process: &Process, input: &Input) -> Result<(), RpcError> {
    let text = input.stdin.as_ref().or(input.pty.as_ref());
    let bytes = rpc::bytes(text.map_or("", String::as_str))?;
    if bytes.is_empty() || process.write(bytes).await {
        return Ok(());
    }
    let message = "the standard input of the process is closed: start it with `stdin`";
    Err(RpcError::new(Code::Internal, message))
}

async fn stream_input(opened: &Opened, request: Request) -> Result<Response, RpcError> {
    let mut body = request.into_body();
    let (mut frames, mut process) = (Frames::default(), None);
    while let Some(bytes) = body::next(&mut body).await? {
        frames.0.extend_from_slice(&bytes);
        while let Some(StreamedInput { start, data }) = frames.next()? {
            if let Some(Selected { process: selector }) = start {
                process = Some(find(opened, &selector)?);
            }
            if let Some(StreamedData { input }) = data {
                let message = "the first message must be `start`";
                let process = process.as_ref();
                let process = process.ok_or_else(|| RpcError::new(Code::InvalidArgument, message))?;
                send(process, &input).await?;
            }
        }
    }
    let answer = [rpc::data(&json!({})), rpc::end()].concat();
    Ok(rpc::streaming(answer.into()))
}

/// Returns the number of a signal: those that E2B has, by name or number.
fn number(signal: &Value) -> Result<u32, RpcError> {
    match (signal.as_str(), signal.as_u64()) {
        (Some("SIGNAL_SIGKILL"), _) | (_, Some(9)) => Ok(SIGKILL),
        (Some("SIGNAL_SIGTERM"), _) | (_, Some(15)) => Ok(15),
        _ => Err(RpcError::new(
            Code::InvalidArgument,
            "expected the signal SIGNAL_SIGKILL or SIGNAL_SIGTERM",
        )),
    }
}

/// The state of a response that follows a process.
struct Following {
    opened: Opened,
    reader: Reader,
    first: Option<Bytes>,
    is_terminal: bool,
    keepalive: Duration,
}

fn follow(opened: Opened, process: &Process, reader: Reader, headers: &HeaderMap) -> Response {
    let asked = header(headers, "keepalive-ping-interval").and_then(|seconds| seconds.parse().ok());
    let following = Following {
        opened,
        reader,
        first: Some(rpc::data(&json!({"event": {"start": {"pid": process.pid()}}}))),
        is_terminal: process.info().terminal,
        keepalive: asked
            .filter(|seconds| *seconds > 0)
            .map_or(KEEPALIVE, Duration::from_secs),
    };
    rpc::streaming(body::streamed(following, next))
}

async fn next(mut following: Following) -> Result<Option<(Bytes, Following)>, BrokenOff> {
    if let Some(first) = following.first.take() {
        return Ok(Some((first, following)));
    }
    loop {
        let part = match tokio::time::timeout(following.keepalive, following.reader.next()).await {
            Ok(Some(Item::Chunk { chunk, .. })) => {
                let name = match (following.is_terminal, chunk.stream) {
                    (true, _) => "pty",
                    (false, Stream::Stdout) => "stdout",
                    (false, Stream::Stderr) => "stderr",
                };
                let data = rpc::base64(&chunk.bytes);
                rpc::data(&json!({"event": {"data": {name: data}}}))
            }
            // The protocol has no word for output that a reader missed.
            Ok(Some(Item::Lost(_))) => continue,
            Ok(Some(Item::End(end))) => last(&following.opened, &end)?,
            Ok(None) => return Ok(None),
            Err(_) => rpc::data(&json!({"event": {"keepalive": {}}})),
        };
        return Ok(Some((part, following)));
    }
}

/// Returns the last frames of a stream. Where the sandbox has ended, there are none: clients then ask whether it lives.
fn last(opened: &Opened, end: &ProcessEnd) -> Result<Bytes, BrokenOff> {
    if !opened.is_running() {
        return Err(BrokenOff);
    }
    let code = end.exit_code;
    let event = match end.outcome {
        Outcome::TimedOut => {
            let message = "the process was killed at its deadline";
            return Ok(RpcError::new(Code::DeadlineExceeded, message).frame());
        }
        Outcome::Unknown => {
            let message = end
                .error
                .clone()
                .unwrap_or_else(|| "the end of the process is unknown".to_owned());
            return Ok(RpcError::new(Code::Internal, message).frame());
        }
        _ if code < 0 => {
            let status = format!("signal: {}", signal_name(-code));
            json!({"exitCode": -1, "exited": false, "status": status, "error": status})
        }
        _ if code == 0 => json!({"exited": true, "status": "exit status 0"}),
        _ => {
            let status = format!("exit status {code}");
            json!({"exitCode": code, "exited": true, "status": status, "error": status})
        }
    };
    Ok([rpc::data(&json!({"event": {"end": event}})), rpc::end()]
        .concat()
        .into())
}

/// Returns the words of Go, in which E2B's daemon is written, for a signal.
fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "hangup",
        2 => "interrupt",
        3 => "quit",
        4 => "illegal instruction",
        6 => "aborted",
        7 => "bus error",
        8 => "floating point exception",
        9 => "killed",
        11 => "segmentation fault",
        13 => "broken pipe",
        14 => "alarm clock",
        15 => "terminated",
        31 => "bad system call",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
