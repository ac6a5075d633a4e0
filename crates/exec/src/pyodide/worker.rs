//! A fenced Deno process with one Pyodide, for one program.

use std::future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::{
    Access, Bytes, ExecutionResult, Language, Limits, Mount, Outcome, ParseMountError, Request, Timeout,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::error::RunError;
use super::installed::Installed;
use super::message::{MAX_LINE, WorkerMessage, WorkerRequest, line};
use crate::lines::LineSplitter;
use crate::local::{self, Chunk, Connection, Fence, FencedRequest, Local, Stream};

/// Pool key: requests with equal keys can use the same worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) memory: Bytes,
    pub(super) fence: Fence,
}

/// Paths in Deno's cell.
const DENO: &str = "/opt/deno";
const PYODIDE: &str = "/opt/pyodide";
const WORKER: &str = "/opt/worker.js";
const GUEST: &str = "/opt/guest.py";
const SNAPSHOT: &str = "/opt/snapshot";
const PACKAGES: &str = "/opt/packages";

/// Deno's flags. Its permission to read the files above is revoked before a program runs.
pub(super) const FLAGS: &[&str] = &[
    "run",
    "--quiet",
    "--no-prompt",
    "--no-remote",
    "--no-npm",
    "--no-config",
    "--no-lock",
    "--cached-only",
    "--no-code-cache",
    V8,
];

/// V8 options: no code generation from strings. WebAssembly and JavaScript are optimized only after some 100
/// ms, or some 10,000 calls: most programs end earlier, and would wait for the compiler.
const V8: &str = concat!(
    "--v8-flags=--disallow-code-generation-from-strings,--max-old-space-size=128,--wasm-tiering-budget=100000000",
    ",--invocation-count-for-maglev=20000,--invocation-count-for-maglev-osr=5000",
    ",--invocation-count-for-osr=20000,--invocation-count-for-turbofan=100000"
);

/// Memory that Deno and V8 take beside the program's.
const OVERHEAD: u64 = 320 * 1024 * 1024;
/// Address space that V8 reserves for code. A control group counts only the used part, a resource limit all
/// of it.
const CODE_RANGE: u64 = 512 * 1024 * 1024;
/// Minimum memory beside packages: an idle interpreter takes 30 MiB.
const LEAST: u64 = 48 * 1024 * 1024;
/// Timeout for a worker to become ready, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for creating a snapshot or unpacking wheels, which happens once each.
const MAKING: Duration = Duration::from_secs(300);
/// Maximum lifetime of a worker, idle time included.
const LIFETIME: Timeout = Timeout::seconds(24 * 3600);
/// Maximum number of bytes of Deno's error messages that are reported.
const COMPLAINT: usize = 500;
/// Maximum size of a snapshot: the memory available while it is created.
const MAX_SNAPSHOT: usize = 256 * 1024 * 1024;
/// Maximum size of unpacked wheels, with a line for each file (`wheels.py`).
const MAX_UNPACKED: usize = 272 * 1024 * 1024;
/// Capacity of the message channels.
const QUEUE: usize = 4;

/// A worker, killed on drop.
#[derive(Debug)]
pub(super) struct Worker {
    to: mpsc::Sender<Vec<u8>>,
    from: mpsc::Receiver<Chunk>,
    lines: LineSplitter,
    complaint: Vec<u8>,
    stop: watch::Sender<bool>,
    over: oneshot::Sender<()>,
    ended: oneshot::Receiver<Result<ExecutionResult, local::Error>>,
}

/// The preparation of a worker before it is ready.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// None: a program is waiting for it.
    Cold,
    /// A run of Ringfence's own warm-up program.
    Warm,
}

/// The end of a worker's process.
#[derive(Debug)]
pub(super) struct End {
    pub(super) result: Result<ExecutionResult, local::Error>,
    /// Beginning of Deno's standard error.
    pub(super) complaint: String,
}

impl Worker {
    /// Starts a worker.
    pub(super) fn start(
        installed: &Installed,
        Key { memory, fence }: Key,
        start: Start,
        local: &Arc<Local>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, RunError> {
        let mebibytes = (memory.0 / (1024 * 1024)).to_string();
        let mode = match start {
            Start::Cold => "cold",
            Start::Warm => "warm",
        };
        let packages = installed.packages.as_ref();
        let taken = packages.map_or(0, |packages| packages.bytes);
        if taken > 0 && memory.0 < taken.saturating_add(LEAST) {
            return Err(RunError::NoRoom {
                packages: taken,
                memory: memory.0,
            });
        }
        let packages = packages.map(|packages| (&packages.path, PACKAGES));
        let named = packages.map_or("", |(_, named)| named);
        let arguments = [mode, PYODIDE, SNAPSHOT, named, &mebibytes];
        let files: Vec<_> = [(&installed.snapshot, SNAPSHOT)]
            .into_iter()
            .chain(packages)
            .collect();
        let request = request(installed, local, &arguments, &files, memory).map_err(unusable)?;
        Ok(Self::spawn(request, fence, local, tasks))
    }

    /// Waits until the worker is ready for a program.
    pub(super) async fn ready(mut self) -> Result<Self, RunError> {
        match tokio::time::timeout(TIMEOUT, self.next()).await {
            Ok(Some(WorkerMessage::Ready {})) => Ok(self),
            Ok(_) => Err(self.end().await.not_ready()),
            Err(_) => {
                let _ = self.end().await;
                Err(RunError::NotReady("it took too long".to_owned()))
            }
        }
    }

    fn spawn(request: Request, fence: Fence, local: &Arc<Local>, tasks: &mut JoinSet<()>) -> Self {
        let (to, stdin) = mpsc::channel(QUEUE);
        let (output, from) = mpsc::channel(QUEUE);
        let (stop, stopped) = watch::channel(false);
        let (told, ended) = oneshot::channel();
        let (over, is_over) = oneshot::channel();
        let connection = Connection {
            stdin: Some(stdin),
            output: Some(output),
            cancelled: Some(stopped),
            bridge: None,
        };
        let local = Arc::clone(local);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let is_over = async {
                if is_over.await.is_err() {
                    future::pending().await
                }
            };
            let result = local
                .run_until(
                    FencedRequest {
                        request: &request,
                        fence,
                    },
                    None,
                    connection,
                    is_over,
                )
                .await;
            let _ = told.send(result);
        });
        Self {
            to,
            from,
            lines: LineSplitter::new(MAX_LINE),
            complaint: Vec::new(),
            stop,
            over,
            ended,
        }
    }

    /// Sends a message. If the worker has exited, the next message from it is `None`.
    pub(super) async fn send(&self, request: &WorkerRequest<'_>) {
        let _ = self.to.send(line(request)).await;
    }

    /// Returns the sender of messages to the worker.
    pub(super) fn sender(&self) -> mpsc::Sender<Vec<u8>> {
        self.to.clone()
    }

    /// Receives the next message; `None` once the worker has exited or sent an invalid one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<WorkerMessage> {
        loop {
            if let Some(line) = self.lines.next_line() {
                return serde_json::from_slice(line.whole()?).ok();
            }
            let chunk = self.from.recv().await?;
            match chunk.stream {
                Stream::Stdout => self.lines.push(&chunk.bytes),
                Stream::Stderr => self.complain(&chunk.bytes),
            }
        }
    }

    fn complain(&mut self, bytes: &[u8]) {
        let room = COMPLAINT - self.complaint.len();
        self.complaint.extend(bytes.iter().take(room));
    }

    /// Returns `true` if the worker has exited by itself.
    pub(super) fn is_over(&self) -> bool {
        self.to.is_closed()
    }

    /// Ends a worker that has sent its result. The process is killed in the background.
    pub(super) async fn leave(self) -> End {
        let _ = self.over.send(());
        drop(self.from);
        End {
            result: self.ended.await.unwrap_or(Err(local::Error::LauncherGone)),
            complaint: String::new(),
        }
    }

    /// Kills the worker, and returns its end.
    pub(super) async fn end(mut self) -> End {
        self.stop.send_replace(true);
        // Its output is drained so that it does not block.
        while let Some(chunk) = self.from.recv().await {
            if chunk.stream == Stream::Stderr {
                self.complain(&chunk.bytes);
            }
        }
        End {
            result: self.ended.await.unwrap_or(Err(local::Error::LauncherGone)),
            complaint: String::from_utf8_lossy(&self.complaint).trim().to_owned(),
        }
    }
}

impl End {
    fn not_ready(self) -> RunError {
        match self.result {
            Err(error) => RunError::Local(error),
            Ok(result) if result.meta.outcome == Outcome::MemoryExceeded => {
                RunError::NotReady("its memory was not enough".to_owned())
            }
            Ok(_) => RunError::NotReady(self.complaint),
        }
    }
}

/// Creates the snapshot that workers start from, with Pyodides that have run only Ringfence's own programs.
pub(super) async fn snapshot(installed: &Installed, local: &Arc<Local>) -> Result<Vec<u8>, RunError> {
    let files = [(&installed.guest, GUEST)];
    let made = made(
        installed,
        local,
        &["snapshot", PYODIDE, GUEST],
        &files,
        MAX_SNAPSHOT,
    );
    made.await?.map_err(RunError::Snapshot)
}

/// Unpacks wheels into the concatenation that a worker reads. The inner error describes a defect of the
/// wheels.
pub(super) async fn unpacked(
    wheels: &PathBuf,
    installed: &Installed,
    local: &Arc<Local>,
) -> Result<Result<Vec<u8>, String>, RunError> {
    let files = [(&installed.snapshot, SNAPSHOT), (wheels, PACKAGES)];
    let arguments = ["unpack", PYODIDE, SNAPSHOT, PACKAGES, "256"];
    made(installed, local, &arguments, &files, MAX_UNPACKED).await
}

/// Runs Deno with our script to completion. Returns standard output, or the error message.
async fn made(
    installed: &Installed,
    local: &Arc<Local>,
    arguments: &[&str],
    files: &[(&PathBuf, &str)],
    most: usize,
) -> Result<Result<Vec<u8>, String>, RunError> {
    let request = request(installed, local, arguments, files, Bytes::mib(256)).map_err(unusable)?;
    let mut tasks = JoinSet::new();
    let mut worker = Worker::spawn(request, Fence::Default, local, &mut tasks);
    let mut taken = Vec::new();
    let listening = async {
        while let Some(chunk) = worker.from.recv().await {
            match chunk.stream {
                Stream::Stdout if taken.len() + chunk.bytes.len() > most => break,
                Stream::Stdout => taken.extend_from_slice(&chunk.bytes),
                Stream::Stderr => worker.complain(&chunk.bytes),
            }
        }
    };
    let _ = tokio::time::timeout(MAKING, listening).await;
    let end = worker.end().await;
    tasks.shutdown().await;
    match end.result? {
        result if result.meta.outcome == Outcome::Exited && result.exit_code == 0 => Ok(Ok(taken)),
        _ => Ok(Err(end.complaint)),
    }
}

/// Builds the request that runs Deno in the local fence.
fn request(
    installed: &Installed,
    local: &Local,
    arguments: &[&str],
    files: &[(&PathBuf, &str)],
    memory: Bytes,
) -> Result<Request, ParseMountError> {
    let shown = [
        (&installed.deno, DENO),
        (&installed.pyodide, PYODIDE),
        (&installed.worker, WORKER),
    ];
    let mounts = shown
        .iter()
        .chain(files)
        .map(|(host, guest)| Mount::new((*host).clone(), guest, Access::ReadOnly))
        .collect::<Result<_, _>>()?;
    let readable = [PYODIDE, SNAPSHOT, GUEST, PACKAGES].join(",");
    let allowed = format!("--allow-read={readable}");
    let words = [DENO]
        .into_iter()
        .chain(FLAGS.iter().copied())
        .chain([allowed.as_str(), WORKER])
        .chain(arguments.iter().copied());
    let counted = if local.has_control_groups() { 0 } else { CODE_RANGE };
    Ok(Request {
        env: "NO_COLOR"
            .parse()
            .map(|name| (name, "1".to_owned()))
            .into_iter()
            .collect(),
        limits: Limits {
            timeout: LIFETIME,
            max_output: Bytes(0),
            memory: Bytes(memory.0.saturating_add(OVERHEAD + counted)),
            ..Limits::DEFAULT
        },
        mounts,
        ..command(words)
    })
}

/// Builds a request for a command with its arguments and defaults.
pub(super) fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> Request {
    Request {
        name: "command".to_owned(),
        args: words.into_iter().map(str::to_owned).collect(),
        ..Request::new(Language::Command, "")
    }
}

/// Converts the error: the paths are our own, so one that cannot be mounted is a bug.
fn unusable(error: ParseMountError) -> RunError {
    RunError::NotReady(error.to_string())
}
