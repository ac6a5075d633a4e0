//! A Deno process in the fence that holds one Pyodide, for one program.

use std::future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::{
    Access, Bytes, ExecutionResult, Language, Limits, Mount, Outcome, ParseMountError, Request, Timeout,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::RunError;
use super::install::Installed;
use super::message::{Lines, Order, Word, line};
use crate::local::{self, Chunk, Connection, Fence, Local, Stream};

/// Where Deno finds things in its cell.
const DENO: &str = "/opt/deno";
const PYODIDE: &str = "/opt/pyodide";
const WORKER: &str = "/opt/worker.js";
const GUEST: &str = "/opt/guest.py";
const SNAPSHOT: &str = "/opt/snapshot";
const PACKAGES: &str = "/opt/packages";

/// What Deno is started with. It may read these files, and that ends before there is a program.
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

/// Texts never become code. What runs for long is compiled well, but not before it has run for some 100 ms, or some 10,000
/// times: most programs end earlier, and would wait for the compiler.
const V8: &str = concat!(
    "--v8-flags=--disallow-code-generation-from-strings,--max-old-space-size=128,--wasm-tiering-budget=100000000",
    ",--invocation-count-for-maglev=20000,--invocation-count-for-maglev-osr=5000",
    ",--invocation-count-for-osr=20000,--invocation-count-for-turbofan=100000"
);

/// What Deno and V8 take beside the memory of the program.
const OVERHEAD: u64 = 320 * 1024 * 1024;
/// Where V8 may put code. A control group counts what is used of it, and a resource limit all of it.
const CODE_RANGE: u64 = 512 * 1024 * 1024;
/// The least memory beside packages: an interpreter takes 30 MiB before it has done anything.
const LEAST: u64 = 48 * 1024 * 1024;
/// How long a worker may take to come up, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a snapshot may take, or wheels to be unpacked: each is made once.
const MAKING: Duration = Duration::from_secs(300);
/// How long a worker may live, with its waiting.
const LIFETIME: Timeout = Timeout::seconds(24 * 3600);
/// How much of Deno's own complaints is told.
const COMPLAINT: usize = 500;
/// The largest snapshot: as much memory as there is while it is made.
const MAX_SNAPSHOT: usize = 256 * 1024 * 1024;
/// The most that wheels hold once they are unpacked, with a line for each file (`wheels.py`).
const MAX_UNPACKED: usize = 272 * 1024 * 1024;
/// Messages under way.
const QUEUE: usize = 4;

/// A worker: it is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    to: mpsc::Sender<Vec<u8>>,
    from: mpsc::Receiver<Chunk>,
    lines: Lines,
    complaint: Vec<u8>,
    stop: watch::Sender<bool>,
    over: oneshot::Sender<()>,
    ended: oneshot::Receiver<Result<ExecutionResult, local::Error>>,
}

/// What a worker does before it is ready.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// Nothing: a program waits for it.
    Cold,
    /// Run a program of ours.
    Warm,
}

/// What a worker's process came to.
#[derive(Debug)]
pub(super) struct End {
    pub(super) result: Result<ExecutionResult, local::Error>,
    /// What Deno said on its standard error.
    pub(super) complaint: String,
}

impl Worker {
    /// Starts one.
    pub(super) fn start(
        installed: &Installed,
        ((memory, fence), start): ((Bytes, Fence), Start),
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
        let request = request((installed, local), &arguments, &files, memory).map_err(unusable)?;
        Ok(Self::spawn(request, fence, local, tasks))
    }

    /// Waits until it can take a program.
    pub(super) async fn ready(mut self) -> Result<Self, RunError> {
        match tokio::time::timeout(PATIENCE, self.next()).await {
            Ok(Some(Word::Ready {})) => Ok(self),
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
                .run_until((&request, fence), None, connection, is_over)
                .await;
            let _ = told.send(result);
        });
        Self {
            to,
            from,
            lines: Lines::default(),
            complaint: Vec::new(),
            stop,
            over,
            ended,
        }
    }

    /// Tells it something. If it has ended, the next word is `None`.
    pub(super) async fn tell(&self, order: &Order<'_>) {
        let _ = self.to.send(line(order)).await;
    }

    /// Where it is told something.
    pub(super) fn mouth(&self) -> mpsc::Sender<Vec<u8>> {
        self.to.clone()
    }

    /// The next that it says; `None` once it has ended, or says what makes no sense. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Option<Word> {
        loop {
            if let Some(line) = self.lines.next() {
                return serde_json::from_slice(line).ok();
            }
            let chunk = self.from.recv().await?;
            match chunk.stream {
                Stream::Stdout => self.lines.push(&chunk.bytes).ok()?,
                Stream::Stderr => self.complain(&chunk.bytes),
            }
        }
    }

    fn complain(&mut self, bytes: &[u8]) {
        let room = COMPLAINT - self.complaint.len();
        self.complaint.extend(bytes.iter().take(room));
    }

    /// Whether it has ended by itself.
    pub(super) fn is_over(&self) -> bool {
        self.to.is_closed()
    }

    /// Has it killed, after what it has said itself, and does not wait for that.
    pub(super) async fn leave(self) -> End {
        let _ = self.over.send(());
        drop(self.from);
        End {
            result: self.ended.await.unwrap_or(Err(local::Error::LauncherGone)),
            complaint: String::new(),
        }
    }

    /// Kills it and says how it ended.
    pub(super) async fn end(mut self) -> End {
        self.stop.send_replace(true);
        // What it still says keeps it from nothing.
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

/// What workers start from: made by Pyodides that have run programs of ours alone.
pub(super) async fn snapshot(installed: &Installed, local: &Arc<Local>) -> Result<Vec<u8>, RunError> {
    let files = [(&installed.guest, GUEST)];
    let made = made(
        (installed, local),
        &["snapshot", PYODIDE, GUEST],
        &files,
        MAX_SNAPSHOT,
    );
    made.await?.map_err(RunError::Snapshot)
}

/// The files of wheels, one behind the other, as a worker takes them. What is wrong with them is the inner error.
pub(super) async fn unpacked(
    wheels: &PathBuf,
    installed: &Installed,
    local: &Arc<Local>,
) -> Result<Result<Vec<u8>, String>, RunError> {
    let files = [(&installed.snapshot, SNAPSHOT), (wheels, PACKAGES)];
    let arguments = ["unpack", PYODIDE, SNAPSHOT, PACKAGES, "256"];
    made((installed, local), &arguments, &files, MAX_UNPACKED).await
}

/// What a Deno of ours prints, which ends then; or why it did not.
async fn made(
    (installed, local): (&Installed, &Arc<Local>),
    arguments: &[&str],
    files: &[(&PathBuf, &str)],
    most: usize,
) -> Result<Result<Vec<u8>, String>, RunError> {
    let request = request((installed, local), arguments, files, Bytes::mib(256)).map_err(unusable)?;
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

/// Deno as a request of the local fence.
fn request(
    (installed, local): (&Installed, &Local),
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

/// A program with its arguments, and nothing else.
pub(super) fn command<'a>(words: impl IntoIterator<Item = &'a str>) -> Request {
    Request {
        name: "command".to_owned(),
        args: words.into_iter().map(str::to_owned).collect(),
        ..Request::new(Language::Command, "")
    }
}

/// The paths are our own; one that cannot be mounted is a defect of ours.
fn unusable(error: ParseMountError) -> RunError {
    RunError::NotReady(error.to_string())
}
