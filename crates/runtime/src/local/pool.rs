//! Workers that are fenced, warmed up and waiting: each runs one job and is thrown away.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Limits;
use tokio::sync::Notify;
use tokio::sync::oneshot::error::TryRecvError;

use super::guest::{self, Groups, Guest, Plan};
use super::lane::{Lane, Zygote};

/// Waiting workers, and what new ones are made from.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<VecDeque<Guest>>,
    wanted: Notify,
    admitted: Notify,
    size: usize,
    /// The limits that every waiting worker has; only memory, processes and processor time can still change.
    pub(super) limits: Limits,
}

impl Pool {
    pub(super) fn new(size: usize, limits: Limits) -> Self {
        Self {
            idle: Mutex::new(VecDeque::new()),
            wanted: Notify::new(),
            admitted: Notify::new(),
            size,
            limits,
        }
    }

    /// A waiting worker that can take on these limits, if there is one.
    pub(super) fn take(&self, limits: &Limits) -> Option<Guest> {
        if limits.disk != self.limits.disk {
            return None;
        }
        let guest = self.take_alive()?;
        let same = (limits.memory, limits.pids, limits.cpus)
            == (self.limits.memory, self.limits.pids, self.limits.cpus);
        let adapted = same
            || guest
                .group
                .as_ref()
                .is_some_and(|group| group.set_limits(guest::group_limits(limits)).is_ok());
        if adapted {
            return Some(guest);
        }
        self.lock().push_front(guest);
        None
    }

    fn take_alive(&self) -> Option<Guest> {
        let mut idle = self.lock();
        let alive = std::iter::from_fn(|| idle.pop_front()).find_map(|mut guest| {
            let waits = guest.exited.try_recv() == Err(TryRecvError::Empty);
            waits.then_some(guest)
        });
        // Otherwise the pool is refilled when a run has ended, so as not to compete with it.
        if idle.is_empty() {
            self.wanted.notify_one();
        }
        alive
    }

    /// Lets the pool be refilled.
    pub(super) fn refill(&self) {
        self.wanted.notify_one();
    }

    /// Takes all workers out, to be closed.
    pub(super) fn empty(&self) -> Vec<Guest> {
        self.lock().drain(..).collect()
    }

    /// Waits until the pool is full.
    pub(super) async fn filled(&self) {
        while self.waiting() < self.size {
            let admitted = self.admitted.notified();
            if self.waiting() < self.size {
                admitted.await;
            }
        }
    }

    /// How many workers wait.
    pub(super) fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// Keeps the pool full. `plan` tells how a worker is made.
    pub(super) async fn keep_full(&self, lane: &Arc<Lane>, groups: Option<&Groups>, plan: impl Fn() -> Plan) {
        let mut zygote = lane.zygote();
        loop {
            if zygote.wait_for(|state| *state == Zygote::Warm).await.is_err() {
                return;
            }
            if self.waiting() >= self.size {
                self.wanted.notified().await;
                continue;
            }
            match guest::start(lane, groups, plan()).await {
                Ok(guest) => self.admit(guest).await,
                // The zygote is gone or going; its successor changes the state.
                Err(_) if zygote.changed().await.is_err() => return,
                Err(_) => {}
            }
        }
    }

    /// Lets a worker wait in the pool once it has warmed up.
    async fn admit(&self, mut guest: Guest) {
        match guest.greeted().await {
            Ok(()) => {
                self.lock().push_back(guest);
                self.admitted.notify_waiters();
            }
            Err(_) => drop(guest.close().await),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Guest>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
