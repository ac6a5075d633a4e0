//! What flows from a container, and into it.

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
use ringfence_policy::{Bytes, EgressFacts};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::endpoint::Address;
use super::error::{Asked, words};
use super::runtime::{ContainerRuntime, Id, within};
use super::{Error, Flavor};
use crate::local::{Chunk, Stream as Side};
use crate::output::{Capture, Captured};

/// How long an engine may take to begin.
const BEGIN: Duration = Duration::from_secs(30);

/// How much later than of a container's end an engine may hear why.
const LATE: Duration = Duration::from_millis(100);

type Items<T> = Pin<Box<dyn Stream<Item = Result<T, bollard::errors::Error>> + Send>>;

/// What is needed to say what went wrong in a stream.
#[derive(Debug, Clone)]
struct Origin {
    flavor: Flavor,
    address: Address,
    doing: &'static str,
    what: String,
}

impl Origin {
    fn asked(&self) -> Asked<'_> {
        Asked {
            flavor: self.flavor,
            address: &self.address,
            doing: self.doing,
            what: &self.what,
        }
    }
}

/// What a container, or a command in it, writes.
pub struct Logs {
    items: Items<LogOutput>,
    origin: Origin,
}

impl Logs {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// If the connection breaks. What a program prints is never mistaken for that.
    pub async fn next(&mut self) -> Result<Option<Chunk>, Error> {
        let (stream, message) = match self.items.next().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(self.origin.asked().failed(error)),
            Some(Ok(LogOutput::StdOut { message })) => (Side::Stdout, message),
            Some(Ok(LogOutput::StdErr { message })) => (Side::Stderr, message),
            // Without a terminal every piece has a header that names its stream. One without is half a piece.
            Some(Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. })) => {
                return Err(self.origin.asked().senseless());
            }
        };
        Ok(Some(Chunk {
            stream,
            bytes: message.to_vec(),
        }))
    }
}

/// What a container reads. Shutting it down ends its standard input.
pub struct Input(Pin<Box<dyn AsyncWrite + Send>>);

impl Input {
    /// The writing end.
    pub fn writer(&mut self) -> Pin<&mut (dyn AsyncWrite + Send)> {
        self.0.as_mut()
    }
}

/// A container's standard streams.
#[derive(Debug)]
pub struct Attached {
    /// What it writes.
    pub output: Logs,
    /// What it reads.
    pub input: Input,
}

impl Attached {
    /// What it writes to its standard output, and where its standard input is written to, as bytes. What it writes to
    /// its standard error is passed over.
    pub fn into_bytes(self) -> (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin) {
        let stdout = Stdout {
            items: self.output.items,
            piece: Vec::new(),
            read: 0,
        };
        (stdout, self.input.0)
    }
}

/// The standard output of a container, as bytes.
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
                // Without a terminal every piece has a header that names its stream.
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

/// What a container uses, time and again.
pub struct Stats {
    items: Items<ContainerStatsResponse>,
    origin: Origin,
}

/// What a container uses.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Use {
    /// Memory in use.
    pub memory_bytes: Option<u64>,
    /// The most memory in use at once.
    pub memory_peak_bytes: Option<u64>,
    /// Processor time since its start.
    pub cpu_seconds: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

impl Stats {
    /// The next figures; `None` once the container has ended.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Use>, Error> {
        match self.items.next().await {
            None => Ok(None),
            Some(Err(error)) => Err(self.origin.asked().failed(error)),
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

/// What happens to containers of ours.
pub struct Events {
    items: Items<EventMessage>,
    origin: Origin,
}

/// Something that happened to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which, by its full id.
    pub container: Id,
    /// What.
    pub what: Happening,
}

/// What can happen to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happening {
    /// It runs.
    Started,
    /// Its first process has ended.
    Died,
    /// The kernel killed a process of it for want of memory.
    OutOfMemory,
    /// It is no more.
    Removed,
    /// It was stopped for a while.
    Paused,
    /// It goes on.
    Resumed,
}

impl Events {
    /// The next one; `None` when the engine ends.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            match self.items.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(self.origin.asked().failed(error)),
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

/// What came of a command in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    /// Its status; `None` if it still ran at its deadline.
    pub status: Option<i64>,
    /// What it wrote to standard output.
    pub stdout: Captured,
    /// What it wrote to standard error.
    pub stderr: Captured,
    /// What it tried to reach, where it could.
    pub egress: Option<EgressFacts>,
    /// Whether its sandbox was ended with it.
    pub sandbox_ended: bool,
}

impl ContainerRuntime {
    /// The standard streams of a container, from before it is started.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn attach(&self, id: &Id) -> Result<Attached, Error> {
        let options = query::AttachContainerOptionsBuilder::new()
            .stdin(true)
            .stdout(true)
            .stderr(true)
            .stream(true)
            // No keys: Podman would otherwise detach a program from its input when it reads them there.
            .detach_keys("")
            .build();
        let origin = self.origin("attach to the container", id);
        let attached = within(
            BEGIN,
            origin.asked(),
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

    /// What a container has written, and what it goes on to write if `follow`.
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

    /// What a container uses, about once a second.
    pub fn stats(&self, id: &Id) -> Stats {
        let options = query::StatsOptionsBuilder::new().stream(true).build();
        Stats {
            items: Box::pin(self.docker.stats(id.as_str(), Some(options))),
            origin: self.origin("measure the container", id),
        }
    }

    /// What happens from this moment to containers that bear this label.
    pub fn events(&self, label: &str) -> Events {
        let filters = HashMap::from([("type", vec!["container"]), ("label", vec![label])]);
        // The request goes out when the first event is asked for; the engine remembers what happened meanwhile.
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
                flavor: self.flavor(),
                address: self.address().clone(),
            },
        }
    }

    /// Whether the engine has told, or tells at once, that the kernel killed a process of the container for want of
    /// memory. Docker notes it of a container only where it hears of it before it hears of the end.
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

    /// Runs a command in a running container, without input, to its end or its deadline. A command that still runs at
    /// its deadline goes on: an engine ends the processes of a container only together.
    ///
    /// # Errors
    /// If it could not be run. How it ended is no error.
    pub async fn run(
        &self,
        id: &Id,
        command: &[String],
        deadline: Instant,
        keep: Bytes,
    ) -> Result<RunResult, Error> {
        let origin = self.origin("run a command in the container", id);
        let config = ExecConfig {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(command.to_vec()),
            ..ExecConfig::default()
        };
        let making = self.docker.create_exec(id.as_str(), config);
        let made = within(BEGIN, origin.asked(), making).await;
        let made = made.map_err(not_begun)?;
        let options = Some(StartExecOptions::default());
        let started = within(BEGIN, origin.asked(), self.docker.start_exec(&made.id, options)).await;
        let started = started.map_err(not_begun)?;
        let StartExecResults::Attached { output, .. } = started else {
            return Err(origin.asked().senseless());
        };
        let mut logs = Logs {
            items: output,
            origin,
        };
        let (mut stdout, mut stderr) = (Capture::new(keep), Capture::new(keep));
        let ended = tokio::time::timeout_at(deadline, listen(&mut logs, &mut stdout, &mut stderr)).await;
        let status = match ended {
            Ok(heard) => {
                heard?;
                self.exec_status(&made.id, logs.origin.asked()).await?
            }
            Err(_) => None,
        };
        let result = RunResult {
            status,
            stdout: stdout.finish(),
            stderr: stderr.finish(),
            egress: None,
            sandbox_ended: false,
        };
        Ok(result.or_not_found(command))
    }

    async fn exec_status(&self, exec: &str, asked: Asked<'_>) -> Result<Option<i64>, Error> {
        let found = within(BEGIN, asked, self.docker.inspect_exec(exec)).await?;
        match (found.running, found.exit_code) {
            // Its streams have ended before it: it closed them itself.
            (Some(true), _) => Ok(None),
            (_, Some(code)) => Ok(Some(code)),
            (_, None) => Err(asked.senseless()),
        }
    }

    fn origin(&self, doing: &'static str, id: &Id) -> Origin {
        Origin {
            flavor: self.flavor(),
            address: self.address().clone(),
            doing,
            what: format!("container {id}"),
        }
    }
}

/// The status of a command that is not there, as shells have it.
const NOT_FOUND: i64 = 127;

impl RunResult {
    /// Replaces an engine's own words about a program that is not there: it prints them as if the program had.
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

/// Where nothing runs, no command is begun.
fn not_begun(error: Error) -> Error {
    let ended = match &error {
        Error::NotFound { .. } => true,
        Error::Conflict { said, .. } => !said.contains("paused"),
        _ => false,
    };
    if ended { Error::Closing } else { error }
}

async fn listen(logs: &mut Logs, stdout: &mut Capture, stderr: &mut Capture) -> Result<(), Error> {
    while let Some(chunk) = logs.next().await? {
        match chunk.stream {
            Side::Stdout => stdout.push(&chunk.bytes),
            Side::Stderr => stderr.push(&chunk.bytes),
        }
    }
    Ok(())
}

impl Asked<'_> {
    /// What came makes no sense.
    pub(super) fn senseless(self) -> Error {
        Error::Broken {
            doing: self.doing,
            why: words("its answer makes no sense"),
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
