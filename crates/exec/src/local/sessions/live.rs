//! The handle of a session for everybody but its task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_cgroup::MemoryGauge;
use ringfence_policy::{ExecutionResult, SessionId};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::error::Error as LocalError;
use super::ending::Reason;
use super::evaluation_call::EvaluationCall;
use super::info::SessionInfo;
use super::interpreter::Interpreter;
use crate::supervise::cancellation;

/// Maximum number of queued calls of a session.
const MAX_WAITING: usize = 64;

/// Timeout of a fork for running evaluations.
const FORK_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// The handle of a session whose task runs.
#[derive(Debug)]
pub(in super::super) struct Live {
    calls: mpsc::Sender<Call>,
    stop: watch::Sender<bool>,
    created: Instant,
    facts: Mutex<Facts>,
}

/// The mutable facts of a session.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) evaluations: u64,
    pub(super) state: State,
    pub(super) memory: Option<MemoryGauge>,
    pub(super) forked_from: Option<SessionId>,
    /// Reason for the end of the previous session of this name.
    pub(super) former: Option<Reason>,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    Evaluating,
    /// Idle since this moment.
    Idle(Instant),
}

/// A call to a session's task.
#[derive(Debug)]
pub(super) enum Call {
    /// Evaluates a piece of code.
    Evaluate(
        Slot<EvaluationCall>,
        oneshot::Sender<Result<ExecutionResult, LocalError>>,
    ),
    /// Forks the session.
    Fork(Slot<Unborn>, oneshot::Sender<Result<(), LocalError>>),
}

/// A slot for work that the task takes to begin it, or the caller to cancel it.
#[derive(Debug)]
pub(super) struct Slot<T>(Arc<Mutex<Option<T>>>);

/// The result of a call.
pub(in super::super) enum Called<T, R> {
    Done(R),
    /// The call timed out or was cancelled before it began.
    NotBegun(T),
    /// The session ended before the call began.
    Back(T),
    /// The session ended with an unknown result.
    Lost,
}

/// A registered session that awaits its interpreter. Dropping it ends the session.
#[derive(Debug)]
pub(in super::super) struct Unborn {
    pub(super) live: Arc<Live>,
    pub(super) birth: oneshot::Sender<Interpreter>,
}

impl Unborn {
    /// Sends the session its interpreter.
    pub(in super::super) async fn bear(self, interpreter: Interpreter) -> Arc<Live> {
        if let Err(interpreter) = self.birth.send(interpreter) {
            interpreter.close().await;
        }
        self.live
    }
}

impl<T> Slot<T> {
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Live {
    pub(super) fn new(former: Option<Reason>) -> (Self, mpsc::Receiver<Call>) {
        let (calls, receiver) = mpsc::channel(MAX_WAITING);
        let now = Instant::now();
        let live = Self {
            calls,
            stop: watch::Sender::new(false),
            created: now,
            facts: Mutex::new(Facts {
                evaluations: 0,
                state: State::Idle(now),
                memory: None,
                forked_from: None,
                former,
            }),
        };
        (live, receiver)
    }

    /// Queues an evaluation, which is cancelled at its own deadline if it has not begun.
    pub(in super::super) async fn evaluate(
        &self,
        work: EvaluationCall,
    ) -> Called<EvaluationCall, Result<ExecutionResult, LocalError>> {
        let deadline = work.deadline();
        let cancelled = work.connection.cancelled.clone();
        let given_up = async {
            tokio::select! {
                () = tokio::time::sleep_until(deadline.into()) => {}
                () = cancellation(cancelled) => {}
            }
        };
        self.call(work, given_up, Call::Evaluate).await
    }

    /// Queues a fork, which is cancelled after a timeout if it has not begun.
    pub(in super::super) async fn fork(&self, unborn: Unborn) -> Called<Unborn, Result<(), LocalError>> {
        let given_up = tokio::time::sleep(FORK_TIMEOUT);
        self.call(unborn, given_up, Call::Fork).await
    }

    async fn call<T, R>(
        &self,
        work: T,
        given_up: impl Future<Output = ()>,
        call: impl FnOnce(Slot<T>, oneshot::Sender<R>) -> Call,
    ) -> Called<T, R> {
        let slot = Slot(Arc::new(Mutex::new(Some(work))));
        let (reply, mut replied) = oneshot::channel();
        let given = Slot(Arc::clone(&slot.0));
        if let Err(mpsc::error::TrySendError::Full(_)) = self.calls.try_send(call(given, reply))
            && let Some(work) = slot.take()
        {
            return Called::NotBegun(work);
        }
        let replied = tokio::select! {
            biased;
            replied = &mut replied => replied,
            () = given_up => {
                if let Some(work) = slot.take() {
                    return Called::NotBegun(work);
                }
                // It has begun; the task enforces its deadline and cancellation.
                replied.await
            }
        };
        match (replied, slot.take()) {
            (Ok(result), _) => Called::Done(result),
            (Err(_), Some(work)) => Called::Back(work),
            (Err(_), None) => Called::Lost,
        }
    }

    /// Returns the time since which no evaluation runs, or `None` during one.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.facts().state {
            State::Idle(since) => Some(since),
            State::Evaluating => None,
        }
    }

    /// Requests the session to end.
    pub(in super::super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Watches for the signal to end.
    pub(super) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Waits until the session has ended.
    pub(in super::super) async fn gone(&self) {
        self.calls.closed().await;
    }

    pub(super) fn created(&self) -> Instant {
        self.created
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn info(&self, id: &SessionId) -> SessionInfo {
        let facts = self.facts();
        let idle = match facts.state {
            State::Evaluating => None,
            State::Idle(since) => Some(since.elapsed().as_secs_f64()),
        };
        SessionInfo {
            id: id.clone(),
            age_seconds: self.created.elapsed().as_secs_f64(),
            idle_seconds: idle,
            evaluations: facts.evaluations,
            memory_bytes: facts.memory.as_ref().and_then(MemoryGauge::read),
            forked_from: facts.forked_from.clone(),
        }
    }
}
