//! One run from its start to its result: feeds it, listens to it, ends it in time, says what came of it.

use std::time::{Duration, Instant};

use ringfence_jail::cgroup::{Group, Usage};
use ringfence_policy::{Limits, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use super::ears::Ears;
use super::guest::{Attended, Guest, Output};
use super::lane::Exit;
use super::workdir;
use crate::bridge::Duct;
use crate::output::Captured;

/// One of the two streams of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A piece of output, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// From which stream.
    pub stream: Stream,
    /// What it said.
    pub bytes: Vec<u8>,
}

/// How a run is connected to its caller.
#[derive(Debug)]
pub struct Connection {
    /// What the program reads; nothing if `None`. The sender's end closes the program's standard input.
    pub stdin: Option<mpsc::Receiver<Vec<u8>>>,
    /// Where output goes while the program runs. A caller that does not read holds the program up, nobody else.
    pub output: Option<mpsc::Sender<Chunk>>,
    /// Becomes true, or closes, when the caller takes the request back. `None`: never.
    pub cancelled: Option<watch::Receiver<bool>>,
    /// What a Python program calls the host's functions over; none if `None`.
    pub bridge: Option<Duct>,
}

impl Connection {
    /// No input, no streaming, no way back.
    pub const fn none() -> Self {
        Self {
            stdin: None,
            output: None,
            cancelled: None,
            bridge: None,
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) outcome: Outcome,
    pub(super) exit_code: i32,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
    pub(super) peak_memory_bytes: Option<u64>,
    pub(super) cpu_seconds: Option<f64>,
    /// Whether its process is still to be ended.
    pub(super) lives: bool,
}

/// What ended a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    TimedOut,
    Cancelled,
    DiskFull,
    /// It answered what makes no sense.
    Broken,
}

/// What a guest is not let go past.
#[derive(Debug)]
pub(super) struct Bounds<T> {
    pub(super) deadline: Instant,
    pub(super) disk_bytes: u64,
    /// Ends when nobody wants the run any more.
    pub(super) taken_back: T,
}

/// Why listening to a guest came to an end.
#[derive(Debug)]
pub(super) enum Ending<A> {
    /// It has answered, and goes on.
    Answered(A),
    /// Its first process has ended.
    Ended(End),
}

/// How a guest's first process ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) exit: Option<Exit>,
    pub(super) interruption: Option<Interruption>,
}

/// Lets a guest do its job and attends it until its end, or until `over` ends: then it is as good as cancelled.
pub(super) async fn attend(
    guest: &mut Guest,
    limits: &Limits,
    since: Instant,
    connection: Connection,
    over: impl Future<Output = ()>,
) -> Finished {
    let mut ears = Ears::new(limits, connection.output);
    let job = std::mem::take(&mut guest.job);
    let pipe = guest.stdin.take();
    let (attended, control) = guest.attended();
    let stdin = pipe.zip(connection.stdin);
    let feeding = feed(control, job, stdin, connection.bridge);
    let bounds = Bounds {
        deadline: since + limits.timeout.as_duration(),
        disk_bytes: limits.disk.0,
        taken_back: taken_back(connection.cancelled),
    };
    let over = async {
        over.await;
        Some(())
    };
    let ending = listen(attended, &mut ears, bounds, feeding, over).await;
    let usage = |guest: &Guest| guest.group.as_ref().map(Group::usage);
    match ending {
        Ending::Ended(end) => {
            ears.drain(&guest.stdout, &guest.stderr).await;
            conclude(end, usage(guest), ears)
        }
        Ending::Answered(()) => Finished {
            lives: true,
            ..Finished::new(Outcome::Cancelled, -9, usage(guest), ears)
        },
    }
}

/// Listens to a guest until it answers or ends. One that goes past its bounds, or whose answer is `None`, is killed.
pub(super) async fn listen<A>(
    guest: Attended<'_>,
    ears: &mut Ears,
    bounds: Bounds<impl Future<Output = ()>>,
    feeding: impl Future<Output = ()>,
    answer: impl Future<Output = Option<A>>,
) -> Ending<A> {
    let deadline = tokio::time::sleep_until(bounds.deadline.into());
    let taken_back = bounds.taken_back;
    let overfull = overfull(guest.output, bounds.disk_bytes, workdir::soon);
    tokio::pin!(feeding, answer, deadline, taken_back, overfull);

    let (mut fed, mut interruption) = (false, None);
    loop {
        let interrupted = tokio::select! {
            biased;
            exit = &mut *guest.exited => {
                return Ending::Ended(End { exit: exit.ok(), interruption });
            }
            () = &mut deadline, if interruption.is_none() => Interruption::TimedOut,
            () = &mut taken_back, if interruption.is_none() => Interruption::Cancelled,
            () = &mut overfull, if interruption.is_none() => Interruption::DiskFull,
            () = &mut feeding, if !fed => { fed = true; continue; }
            answer = &mut answer, if interruption.is_none() => match answer {
                Some(answer) => return Ending::Answered(answer),
                None => Interruption::Broken,
            },
            () = ears.listen(guest.stdout, guest.stderr) => continue,
        };
        interruption = Some(interrupted);
        guest.lane.kill(guest.id).await;
    }
}

/// What came of a guest that has ended.
pub(super) fn conclude(end: End, usage: Option<Usage>, ears: Ears) -> Finished {
    let End { exit, interruption } = end;
    let killed = exit.is_none_or(|exit| exit.status == -9);
    let out_of_memory = killed && usage.as_ref().is_some_and(|usage| usage.oom_kills > 0);
    let (outcome, exit_code) = match (exit, interruption) {
        (_, Some(Interruption::TimedOut)) if killed => (Outcome::TimedOut, -1),
        (_, Some(Interruption::Cancelled)) if killed => (Outcome::Cancelled, -9),
        (None, _) | (_, Some(Interruption::Broken)) => (Outcome::Unknown, UNKNOWN_STATUS),
        (Some(exit), _) if out_of_memory => (Outcome::MemoryExceeded, exit.status),
        (Some(exit), _) if exit.status < 0 => (Outcome::Signalled, exit.status),
        (Some(exit), _) => (Outcome::Exited, exit.status),
    };
    let mut finished = Finished::new(outcome, exit_code, usage, ears);
    if let Some(exit) = exit {
        // The largest process is not the run: what its memory was together, nothing measured.
        finished.cpu_seconds.get_or_insert(exit.cpu_micros as f64 / 1e6);
    }
    finished
}

impl Finished {
    /// What came of a run, with what was heard and used.
    pub(super) fn new(outcome: Outcome, exit_code: i32, usage: Option<Usage>, ears: Ears) -> Self {
        let (stdout, stderr) = ears.finish();
        Self {
            outcome,
            exit_code,
            stdout,
            stderr,
            peak_memory_bytes: usage.as_ref().and_then(|usage| usage.peak_memory_bytes),
            cpu_seconds: usage.and_then(|usage| usage.cpu_seconds),
            lives: false,
        }
    }
}

/// The status of a run of which nothing is known: that of a Ringfence that failed, and never a success.
const UNKNOWN_STATUS: i32 = 125;

/// Sends the job, then standard input, and carries what goes over the bridge. A guest that does not read is no error of
/// ours.
async fn feed(
    control: &mut tokio::net::UnixStream,
    job: Vec<u8>,
    stdin: Option<(pipe::Sender, mpsc::Receiver<Vec<u8>>)>,
    bridge: Option<Duct>,
) {
    if control.write_all(&job).await.is_err() {
        return;
    }
    let pouring = async {
        if let Some((pipe, stdin)) = stdin {
            pour(pipe, stdin).await;
        }
    };
    let carrying = async {
        if let Some(bridge) = bridge {
            bridge.carry_over(control).await;
        }
    };
    tokio::join!(pouring, carrying);
}

/// Passes standard input on, to its end.
pub(super) async fn pour(mut pipe: pipe::Sender, mut stdin: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = stdin.recv().await {
        if pipe.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

pub(crate) async fn taken_back(cancelled: Option<watch::Receiver<bool>>) {
    match cancelled {
        // An error means that the caller has gone, which takes the request back too.
        Some(mut cancelled) => drop(cancelled.wait_for(|cancelled| *cancelled).await),
        None => std::future::pending().await,
    }
}

/// Ends when a directory on the host holds more than the run may write. A cell's file system has its size.
pub(super) async fn overfull(output: &Output, limit: u64, pause: impl Fn(Duration) -> Duration) {
    match output {
        Output::Directory(directory) => {
            let most = workdir::Usage::at_most(limit);
            workdir::overfull(directory.path().to_path_buf(), most, pause).await;
        }
        Output::Handle(_) => std::future::pending().await,
    }
}
