//! Supervises one guest: feeds its input, reads its output, enforces its limits, classifies its end.

use std::time::{Duration, Instant};

use ringfence_cgroup::{Group, Usage};
use ringfence_policy::{Limits, Outcome};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::connection::Connection;
use super::exit;
use super::guest::{Guest, GuestParts, Output};
use super::launcher::Exit;
use super::notice;
use super::output_reader::OutputReader;
use super::workdir;
use crate::bridge::ByteChannel;
use crate::output::Captured;
use crate::supervise::{Interruption, KILLED, ProgramExit, RunLimits, cancellation};

/// Outcome, captured output and resource usage of a finished guest.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) outcome: Outcome,
    pub(super) exit_code: i32,
    pub(super) stdout: Captured,
    pub(super) stderr: Captured,
    pub(super) peak_memory_bytes: Option<u64>,
    pub(super) cpu_seconds: Option<f64>,
    /// Forks that failed at the limit on processes.
    pub(super) failed_forks: u64,
    /// Set if the process is still alive and must be killed.
    pub(super) lives: bool,
    /// Set if processes that the program left could not be ended in time.
    pub(super) has_descendants: bool,
}

/// The result of supervising a guest.
#[derive(Debug)]
pub(super) enum Ending<A> {
    /// The guest replied and runs on.
    Answered {
        answer: A,
        /// Reason for an interrupt before it replied.
        interruption: Option<Interruption>,
    },
    /// Its first process has exited.
    Ended(End),
}

/// The end of a guest's first process.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) exit: Option<Exit>,
    pub(super) interruption: Option<Interruption>,
}

/// Runs a guest to completion. Resolving `over` counts as cancellation.
pub(super) async fn supervise(
    guest: &mut Guest,
    limits: &Limits,
    since: Instant,
    connection: Connection,
    over: impl Future<Output = ()>,
) -> Finished {
    let mut reader = OutputReader::new(limits, connection.output);
    let job = std::mem::take(&mut guest.job);
    let pipe = guest.stdin.take();
    let (parts, control) = guest.parts();
    let stdin = pipe.zip(connection.stdin);
    let feeding = feed(control, job, stdin, connection.bridge);
    let limits = RunLimits {
        deadline: (since + limits.timeout.as_duration()).into(),
        cancellation: cancellation(connection.cancelled),
        disk_limit_exceeded: disk_limit_exceeded(parts.output, limits.disk.0, workdir::soon),
    };
    let bounds = Bounds {
        limits,
        grace: None,
        kill: std::future::pending(),
    };
    let last_exit = exit::announced(parts.exit);
    let answer = async {
        Some(tokio::select! {
            biased;
            () = over => None,
            exit = last_exit => Some(exit),
        })
    };
    let ending = wait_or_kill(parts, &mut reader, bounds, feeding, answer).await;
    let usage = |guest: &Guest| guest.group.as_ref().map(Group::usage);
    let mut has_descendants = false;
    let end = match ending {
        Ending::Ended(end) => {
            // Nothing runs or writes once the result is there.
            has_descendants = !guest.end_descendants().await;
            end
        }
        // The guest has announced its exit: what the pipes hold now is all. Its turn is free before the kernel has removed
        // it, or a server that runs one program at a time would refuse the next one.
        Ending::Answered {
            answer: Some(exit), ..
        } => End {
            exit: Some(exit),
            interruption: None,
        },
        Ending::Answered { answer: None, .. } => {
            return Finished {
                lives: true,
                ..Finished::new(Outcome::Cancelled, KILLED, usage(guest), reader)
            };
        }
    };
    reader.drain(&guest.stdout, &guest.stderr).await;
    Finished {
        has_descendants,
        ..classify_exit(end, usage(guest), reader)
    }
}

/// The limits of a guest, and the manner of its end.
pub(super) struct Bounds<C, D, K> {
    pub(super) limits: RunLimits<C, D>,
    /// Time for a guest to reply after SIGINT, at its deadline or on cancellation. `None`: it is killed at once.
    pub(super) grace: Option<Duration>,
    /// Resolves when the guest must be killed at once.
    pub(super) kill: K,
}

/// Progress of stopping a guest.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Running,
    /// SIGINT was sent; it has until this moment to reply.
    Interrupted(Interruption, Instant),
    Killed(Interruption),
}

impl Stage {
    const fn interruption(self) -> Option<Interruption> {
        match self {
            Self::Running => None,
            Self::Interrupted(why, _) | Self::Killed(why) => Some(why),
        }
    }
}

/// Reads output until the guest replies or exits. Kills it on a limit, on cancellation, or if the reply is
/// `None`; with a grace period, interrupts it first.
pub(super) async fn wait_or_kill<A>(
    guest: GuestParts<'_>,
    reader: &mut OutputReader,
    bounds: Bounds<impl Future<Output = ()>, impl Future<Output = ()>, impl Future<Output = Interruption>>,
    feeding: impl Future<Output = ()>,
    answer: impl Future<Output = Option<A>>,
) -> Ending<A> {
    let Bounds { limits, grace, kill } = bounds;
    let limit_reached = limits.reached();
    tokio::pin!(feeding, answer, limit_reached, kill);

    let (mut fed, mut stage) = (false, Stage::Running);
    loop {
        let running = matches!(stage, Stage::Running);
        let killed = matches!(stage, Stage::Killed(_));
        stage = tokio::select! {
            biased;
            exit = &mut *guest.exited => {
                return Ending::Ended(End { exit: exit.ok(), interruption: stage.interruption() });
            }
            reached = &mut limit_reached, if running => interrupt(&guest, reached, grace).await,
            why = &mut kill, if !killed => Stage::Killed(why),
            why = grace_over(stage) => Stage::Killed(why),
            () = &mut feeding, if !fed => { fed = true; continue; }
            answer = &mut answer, if !killed => match answer {
                Some(answer) => return Ending::Answered { answer, interruption: stage.interruption() },
                None => Stage::Killed(Interruption::ProtocolViolation),
            },
            () = reader.listen(guest.stdout, guest.stderr) => continue,
        };
        if let Stage::Killed(_) = stage {
            guest.launcher.kill(guest.id).await;
        }
    }
}

/// Interrupts a guest that has a grace period. It must be killed if the launcher does not do that in time.
async fn interrupt(guest: &GuestParts<'_>, why: Interruption, grace: Option<Duration>) -> Stage {
    let Some(grace) = grace.filter(|_| why != Interruption::DiskFull) else {
        return Stage::Killed(why);
    };
    let until = Instant::now() + grace;
    let interrupting = guest.launcher.interrupt(guest.id);
    match tokio::time::timeout_at(until.into(), interrupting).await {
        Ok(()) => Stage::Interrupted(why, until),
        Err(_) => Stage::Killed(why),
    }
}

/// Resolves at the end of the grace period of an interrupted guest.
async fn grace_over(stage: Stage) -> Interruption {
    match stage {
        Stage::Interrupted(why, until) => {
            tokio::time::sleep_until(until.into()).await;
            why
        }
        Stage::Running | Stage::Killed(_) => std::future::pending().await,
    }
}

/// Classifies the exit of a guest.
pub(super) fn classify_exit(end: End, usage: Option<Usage>, reader: OutputReader) -> Finished {
    let End { exit, interruption } = end;
    // It may have died of the SIGINT that came first.
    let by_us = |status: &i32| *status == -SIGINT && interruption.is_some();
    let status = exit.map(|exit| exit.status);
    let exited = ProgramExit {
        status: status.map(|status| if by_us(&status) { KILLED } else { status }),
        out_of_memory: usage.as_ref().is_some_and(|usage| usage.oom_kills > 0),
        interruption,
    };
    let (outcome, exit_code) = exited.outcome();
    let mut finished = Finished::new(outcome, exit_code, usage, reader);
    if let Some(exit) = exit {
        // Only processor time: the largest process's memory is not the peak of the run, which nothing
        // measured.
        finished.cpu_seconds.get_or_insert(exit.cpu_micros as f64 / 1e6);
    }
    finished
}

impl Finished {
    /// Returns the warning about processes that could not be ended.
    pub(super) fn survivors(&self) -> Option<String> {
        self.has_descendants.then(|| notice::SURVIVORS.to_owned())
    }

    /// Combines an outcome with the captured output and the resource usage.
    pub(super) fn new(outcome: Outcome, exit_code: i32, usage: Option<Usage>, reader: OutputReader) -> Self {
        let (stdout, stderr) = reader.finish();
        Self {
            outcome,
            exit_code,
            stdout,
            stderr,
            peak_memory_bytes: usage.as_ref().and_then(|usage| usage.peak_memory_bytes),
            cpu_seconds: usage.as_ref().and_then(|usage| usage.cpu_seconds),
            failed_forks: usage.map_or(0, |usage| usage.pids_max_hits),
            lives: false,
            has_descendants: false,
        }
    }
}

/// `SIGINT` from `signal.h`.
pub(super) const SIGINT: i32 = 2;

/// Sends the job, then relays standard input and the bridge. A guest that does not read is no error of ours.
async fn feed(
    control: &mut tokio::net::UnixStream,
    job: Vec<u8>,
    stdin: Option<(pipe::Sender, mpsc::Receiver<Vec<u8>>)>,
    bridge: Option<ByteChannel>,
) {
    if control.write_all(&job).await.is_err() {
        return;
    }
    let pouring = async {
        if let Some((pipe, stdin)) = stdin {
            forward(pipe, stdin).await;
        }
    };
    let carrying = async {
        if let Some(bridge) = bridge {
            bridge.carry_over(control).await;
        }
    };
    tokio::join!(pouring, carrying);
}

/// Forwards standard input until end of file.
pub(super) async fn forward(mut pipe: pipe::Sender, mut stdin: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = stdin.recv().await {
        if pipe.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Resolves when the host directory exceeds the disk limit. Never resolves for a cell, whose tmpfs is sized.
pub(super) async fn disk_limit_exceeded(output: &Output, limit: u64, pause: impl Fn(Duration) -> Duration) {
    match output {
        Output::Directory(directory) => {
            let most = workdir::Usage::at_most(limit);
            workdir::disk_limit_exceeded(directory.path().to_path_buf(), most, pause).await;
        }
        Output::Handle(_) => std::future::pending().await,
    }
}
