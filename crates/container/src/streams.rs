//! Streams data from and to a container: output, input, statistics and events.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::container::LogOutput;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::{ContainerStatsResponse, EventMessage, ExecConfig};
use bollard::query_parameters as query;
use futures_util::{Stream, StreamExt};
use ringfence_exec::local::{Chunk, Stream as Side};
use ringfence_exec::output::{Captured, Captures};
use ringfence_policy::{Bytes, EgressFacts, EngineKind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;

use super::Error;
use super::endpoint::Address;
use super::error::{ApiCall, words};
use super::runtime::{ContainerRuntime, Id, within};

/// Timeout for the start of a stream.
const BEGIN: Duration = Duration::from_secs(30);

/// Interval at which an engine is asked for the end of a command that has closed its streams.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Delay with which an engine may receive the OOM event after a container's end.
const LATE: Duration = Duration::from_millis(100);

type Items<T> = Pin<Box<dyn Stream<Item = Result<T, bollard::errors::Error>> + Send>>;

/// Context of a stream, for the conversion of its errors.
#[derive(Debug, Clone)]
struct Origin {
    engine_kind: EngineKind,
    address: Address,
    doing: &'static str,
    what: String,
}

impl Origin {
    fn call(&self) -> ApiCall<'_> {
        ApiCall {
            engine_kind: self.engine_kind,
            address: &self.address,
            doing: self.doing,
            what: &self.what,
        }
    }
}

/// The output of a container, or of a command in it.
pub struct Logs {
    items: Items<LogOutput>,
    origin: Origin,
}

impl Logs {
    /// Returns the next chunk; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks. Output is never mistaken for an error.
    pub async fn next(&mut self) -> Result<Option<Chunk>, Error> {
        let (stream, message) = match self.items.next().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(self.origin.call().failed(error)),
            Some(Ok(LogOutput::StdOut { message })) => (Side::Stdout, message),
            Some(Ok(LogOutput::StdErr { message })) => (Side::Stderr, message),
            // Without a terminal, every chunk has a header that names its stream. One without is truncated.
            Some(Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. })) => {
                return Err(self.origin.call().senseless());
            }
        };
        Ok(Some(Chunk {
            stream,
            bytes: message.to_vec(),
        }))
    }
}

/// The standard input of a container. Shutting it down sends end of file.
pub struct Input(Pin<Box<dyn AsyncWrite + Send>>);

impl Input {
    pub fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Send)> {
        self.0.as_mut()
    }
}

/// A container's standard streams.
#[derive(Debug)]
pub struct Attached {
    pub output: Logs,
    pub input: Input,
}

impl Attached {
    /// Converts to a reader of standard output and a writer of standard input. Standard error is discarded.
    pub fn into_bytes(self) -> (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin) {
        let stdout = Stdout {
            items: self.output.items,
            piece: Vec::new(),
            read: 0,
        };
        (stdout, self.input.0)
    }
}

/// Standard output of a container as a byte stream.
struct Stdout {
    items: Items<LogOutput>,
    piece: Vec<u8>,
    read: usize,
}

impl AsyncRead for Stdout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.read == self.piece.len() {
            match ready!(self.items.poll_next_unpin(context)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                Some(Ok(LogOutput::StdOut { message })) => {
                    (self.piece, self.read) = (message.into(), 0);
                }
                Some(Ok(LogOutput::StdErr { .. })) => {}
                // Without a terminal, every chunk has a header that names its stream.
                Some(Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. })) => {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
            }
        }
        let rest = &self.piece[self.read..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.read += count;
        Poll::Ready(Ok(()))
    }
}

/// Maximum time of a measurement.
const MEASURING: Duration = Duration::from_secs(2);

/// A stream of resource statistics of a container.
pub struct Stats {
    items: Items<ContainerStatsResponse>,
    origin: Origin,
}

/// Resource usage of a container.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Use {
    /// Memory in use.
    pub memory_bytes: Option<u64>,
    /// Peak memory usage.
    pub memory_peak_bytes: Option<u64>,
    /// Processor time since its start.
    pub cpu_seconds: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

impl Stats {
    /// Returns the next statistics; `None` once the container has ended.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Use>, Error> {
        match self.items.next().await {
            None => Ok(None),
            Some(Err(error)) => Err(self.origin.call().failed(error)),
            Some(Ok(stats)) => Ok(Some(used(&stats))),
        }
    }
}

fn used(stats: &ContainerStatsResponse) -> Use {
    let memory = stats.memory_stats.as_ref();
    let cpu = stats.cpu_stats.as_ref().and_then(|cpu| cpu.cpu_usage.as_ref());
    Use {
        memory_bytes: memory.and_then(|memory| memory.usage),
        memory_peak_bytes: memory.and_then(|memory| memory.max_usage),
        cpu_seconds: cpu
            .and_then(|cpu| cpu.total_usage)
            .map(|nanos| nanos as f64 / 1e9),
        pids: stats.pids_stats.as_ref().and_then(|pids| pids.current),
    }
}

/// A stream of events of our containers.
pub struct Events {
    items: Items<EventMessage>,
    origin: Origin,
}

/// An event of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Full id of the container.
    pub container: Id,
    pub what: Happening,
}

/// The kind of a container event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    Started,
    /// The first process of the container ended.
    Died,
    /// The OOM killer killed one of its processes.
    OutOfMemory,
    Removed,
    Paused,
    Resumed,
}

impl Events {
    /// Returns the next event; `None` when the engine exits.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            match self.items.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(self.origin.call().failed(error)),
                Some(Ok(message)) => {
                    if let Some(event) = event(message) {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }
}

fn event(message: EventMessage) -> Option<Event> {
    let what = match message.action?.as_str() {
        "start" => Happening::Started,
        "die" | "died" => Happening::Died,
        "oom" => Happening::OutOfMemory,
        "destroy" | "remove" => Happening::Removed,
        "pause" => Happening::Paused,
        "unpause" => Happening::Resumed,
        _ => return None,
    };
    let container = Id::new(&message.actor?.id?)?;
    Some(Event { container, what })
}

/// The result of a command in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    /// Exit status; `None` if it was still running at its deadline.
    pub status: Option<i64>,
    pub stdout: Captured,
    pub stderr: Captured,
    /// Egress attempts, if it had allowed hosts.
    pub egress: Option<EgressFacts>,
    /// Set if the command's container was ended with it.
    pub container_ended: bool,
}

impl ContainerRuntime {
    /// Attaches to a container's standard streams, before its start.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn attach(&self, id: &Id) -> Result<Attached, Error> {
        let options = query::AttachContainerOptionsBuilder::new()
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .stream(true)
            // No detach keys: Podman would otherwise detach when it reads them in the program's input.
            .detach_keys("")
            .build();
        let origin = self.origin("attach to the container", id);
        let attached = within(
            BEGIN,
            origin.call(),
            self.docker.attach_container(id.as_str(), Some(options)),
        )
        .await?;
        Ok(Attached {
            output: Logs {
                items: attached.output,
                origin: origin.clone(),
            },
            input: Input(attached.input),
        })
    }

    /// Streams the log of a container, and its further output if `follow`.
    pub fn logs(&self, id: &Id, follow: bool) -> Logs {
        let options = query::LogsOptionsBuilder::new()
            .stdout(true)
            .stderr(true)
            .follow(follow)
            .build();
        Logs {
            items: Box::pin(self.docker.logs(id.as_str(), Some(options))),
            origin: self.origin("read the container's log", id),
        }
    }

    /// Measures a container once; `None` if it has ended, or the engine does not respond in time.
    pub(super) async fn measure(&self, id: &Id) -> Option<Use> {
        let options = query::StatsOptionsBuilder::new()
            .stream(false)
            .one_shot(true)
            .build();
        let mut items = self.docker.stats(id.as_str(), Some(options));
        let stats = timeout(MEASURING, items.next()).await.ok()??.ok()?;
        // An engine has no counters of a container that has ended.
        Some(used(&stats)).filter(|used| used.cpu_seconds > Some(0.0))
    }

    /// Streams a container's resource usage, about once a second.
    pub fn stats(&self, id: &Id) -> Stats {
        let options = query::StatsOptionsBuilder::new().stream(true).build();
        Stats {
            items: Box::pin(self.docker.stats(id.as_str(), Some(options))),
            origin: self.origin("measure the container", id),
        }
    }

    /// Streams future events of containers with this label.
    pub fn events(&self, label: &str) -> Events {
        let filters = HashMap::from([("type", vec!["container"]), ("label", vec![label])]);
        // The request is sent on the first poll; `since` makes the engine replay events from before.
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let options = query::EventsOptionsBuilder::new()
            .filters(&filters)
            .since(&since.to_string())
            .build();
        Events {
            items: Box::pin(self.docker.events(Some(options))),
            origin: Origin {
                doing: "watch the containers",
                what: "engine".to_owned(),
                engine_kind: self.kind(),
                address: self.address().clone(),
            },
        }
    }

    /// Returns `true` if the engine reports, now or within [`LATE`], an OOM kill in the container. Docker
    /// records it in the container's state only if its event arrives before that of the container's end.
    pub(super) async fn told_of_memory(&self, id: &Id) -> bool {
        let until = SystemTime::now() + LATE;
        let until = until.duration_since(UNIX_EPOCH).unwrap_or_default();
        let filters = HashMap::from([("container", vec![id.as_str()]), ("event", vec!["oom"])]);
        let options = query::EventsOptionsBuilder::new()
            .filters(&filters)
            .since("1")
            .until(&format!("{}.{:09}", until.as_secs(), until.subsec_nanos()))
            .build();
        let mut told = self.docker.events(Some(options));
        let first = tokio::time::timeout(BEGIN, told.next()).await;
        matches!(first, Ok(Some(Ok(_))))
    }

    /// Runs a command in a running container, without input, until its end or `interrupted`. Then it keeps
    /// running, and has no status: an engine cannot kill one process of a container.
    ///
    /// # Errors
    /// If the command could not be run. A failed command is not an error.
    pub async fn run(
        &self,
        id: &Id,
        command: &[String],
        interrupted: impl Future<Output = ()>,
        keep: Bytes,
    ) -> Result<RunResult, Error> {
        let mut captures = Captures::new(keep);
        let status = tokio::select! {
            biased;
            () = interrupted => None,
            ended = self.exec(id, command, &mut captures) => Some(ended?),
        };
        let (stdout, stderr) = captures.finish();
        let result = RunResult {
            status,
            stdout,
            stderr,
            egress: None,
            container_ended: false,
        };
        Ok(result.or_not_found(command))
    }

    async fn exec(&self, id: &Id, command: &[String], captures: &mut Captures) -> Result<i64, Error> {
        let origin = self.origin("run a command in the container", id);
        let config = ExecConfig {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(command.to_vec()),
            ..ExecConfig::default()
        };
        let making = self.docker.create_exec(id.as_str(), config);
        let made = within(BEGIN, origin.call(), making).await;
        let made = made.map_err(not_begun)?;
        let options = Some(StartExecOptions::default());
        let started = within(BEGIN, origin.call(), self.docker.start_exec(&made.id, options)).await;
        let started = started.map_err(not_begun)?;
        let StartExecResults::Attached { output, .. } = started else {
            return Err(origin.call().senseless());
        };
        let mut logs = Logs {
            items: output,
            origin,
        };
        while let Some(chunk) = logs.next().await? {
            captures.push(chunk.stream, &chunk.bytes);
        }
        self.exec_status(&made.id, logs.origin.call()).await
    }

    async fn exec_status(&self, exec: &str, call: ApiCall<'_>) -> Result<i64, Error> {
        loop {
            let found = within(BEGIN, call, self.docker.inspect_exec(exec)).await?;
            match (found.running, found.exit_code) {
                // It has closed its streams itself. An engine has no call that waits for it.
                (Some(true), _) => tokio::time::sleep(ASK_AGAIN).await,
                (_, Some(code)) => return Ok(code),
                (_, None) => return Err(call.senseless()),
            }
        }
    }

    fn origin(&self, doing: &'static str, id: &Id) -> Origin {
        Origin {
            engine_kind: self.kind(),
            address: self.address().clone(),
            doing,
            what: format!("container {id}"),
        }
    }
}

/// Exit status of a missing command, as in shells.
const NOT_FOUND: i64 = 127;

impl RunResult {
    /// Replaces an engine's message about a missing program, which it prints as the program's own output.
    fn or_not_found(mut self, command: &[String]) -> Self {
        let engine_failed = matches!(self.status, Some(126 | NOT_FOUND));
        let is_missing = |text: &str| {
            let not_found =
                text.contains("executable file not found") || text.contains("no such file or directory");
            text.contains("OCI runtime") && not_found
        };
        if engine_failed && (is_missing(&self.stdout.text) || is_missing(&self.stderr.text)) {
            let program = command.first().map_or("", String::as_str);
            self.status = Some(NOT_FOUND);
            self.stdout = captured(String::new());
            self.stderr = captured(format!("there is no program `{program}` in the sandbox\n"));
        }
        self
    }
}

fn captured(text: String) -> Captured {
    Captured {
        total_bytes: text.len() as u64,
        truncated: false,
        text,
    }
}

/// Converts errors about a container that is not running.
fn not_begun(error: Error) -> Error {
    let is_paused = |said: &str| said.contains("paused");
    match error {
        Error::NotFound { .. } => Error::Closing,
        Error::Conflict { ref said, .. } if !is_paused(said) => Error::Closing,
        other => other,
    }
}

impl ApiCall<'_> {
    /// Returns the error for an invalid response.
    pub(super) fn senseless(self) -> Error {
        Error::Broken {
            doing: self.doing,
            why: words("its answer is malformed"),
        }
    }
}

impl fmt::Debug for Logs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logs")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stats")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").finish_non_exhaustive()
    }
}
