//! A session as everybody but its keeper sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_jail::cgroup::MemoryGauge;
use ringfence_policy::{ExecutionResult, Request, SessionId};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::destination::Destination;
use super::super::{Connection, Error as LocalError, Fence};
use super::ending::Reason;
use super::info::SessionInfo;
use super::{Error, deadline};

/// Evaluations that may wait for a session.
const MAX_WAITING: usize = 64;

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
    /// Evaluate what lies in the slot, if it still lies there.
    Evaluate(Slot, oneshot::Sender<Result<ExecutionResult, LocalError>>),
}

/// Holds a piece of work until the keeper begins it, or the caller takes it back.
#[derive(Debug, Clone)]
pub(super) struct Slot(Arc<Mutex<Option<Box<Work>>>>);

/// A piece of code to evaluate, and for whom.
#[derive(Debug)]
pub(in super::super) struct Work {
    pub(in super::super) request: Request,
    pub(in super::super) fence: Fence,
    pub(in super::super) since: Instant,
    pub(in super::super) destination: Option<Destination>,
    pub(in super::super) connection: Connection,
}

impl Slot {
    fn new(work: Box<Work>) -> Self {
        Self(Arc::new(Mutex::new(Some(work))))
    }

    pub(super) fn take(&self) -> Option<Box<Work>> {
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

    /// Has a piece of code evaluated when its turn comes, if that is before its own time is up. Gives it back if the
    /// session ended before.
    pub(super) async fn evaluate(
        &self,
        work: Box<Work>,
    ) -> Result<Result<ExecutionResult, LocalError>, Box<Work>> {
        let busy = work.request.session.clone().map(Error::Busy);
        let busy = || Ok(Err(busy.unwrap_or(Error::Closing).into()));
        let deadline = deadline(&work.request, work.since);
        let slot = Slot::new(work);
        let (reply, mut replied) = oneshot::channel();
        if let Err(mpsc::error::TrySendError::Full(_)) =
            self.calls.try_send(Call::Evaluate(slot.clone(), reply))
        {
            return busy();
        }
        let replied = tokio::select! {
            biased;
            replied = &mut replied => replied,
            () = tokio::time::sleep_until(deadline.into()) => {
                if slot.take().is_some() {
                    return busy();
                }
                // It has begun, and the keeper has an eye on the time.
                replied.await
            }
        };
        match (replied, slot.take()) {
            (Ok(result), _) => Ok(result),
            (Err(_), Some(work)) => Err(work),
            (Err(_), None) => Ok(Err(Error::Closing.into())),
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

    /// Waits until nothing of the session is left.
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
