//! One evaluation in a session: sends it to the interpreter, supervises it, classifies its end.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_cgroup::Usage;
use ringfence_policy::{Outcome, Request};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{WriteHalf, pipe};
use tokio::sync::mpsc;

use super::super::connection::Connection;
use super::super::guest::Guest;
use super::super::output_reader::OutputReader;
use super::super::run::{self, Bounds, Ending, Finished};
use super::super::workdir;
use super::ending::Reason;
use super::messages::{self, Answer, Evaluation, NoAnswer, Value};
use super::results::RichResults;
use crate::bridge::ByteChannel;
use crate::supervise::{Interruption, RunLimits, cancellation};

/// Grace period for the exit of an interpreter after its channel was closed. One that lives on has closed the
/// channel itself.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// Time for an evaluation to end by itself after SIGINT, at its time limit or when its caller is gone. Whatever
/// does not, such as a loop in C, is killed with its session.
const INTERRUPT_GRACE: Duration = Duration::from_secs(3);

/// The result of an evaluation.
#[derive(Debug)]
pub(super) struct Evaluated {
    pub(super) finished: Finished,
    pub(super) value: Option<Value>,
    pub(super) results: RichResults,
    /// Set if the code was interrupted and the session lives on.
    pub(super) interrupted: bool,
    /// Reason for the session's end, if it ended.
    pub(super) ended: Option<Reason>,
}

/// A request to evaluate code in a session.
pub(super) struct Evaluable<'a> {
    pub(super) request: &'a Request,
    /// Number of the evaluation in the session.
    pub(super) number: u32,
    pub(super) since: Instant,
    /// Set if the evaluation before was interrupted.
    pub(super) after_interrupt: bool,
}

/// Events that stop an evaluation.
pub(super) struct Stops<A, S> {
    /// Resolves when nobody waits for the result any more.
    pub(super) abandoned: A,
    /// Resolves when the session must end.
    pub(super) shutdown: S,
}

/// Evaluates the request's code. It is interrupted at its deadline and on cancellation.
pub(super) async fn evaluate(
    guest: &mut Guest,
    evaluable: Evaluable<'_>,
    connection: Connection,
    stops: Stops<impl Future<Output = ()>, impl Future<Output = ()>>,
) -> Evaluated {
    let Evaluable {
        request,
        number,
        since,
        after_interrupt,
    } = evaluable;
    let limits = &request.limits;
    let mut reader = OutputReader::new(limits, connection.output);
    // Without a pipe the code reads nothing, which is better than not being run.
    let stdin = connection.stdin.and_then(Stdin::new);
    let evaluation = Evaluation {
        number,
        wanted: messages::wanted(limits.max_output),
        stdin: stdin.is_some(),
        bridge: connection.bridge.is_some(),
        after_interrupt,
        name: &request.name,
        code: &request.code,
        arguments: &request.args,
        variables: &request.env,
        lasting: messages::Lasting::Session,
    };
    let told = AtomicBool::new(false);
    let cancelled = connection.cancelled;
    let (parts, control) = guest.parts();
    let disk_limit_exceeded = run::disk_limit_exceeded(parts.output, limits.disk.0, workdir::soon);
    let limits = RunLimits {
        deadline: (since + limits.timeout.as_duration()).into(),
        // It must hold during the grace period, too.
        disk_limit_exceeded: std::future::pending(),
        cancellation: async {
            tokio::select! {
                () = cancellation(cancelled) => {}
                () = stops.abandoned => {}
            }
        },
    };
    let bounds = Bounds {
        limits,
        grace: Some(INTERRUPT_GRACE),
        kill: async {
            tokio::select! {
                () = stops.shutdown => Interruption::Cancelled,
                () = disk_limit_exceeded => Interruption::DiskFull,
            }
        },
    };
    let (hearing, saying) = control.split();
    let feeding = send(saying, evaluation.message(), stdin, connection.bridge, &told);
    let answer = async {
        match evaluation.answer(hearing).await {
            // A reply sent before the whole message was received is invalid.
            Ok(answer) => Some(answer).filter(|_| told.load(Ordering::Relaxed)),
            Err(NoAnswer::HungUp) => {
                tokio::time::sleep(GRACE).await;
                None
            }
            Err(NoAnswer::Nonsense) => None,
        }
    };
    let ending = run::wait_or_kill(parts, &mut reader, bounds, feeding, answer).await;
    // Nothing of a session that has ended runs or writes once that is told.
    let has_descendants = matches!(ending, Ending::Ended(_)) && !guest.end_descendants().await;
    reader.drain(&guest.stdout, &guest.stderr).await;
    let usage = guest.group.as_mut().map(|group| group.take_usage());
    let mut evaluated = classify(ending, usage, reader);
    evaluated.finished.has_descendants = has_descendants;
    evaluated
}

/// Classifies the end of an evaluation.
fn classify(ending: Ending<Answer>, usage: Option<Usage>, reader: OutputReader) -> Evaluated {
    match ending {
        Ending::Answered { answer, interruption } => {
            let (outcome, exit_code) = match interruption {
                None => (Outcome::Exited, i32::from(answer.status)),
                Some(Interruption::TimedOut) => (Outcome::TimedOut, -1),
                Some(_) => (Outcome::Cancelled, -run::SIGINT),
            };
            Evaluated {
                finished: Finished::new(outcome, exit_code, usage, reader),
                value: answer.value,
                results: answer.results,
                interrupted: interruption.is_some(),
                ended: None,
            }
        }
        Ending::Ended(end) => {
            let finished = run::classify_exit(end, usage, reader);
            let ended = match end.interruption {
                Some(Interruption::ProtocolViolation) => Reason::Broken,
                Some(Interruption::DiskFull) => Reason::Disk,
                Some(Interruption::TimedOut | Interruption::Cancelled) | None => {
                    Reason::of(finished.outcome, finished.exit_code)
                }
            };
            Evaluated {
                finished,
                value: None,
                results: RichResults::default(),
                interrupted: false,
                ended: Some(ended),
            }
        }
    }
}

/// A pipe for an evaluation's standard input.
struct Stdin {
    theirs: OwnedFd,
    ours: pipe::Sender,
    bytes: mpsc::Receiver<Vec<u8>>,
}

impl Stdin {
    fn new(bytes: mpsc::Receiver<Vec<u8>>) -> Option<Self> {
        let (theirs, ours) = ringfence_jail::output_pipe().ok()?;
        let ours = pipe::Sender::from_owned_fd(ours).ok()?;
        Some(Self { theirs, ours, bytes })
    }

    /// Sends the session the read end. Returns a future that forwards the input.
    async fn hand_over(self, channel: &UnixStream) -> std::io::Result<impl Future<Output = ()> + use<>> {
        let Self { theirs, ours, bytes } = self;
        let hand_over = || ringfence_jail::hand_over(channel.as_fd(), theirs.as_fd());
        channel.async_io(Interest::WRITABLE, hand_over).await?;
        Ok(run::forward(ours, bytes))
    }
}

/// Sends the message and the file descriptors, then relays standard input and the bridge. A guest that does
/// not read is not an error.
async fn send(
    mut channel: WriteHalf<'_>,
    message: Vec<u8>,
    stdin: Option<Stdin>,
    bridge: Option<ByteChannel>,
    told: &AtomicBool,
) {
    let telling = async {
        channel.write_all(&message).await?;
        let pouring = match stdin {
            Some(stdin) => Some(stdin.hand_over(channel.as_ref()).await?),
            None => None,
        };
        let carrying = match bridge {
            Some(bridge) => Some(bridge.hand_over(channel.as_ref()).await?),
            None => None,
        };
        std::io::Result::Ok((pouring, carrying))
    };
    let Ok((pouring, carrying)) = telling.await else {
        return;
    };
    told.store(true, Ordering::Relaxed);
    tokio::join!(if_any(pouring), if_any(carrying));
}

async fn if_any(work: Option<impl Future<Output = ()>>) {
    if let Some(work) = work {
        work.await;
    }
}
