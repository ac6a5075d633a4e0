//! A pool of fenced and warmed-up workers: each runs one job and is discarded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Limits;
use tokio::sync::Notify;
use tokio::sync::oneshot::error::TryRecvError;

use super::guest::{self, Groups, Guest, Plan};
use super::launcher::{LauncherClient, Zygote};

/// An idle worker.
#[derive(Debug)]
struct Idle {
    guest: Guest,
    /// Generation of the zygote that it was forked from.
    zygote: u64,
}

/// The idle workers.
#[derive(Debug)]
pub(super) struct Pool {
    /// The newest is the last.
    idle: Mutex<VecDeque<Idle>>,
    wanted: Notify,
    admitted: Notify,
    size: usize,
    /// Limits of every idle worker; only memory, processes and processor time can still be changed.
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

    /// Takes an idle worker that can be given these limits, if there is one.
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

    /// Takes the newest first: older ones may come from a zygote that was replaced.
    fn take_alive(&self) -> Option<Idle> {
        let mut idle = self.lock();
        let alive = std::iter::from_fn(|| idle.pop_back()).find_map(|mut idle| {
            let waits = idle.guest.exited.try_recv() == Err(TryRecvError::Empty);
            waits.then_some(idle)
        });
        // Otherwise the pool is refilled when the run has ended, so as not to compete with it.
        if idle.is_empty() {
            self.wanted.notify_one();
        }
        alive
    }

    /// Triggers a refill.
    pub(super) fn refill(&self) {
        self.wanted.notify_one();
    }

    /// Removes all workers, to be closed.
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

    /// Returns the number of idle workers.
    pub(super) fn waiting(&self) -> usize {
        self.lock().len()
    }

    /// Keeps the pool full of workers of the newest zygote. `plan` returns a worker's specification.
    pub(super) async fn keep_full(
        &self,
        lane: &Arc<LauncherClient>,
        groups: Option<&Groups>,
        plan: impl Fn() -> Plan,
    ) {
        let mut state = lane.zygote();
        let mut zygote = 0;
        loop {
            // The launcher forks from the new zygote before it reports it.
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
                // The zygote has died or is about to; its successor changes the state.
                Err(_) => match state.changed().await {
                    Ok(()) => zygote += 1,
                    Err(_) => return,
                },
            }
        }
    }

    /// Returns `true` if an idle worker comes from another zygote.
    fn outdated(&self, zygote: u64) -> bool {
        self.lock().front().is_some_and(|oldest| oldest.zygote != zygote)
    }

    /// Adds a worker once it has warmed up, in place of an outdated one if there is any.
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
