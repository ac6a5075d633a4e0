//! One run from its start to its result: feeds it, listens to it, ends it in time, says what came of it.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Instant;

use ringfence_policy::{Limits, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use super::guest::{Guest, Output};
use super::lane::Exit;
use super::workdir;
use crate::output::{Capture, Captured};

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
}

impl Connection {
    /// No input, no streaming, no way back.
    pub const fn none() -> Self {
        Self {
            stdin: None,
            output: None,
            cancelled: None,
        }
    }
}

/// What comes from the caller while a run lasts.
struct Input {
    stdin: Option<mpsc::Receiver<Vec<u8>>>,
    cancelled: Option<watch::Receiver<bool>>,
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
}

/// What ended a run from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    TimedOut,
    Cancelled,
    DiskFull,
}

/// How much is read at once. A pipe holds this much unless the guest makes it larger.
const READ_SIZE: usize = 64 * 1024;

/// The most that can still lie in a pipe when the program has ended (/proc/sys/fs/pipe-max-size).
const MAX_PIPE: usize = 1024 * 1024;

/// Lets a guest do its job and attends it until its end.
pub(super) async fn attend(
    guest: &mut Guest,
    limits: &Limits,
    since: Instant,
    connection: Connection,
) -> Finished {
    let Connection {
        stdin,
        output,
        cancelled,
    } = connection;
    let mut ears = Ears::new(limits, output);
    let connection = Input { stdin, cancelled };
    let (exit, interruption) = listen_to_end(guest, &mut ears, limits, since, connection).await;
    ears.drain(&guest.stdout, &guest.stderr).await;
    conclude(guest, exit, interruption, ears)
}

async fn listen_to_end(
    guest: &mut Guest,
    ears: &mut Ears,
    limits: &Limits,
    since: Instant,
    connection: Input,
) -> (Option<Exit>, Option<Interruption>) {
    let job = std::mem::take(&mut guest.job);
    let feeding = feed(&mut guest.control, job, guest.stdin.take(), connection.stdin);
    let deadline = tokio::time::sleep_until((since + limits.timeout.as_duration()).into());
    let taken_back = taken_back(connection.cancelled);
    let overfull = overfull(&guest.output, limits.disk.0);
    tokio::pin!(feeding, deadline, taken_back, overfull);

    let (mut fed, mut interruption) = (false, None);
    loop {
        let interrupted = tokio::select! {
            biased;
            exit = &mut guest.exited => return (exit.ok(), interruption),
            () = &mut deadline, if interruption.is_none() => Interruption::TimedOut,
            () = &mut taken_back, if interruption.is_none() => Interruption::Cancelled,
            () = &mut overfull, if interruption.is_none() => Interruption::DiskFull,
            () = &mut feeding, if !fed => { fed = true; continue; }
            () = ears.listen(&mut guest.stdout, &mut guest.stderr) => continue,
        };
        interruption = Some(interrupted);
        guest.lane.kill(guest.id).await;
    }
}

fn conclude(guest: &Guest, exit: Option<Exit>, interruption: Option<Interruption>, ears: Ears) -> Finished {
    let usage = guest.group.as_ref().map(|group| group.usage());
    let killed = exit.is_none_or(|exit| exit.status == -9);
    let out_of_memory = killed && usage.as_ref().is_some_and(|usage| usage.oom_kills > 0);
    let (outcome, exit_code) = match (exit, interruption) {
        (_, Some(Interruption::TimedOut)) if killed => (Outcome::TimedOut, -1),
        (_, Some(Interruption::Cancelled)) if killed => (Outcome::Cancelled, -9),
        (None, _) => (Outcome::Unknown, UNKNOWN_STATUS),
        (Some(exit), _) if out_of_memory => (Outcome::MemoryExceeded, exit.status),
        (Some(exit), _) if exit.status < 0 => (Outcome::Signalled, exit.status),
        (Some(exit), _) => (Outcome::Exited, exit.status),
    };
    Finished {
        outcome,
        exit_code,
        stdout: ears.stdout.finish(),
        stderr: ears.stderr.finish(),
        peak_memory_bytes: usage
            .as_ref()
            .and_then(|usage| usage.peak_memory_bytes)
            .or_else(|| exit.map(|exit| exit.max_rss)),
        cpu_seconds: usage
            .and_then(|usage| usage.cpu_seconds)
            .or_else(|| exit.map(|exit| exit.cpu_micros as f64 / 1e6)),
    }
}

/// The status of a run of which nothing is known: that of a Ringfence that failed, and never a success.
const UNKNOWN_STATUS: i32 = 125;

/// How long a caller may take to read the last of a program's output.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Takes in both streams.
struct Ears {
    stdout: Capture,
    stderr: Capture,
    open: [bool; 2],
    buffers: [Vec<u8>; 2],
    output: Option<mpsc::Sender<Chunk>>,
    /// Taken in, and not yet passed on.
    pending: Option<Chunk>,
}

impl Ears {
    fn new(limits: &Limits, output: Option<mpsc::Sender<Chunk>>) -> Self {
        Self {
            stdout: Capture::new(limits.max_output),
            stderr: Capture::new(limits.max_output),
            open: [true; 2],
            buffers: [vec![0; READ_SIZE], vec![0; READ_SIZE]],
            output,
            pending: None,
        }
    }

    /// Passes one piece on, or takes one in. Never ends once both streams are closed. May be dropped and
    /// called again: what was taken in is kept.
    async fn listen(&mut self, stdout: &mut pipe::Receiver, stderr: &mut pipe::Receiver) {
        if let Some(output) = self.output.clone().filter(|_| self.pending.is_some()) {
            // Streaming waits for the caller, and the program with it.
            match (output.reserve().await, self.pending.take()) {
                (Ok(permit), Some(chunk)) => permit.send(chunk),
                _ => self.output = None,
            }
            return;
        }
        let [out_buffer, err_buffer] = &mut self.buffers;
        let (stream, read) = tokio::select! {
            read = stdout.read(out_buffer), if self.open[0] => (Stream::Stdout, read),
            read = stderr.read(err_buffer), if self.open[1] => (Stream::Stderr, read),
            else => return std::future::pending().await,
        };
        self.take(stream, read.unwrap_or(0));
    }

    /// Takes in what was read; no bytes mean the stream's end.
    fn take(&mut self, stream: Stream, length: usize) {
        self.open[stream as usize] &= length > 0;
        let bytes = &self.buffers[stream as usize][..length];
        match stream {
            Stream::Stdout => self.stdout.push(bytes),
            Stream::Stderr => self.stderr.push(bytes),
        }
        if self.output.is_some() && length > 0 {
            self.pending = Some(Chunk {
                stream,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Takes in what the program wrote before its end and nobody has read.
    ///
    /// The pipes are read directly: the event loop may not have heard yet that there is something in them.
    async fn drain(&mut self, stdout: &pipe::Receiver, stderr: &pipe::Receiver) {
        let patience = tokio::time::Instant::now() + PATIENCE;
        self.pass_on(patience).await;
        for (stream, pipe) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
            let Ok(mut pipe) = pipe.as_fd().try_clone_to_owned().map(File::from) else {
                continue;
            };
            let mut left = MAX_PIPE;
            while self.open[stream as usize] && left > 0 {
                let Ok(length) = pipe.read(&mut self.buffers[stream as usize]) else {
                    break;
                };
                self.take(stream, length);
                left = left.saturating_sub(length);
                self.pass_on(patience).await;
            }
        }
    }

    /// A caller that has stopped reading still gets the result, without the rest of the stream.
    async fn pass_on(&mut self, patience: tokio::time::Instant) {
        if let (Some(output), Some(chunk)) = (&self.output, self.pending.take()) {
            let sent = tokio::time::timeout_at(patience, output.send(chunk)).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.output = None;
            }
        }
    }
}

/// Sends the job, then standard input. A guest that does not read is no error of ours.
async fn feed(
    control: &mut tokio::net::UnixStream,
    job: Vec<u8>,
    pipe: Option<pipe::Sender>,
    stdin: Option<mpsc::Receiver<Vec<u8>>>,
) {
    let sent = control.write_all(&job).await;
    let (Some(mut pipe), Some(mut stdin), Ok(())) = (pipe, stdin, sent) else {
        return;
    };
    while let Some(bytes) = stdin.recv().await {
        if pipe.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

async fn taken_back(cancelled: Option<watch::Receiver<bool>>) {
    match cancelled {
        // An error means that the caller has gone, which takes the request back too.
        Some(mut cancelled) => drop(cancelled.wait_for(|cancelled| *cancelled).await),
        None => std::future::pending().await,
    }
}

/// How often a directory on the host is measured.
const MEASURE_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// Ends when a directory on the host holds more than the run may write. A cell's file system has its size.
async fn overfull(output: &Output, limit: u64) {
    let Output::Directory(directory) = output else {
        return std::future::pending().await;
    };
    loop {
        let (path, since) = (directory.path().to_path_buf(), Instant::now());
        let measured = tokio::task::spawn_blocking(move || workdir::holds_more_than(&path, limit)).await;
        // A guest that cannot be measured is not let go on unmeasured.
        if measured.unwrap_or(true) {
            return;
        }
        // Soon again: the more there is to measure, the more is written meanwhile. But not without a pause.
        tokio::time::sleep(MEASURE_EVERY.max(since.elapsed() / 4)).await;
    }
}
