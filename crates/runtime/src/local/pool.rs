//! Workers that are fenced, warmed up and waiting: each runs one job and is thrown away.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Limits;
use tokio::sync::Notify;
use tokio::sync::oneshot::error::TryRecvError;

use super::guest::{self, Groups, Guest, Plan};
use super::lane::{Lane, Zygote};

/// A waiting worker.
#[derive(Debug)]
struct Idle {
    guest: Guest,
    /// The zygote that it comes from, counted from the lane's first.
    zygote: u64,
}

/// Waiting workers, and what new ones are made from.
#[derive(Debug)]
pub(super) struct Pool {
    /// The newest is the last.
    idle: Mutex<VecDeque<Idle>>,
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
        let idle = self.take_alive()?;
        let same = (limits.memory, limits.pids, limits.cpus)
            == (self.limits.memory, self.limits.pids, self.limits.cpus);
        let adapted = same
            || idle
                .guest
                .group
                .as_ref()
                .is_some_and(|group| group.set_limits(guest::group_limits(limits)).is_ok());
        if adapted {
            return Some(idle.guest);
        }
        self.lock().push_back(idle);
        None
    }

    /// The newest first: older ones may come from a zygote that has been replaced.
    fn take_alive(&self) -> Option<Idle> {
        let mut idle = self.lock();
        let alive = std::iter::from_fn(|| idle.pop_back()).find_map(|mut idle| {
            let waits = idle.guest.exited.try_recv() == Err(TryRecvError::Empty);
            waits.then_some(idle)
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
        self.lock().drain(..).map(|idle| idle.guest).collect()
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

    /// Keeps the pool full of workers of the newest zygote. `plan` tells how a worker is made.
    pub(super) async fn keep_full(&self, lane: &Arc<Lane>, groups: Option<&Groups>, plan: impl Fn() -> Plan) {
        let mut state = lane.zygote();
        let mut zygote = 0;
        loop {
            // The launcher forks from the new one before it says that there is one.
            zygote += u64::from(state.has_changed().unwrap_or(false));
            if state.wait_for(|state| *state == Zygote::Warm).await.is_err() {
                return;
            }
            let outdated = self.outdated(zygote);
            if self.waiting() >= self.size && !outdated {
                tokio::select! {
                    () = self.wanted.notified() => {}
                    changed = state.changed() => match changed {
                        Ok(()) => zygote += 1,
                        Err(_) => return,
                    },
                }
                continue;
            }
            match guest::start(lane, groups, plan()).await {
                Ok(guest) => self.admit(Idle { guest, zygote }).await,
                // The zygote is gone or going; its successor changes the state.
                Err(_) => match state.changed().await {
                    Ok(()) => zygote += 1,
                    Err(_) => return,
                },
            }
        }
    }

    /// Whether a worker waits that comes from another zygote.
    fn outdated(&self, zygote: u64) -> bool {
        self.lock().front().is_some_and(|oldest| oldest.zygote != zygote)
    }

    /// Lets a worker wait in the pool once it has warmed up, in the place of an outdated one if there is any.
    async fn admit(&self, mut idle: Idle) {
        if idle.guest.greeted().await.is_err() {
            return drop(idle.guest.close().await);
        }
        let replaced = {
            let mut all = self.lock();
            let outdated = all.front().is_some_and(|oldest| oldest.zygote != idle.zygote);
            all.push_back(idle);
            outdated.then(|| all.pop_front()).flatten()
        };
        self.admitted.notify_waiters();
        if let Some(replaced) = replaced {
            let _ = replaced.guest.close().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
