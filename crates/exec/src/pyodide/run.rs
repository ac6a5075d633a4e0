//! One program in a worker, from its request to its result.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_policy::{ExecutionResult, Language, Limits, Network, Outcome, Request, RuntimeKind};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::carrier::{Carrier, WINDOW};
use super::error::RunError;
use super::files::{self, Files};
use super::message::{Completed, OutputChunk, Program, StreamName, WorkerMessage, WorkerRequest, line};
use super::worker::{End, Worker};
use crate::local::{
    Chunk, Connection, Fence, HostOutput, ProgramEnd, Stream, Workdir, execution_result, is_limits_gap,
    output_files,
};
use crate::output::Captures;
use crate::supervise::{Interruption, KILLED, ProgramExit, RunLimits, cancellation};

/// Id of the worker's only program.
const ID: &str = "1";
/// Maximum length of standard input, which is sent as a whole.
const MAX_INPUT: usize = 16 * 1024 * 1024;

/// Cause for the end of a program's supervision.
#[derive(Debug)]
enum Ending {
    Completed(Completed),
    Interrupted(Interruption),
    /// The process exited first, or sent an invalid message.
    Lost,
}

/// Name of the output directory below a [`Workdir`].
const OUTPUT: &str = "output";

/// A reader of a program's output.
struct OutputReader {
    captures: Captures,
    watcher: Option<mpsc::Sender<Chunk>>,
}

/// Rejects a request that Pyodide cannot run.
pub(super) fn check(request: &Request, fence: Fence) -> Result<(), RunError> {
    if request.language != Language::Python {
        return Err(RunError::Language(request.language));
    }
    if request.session.is_some() {
        return Err(RunError::Elsewhere("a session"));
    }
    if request.network != Network::None {
        return Err(RunError::Elsewhere("a network"));
    }
    match fence {
        Fence::Default | Fence::Required | Fence::BestEffort => Ok(()),
        Fence::Unfenced | Fence::Host => Err(RunError::Elsewhere("a run without a fence")),
    }
}

/// Runs a program in a ready worker, and ends the worker.
pub(super) async fn run(
    mut worker: Worker,
    request: &Request,
    host_output: Option<&Arc<HostOutput>>,
    connection: Connection,
) -> Result<ExecutionResult, RunError> {
    let mut found = files::gathered(&request.mounts)?;
    let (earlier, not_given) = earlier(host_output, &mut found).await?.unzip();
    let mut reader = OutputReader::new(&request.limits, connection.output);
    let limits = RunLimits {
        deadline: Instant::now() + request.limits.timeout.as_duration(),
        cancellation: cancellation(connection.cancelled),
        // Its files are in memory.
        disk_limit_exceeded: std::future::pending(),
    };
    let ending = {
        let running = async {
            let input = input(connection.stdin).await?;
            let program = program(request, input, found, connection.bridge.is_some());
            let carrier = Carrier::new(connection.bridge);
            worker
                .send(&WorkerRequest::Execute {
                    id: ID,
                    data: program,
                })
                .await;
            Ok::<_, RunError>(supervise(&mut worker, &mut reader, carrier).await)
        };
        tokio::select! {
            biased;
            interruption = limits.reached() => Ending::Interrupted(interruption),
            ending = running => ending?,
        }
    };
    let end = match ending {
        // The program is complete, so the exit of its process no longer matters.
        Ending::Completed(_) => worker.leave().await,
        Ending::Interrupted(_) | Ending::Lost => worker.end().await,
    };
    let mut result = classify_exit(request, reader, &ending, end)?;
    result.meta.warnings.extend(not_given.into_iter().flatten());
    if let Ending::Completed(completed) = &ending {
        deliver(&completed.files, host_output, earlier, &mut result);
    }
    Ok(result)
}

/// Reads all of standard input: nothing can be read while WebAssembly runs.
async fn input(stdin: Option<mpsc::Receiver<Vec<u8>>>) -> Result<Vec<u8>, RunError> {
    let mut input = Vec::new();
    let Some(mut stdin) = stdin else { return Ok(input) };
    while let Some(bytes) = stdin.recv().await {
        input.extend_from_slice(&bytes);
        if input.len() > MAX_INPUT {
            return Err(RunError::TooMuch(MAX_INPUT as u64));
        }
    }
    Ok(input)
}

fn program(request: &Request, input: Vec<u8>, files: Files, bridged: bool) -> Program<'_> {
    let variables = request.env.iter();
    Program {
        code: &request.code,
        args: &request.args,
        env: variables
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect::<BTreeMap<_, _>>(),
        stdin: STANDARD.encode(input),
        window: bridged.then_some(WINDOW),
        files,
    }
}

/// Supervises a program until it has exited. Sends it a message only when there is room: a program that
/// prints does not read.
async fn supervise(worker: &mut Worker, reader: &mut OutputReader, mut carrier: Carrier) -> Ending {
    let sender = worker.sender();
    let mut pending = None;
    loop {
        tokio::select! {
            message = worker.next() => match message {
                Some(WorkerMessage::Output { data }) => reader.take(data).await,
                Some(WorkerMessage::Bridge { data }) if carrier.receive(&data).is_ok() => {}
                Some(WorkerMessage::Complete { data }) => return Ending::Completed(data),
                Some(WorkerMessage::Ready {} | WorkerMessage::Bridge { .. }) | None => return Ending::Lost,
            },
            request = carrier.next(ID), if pending.is_none() => pending = Some(request),
            room = sender.reserve(), if pending.is_some() => {
                if let (Ok(room), Some(request)) = (room, pending.take()) {
                    room.send(line(&request));
                }
            }
        }
    }
}

impl OutputReader {
    fn new(limits: &Limits, watcher: Option<mpsc::Sender<Chunk>>) -> Self {
        Self {
            captures: Captures::new(limits.max_output),
            watcher,
        }
    }

    async fn take(&mut self, printed: OutputChunk) {
        // Invalid base64 was not printed by Python.
        let bytes = STANDARD.decode(printed.base64).unwrap_or_default();
        let stream = match printed.stream {
            StreamName::Stdout => Stream::Stdout,
            StreamName::Stderr => Stream::Stderr,
        };
        self.captures.push(stream, &bytes);
        // Backpressure: a slow caller blocks its own program.
        if let Some(sender) = &self.watcher
            && sender.send(Chunk { stream, bytes }).await.is_err()
        {
            self.watcher = None;
        }
    }
}

/// Assembles the result from the program's and its process's end.
fn classify_exit(
    request: &Request,
    reader: OutputReader,
    ending: &Ending,
    end: End,
) -> Result<ExecutionResult, RunError> {
    let process = end.result?;
    let killed = process.meta.outcome == Outcome::Cancelled;
    let out_of_memory = process.meta.outcome == Outcome::MemoryExceeded;
    let exit = ProgramExit {
        status: match ending {
            Ending::Completed(completed) => Some(completed.exit_code.into()),
            Ending::Interrupted(_) | Ending::Lost => (killed || out_of_memory).then_some(KILLED),
        },
        out_of_memory,
        interruption: match ending {
            Ending::Interrupted(interruption) if killed => Some(*interruption),
            Ending::Lost if killed => Some(Interruption::ProtocolViolation),
            Ending::Completed(_) | Ending::Interrupted(_) | Ending::Lost => None,
        },
    };
    let (outcome, exit_code) = exit.outcome();
    let (stdout, stderr) = reader.captures.finish();
    let program_end = ProgramEnd {
        outcome,
        exit_code,
        stdout,
        stderr,
    };
    let mut result = execution_result(RuntimeKind::Pyodide, request, program_end);
    let meta = &mut result.meta;
    // The fence around Deno; WebAssembly inside it is not counted as a layer.
    meta.isolation = process.meta.isolation;
    // WebAssembly has one process, which bounds its memory itself. The share of the processor is Deno's own, whatever the
    // request's.
    meta.resource_limits.cpus = process.meta.resource_limits.cpus;
    meta.peak_memory_bytes = process.meta.peak_memory_bytes;
    meta.cpu_seconds = process.meta.cpu_seconds;
    let gaps = process.meta.warnings.into_iter();
    meta.warnings
        .extend(gaps.filter(|warning| is_limits_gap(warning)));
    if outcome == Outcome::Unknown {
        meta.warnings.push(match killed {
            true => "the interpreter sent a malformed message, and was killed".to_owned(),
            false => format!("the interpreter ended before the program: {}", end.complaint),
        });
    }
    meta.warnings.extend(missing_module(&result.stderr));
    if request.workspace.is_some() {
        let warning = "Pyodide has its files in memory: the workspace is not shown there";
        meta.warnings.push(warning.to_owned());
    }
    Ok(result)
}

/// Returns a hint for a program that failed to import a module Pyodide does not have.
fn missing_module(stderr: &str) -> Option<String> {
    let last = stderr.trim_end().lines().next_back()?;
    let rest = last.strip_prefix("ModuleNotFoundError: No module named '")?;
    let (module, _) = rest.split_once('\'')?;
    Some(format!(
        "Pyodide has no module `{}`: it has Python's standard library and the wheels in its directory of packages, and fetches \
         nothing; add a wheel there, or use the runtime `local`, `docker` or `podman`",
        module.escape_debug()
    ))
}

/// Copies the files of earlier programs to a directory, and adds them to those of the program. Returns the directory, with warnings
/// about files that the program was not given.
async fn earlier(
    host_output: Option<&Arc<HostOutput>>,
    found: &mut Files,
) -> Result<Option<(Workdir, Vec<String>)>, RunError> {
    let Some(host_output) = host_output.filter(|host_output| host_output.has_files()) else {
        return Ok(None);
    };
    let directory = Workdir::create(&std::env::temp_dir(), None).map_err(RunError::OutputDirectory)?;
    let output = directory.path().join(OUTPUT);
    host_output.fill_new(output_files::open_directory(&output)).await;
    let skipped = files::gather_earlier(&output, Path::new("/output"), found)?;
    let warning = |name: String| {
        let name = name.escape_debug();
        format!("{name} is not there: Pyodide has no files whose names are not UTF-8")
    };
    Ok(Some((directory, skipped.into_iter().map(warning).collect())))
}

/// Delivers the output files like those of any program, through the directory of the earlier ones if there is one.
fn deliver(
    files: &Files,
    host_output: Option<&Arc<HostOutput>>,
    earlier: Option<Workdir>,
    result: &mut ExecutionResult,
) {
    if files.is_empty() {
        return;
    }
    let directory = earlier.map_or_else(|| Workdir::create(&std::env::temp_dir(), None), Ok);
    let source = directory
        .as_ref()
        .map_err(io::Error::kind)
        .map_err(io::Error::from);
    let mut failed = Vec::new();
    let source = source.and_then(|directory| {
        let output = directory.path().join(OUTPUT);
        failed = files::put_down(files, &output);
        output_files::open_directory(&output)
    });
    let taken = match host_output {
        Some(host_output) => host_output.collect_from(source),
        None => output_files::collect_from(source, None, 0),
    };
    result.meta.output_files = taken.files;
    result.meta.output_incomplete = taken.incomplete || !failed.is_empty();
    result
        .meta
        .warnings
        .extend(taken.warnings.into_iter().chain(failed));
}
