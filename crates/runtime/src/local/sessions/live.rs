//! A session as everybody but its keeper sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_jail::cgroup::MemoryGauge;
use ringfence_policy::{ExecutionResult, Request, SessionId};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::destination::Destination;
use super::super::run::taken_back;
use super::super::{Connection, Error as LocalError, Fence};
use super::deadline;
use super::ending::Reason;
use super::info::SessionInfo;
use super::interpreter::Interpreter;

/// Evaluations that may wait for a session.
const MAX_WAITING: usize = 64;

/// How long a fork waits for evaluations to end.
const FORK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// A session that has a keeper.
#[derive(Debug)]
pub(super) struct Live {
    calls: mpsc::Sender<Call>,
    stop: watch::Sender<bool>,
    created: Instant,
    facts: Mutex<Facts>,
}

/// What changes about a session.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) evaluations: u64,
    pub(super) state: State,
    pub(super) memory: Option<MemoryGauge>,
    pub(super) forked_from: Option<SessionId>,
    /// Why the session ended that had the name before.
    pub(super) former: Option<Reason>,
}

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    Evaluating,
    /// Nothing, since then.
    Idle(Instant),
}

/// What a keeper is asked to have done.
#[derive(Debug)]
pub(super) enum Call {
    /// Evaluate a piece of code.
    Evaluate(Slot<Work>, oneshot::Sender<Result<ExecutionResult, LocalError>>),
    /// Make a copy of the session.
    Fork(Slot<Unborn>, oneshot::Sender<Result<(), LocalError>>),
}

/// Holds what is to be done until the keeper begins it, or the caller takes it back.
#[derive(Debug)]
pub(super) struct Slot<T>(Arc<Mutex<Option<T>>>);

/// What came of a call.
pub(super) enum Called<T, R> {
    Done(R),
    /// It was not begun in time, or nobody wants it any more.
    NotBegun(T),
    /// The session ended before it was begun.
    Back(T),
    /// The session ended, and nobody knows how.
    Lost,
}

/// A session that has a name and a keeper, and waits for its interpreter. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Unborn {
    pub(super) live: Arc<Live>,
    pub(super) birth: oneshot::Sender<Interpreter>,
}

impl Unborn {
    /// Gives the session its interpreter.
    pub(super) async fn bear(self, interpreter: Interpreter) -> Arc<Live> {
        if let Err(interpreter) = self.birth.send(interpreter) {
            interpreter.close().await;
        }
        self.live
    }
}

/// A piece of code to evaluate, and for whom.
#[derive(Debug)]
pub(in super::super) struct Work {
    pub(in super::super) request: Request,
    pub(in super::super) fence: Fence,
    pub(in super::super) since: Instant,
    pub(in super::super) destination: Option<Destination>,
    pub(in super::super) connection: Connection,
}

impl<T> Slot<T> {
    pub(super) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Work {
    /// Whether nobody wants it any more.
    pub(super) fn is_taken_back(&self) -> bool {
        let cancelled = self.connection.cancelled.as_ref();
        cancelled.is_some_and(|cancelled| *cancelled.borrow() || cancelled.has_changed().is_err())
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

    /// Has a piece of code evaluated when its turn comes, if that is before its own time is up.
    pub(super) async fn evaluate(&self, work: Work) -> Called<Work, Result<ExecutionResult, LocalError>> {
        let deadline = deadline(&work.request, work.since);
        let cancelled = work.connection.cancelled.clone();
        let given_up = async {
            tokio::select! {
                () = tokio::time::sleep_until(deadline.into()) => {}
                () = taken_back(cancelled) => {}
            }
        };
        self.call(work, given_up, Call::Evaluate).await
    }

    /// Has a copy made when that is due, if that is soon.
    pub(super) async fn fork(&self, unborn: Unborn) -> Called<Unborn, Result<(), LocalError>> {
        let given_up = tokio::time::sleep(FORK_PATIENCE);
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
                // It has begun, and the keeper has an eye on all that.
                replied.await
            }
        };
        match (replied, slot.take()) {
            (Ok(result), _) => Called::Done(result),
            (Err(_), Some(work)) => Called::Back(work),
            (Err(_), None) => Called::Lost,
        }
    }

    /// The time since which nothing is evaluated, or `None`.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.facts().state {
            State::Idle(since) => Some(since),
            State::Evaluating => None,
        }
    }

    /// Has the session end.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Becomes true when the session shall end.
    pub(super) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Waits until the session has ended.
    pub(super) async fn gone(&self) {
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
