//! A pool of fenced and warmed-up workers: each runs one job and is discarded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Limits;
use tokio::sync::Notify;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::Instant;

use super::guest::{self, Groups, Guest, Plan};
use super::launcher::{LauncherClient, Zygote};
use crate::pool::{Idle, Pool, PoolSettings, Surplus};

/// The idle workers. Their key is the generation of the zygote that they were forked from.
#[derive(Debug)]
pub(super) struct WorkerPool {
    idle: Mutex<Pool<u64, Guest>>,
    wanted: Notify,
    admitted: Notify,
    size: usize,
    /// Limits of every idle worker; only memory, processes and processor time can still be changed.
    pub(super) limits: Limits,
}

impl WorkerPool {
    pub(super) fn new(size: usize, limits: Limits) -> Self {
        let settings = PoolSettings {
            size,
            max_size: size,
            per_checkout: size,
            expiry: None,
            // A worker of a replaced zygote is better than none.
            surplus: Surplus::Replace,
        };
        Self {
            idle: Mutex::new(Pool::new(settings)),
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
                .instance
                .group
                .as_ref()
                .is_some_and(|group| group.set_limits(guest::group_limits(limits)).is_ok());
        if adapted {
            return Some(idle.instance);
        }
        self.lock().put_back(idle);
        None
    }

    /// Takes the newest first: older ones may come from a zygote that was replaced.
    fn take_alive(&self) -> Option<Idle<u64, Guest>> {
        let mut idle = self.lock();
        let alive = idle.take_newest(is_alive);
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
        self.lock().close()
    }

    /// Waits until the pool is full.
    pub(super) async fn filled(&self) {
        while self.lock().len() < self.size {
            let admitted = self.admitted.notified();
            if self.lock().len() < self.size {
                admitted.await;
            }
        }
    }

    /// Keeps the pool full of workers of the newest zygote. `plan` returns a worker's specification.
    pub(super) async fn keep_full(
        &self,
        launcher: &Arc<LauncherClient>,
        groups: Option<&Groups>,
        plan: impl Fn() -> Plan,
    ) {
        let mut state = launcher.zygote();
        let mut zygote = 0;
        loop {
            // The launcher forks from the new zygote before it reports it.
            zygote += u64::from(state.has_changed().unwrap_or(false));
            if state.wait_for(|state| *state == Zygote::Warm).await.is_err() {
                return;
            }
            if !self.wants_worker(zygote).await {
                tokio::select! {
                    () = self.wanted.notified() => {}
                    changed = state.changed() => match changed {
                        Ok(()) => zygote += 1,
                        Err(_) => return,
                    },
                }
                continue;
            }
            match guest::start(launcher, groups, plan()).await {
                Ok(guest) => self.admit(guest).await,
                // The zygote has died or is about to; its successor changes the state.
                Err(_) => {
                    self.lock().failed();
                    match state.changed().await {
                        Ok(()) => zygote += 1,
                        Err(_) => return,
                    }
                }
            }
        }
    }

    /// Closes the workers that are dead or were replaced. Returns `true` if one of this zygote is missing.
    async fn wants_worker(&self, zygote: u64) -> bool {
        let plan = {
            let mut pool = self.lock();
            let now = Instant::now();
            pool.reserve(&zygote, now);
            pool.plan(now, is_alive)
        };
        for guest in plan.surplus {
            let _ = guest.close().await;
        }
        plan.start.is_some()
    }

    /// Adds a worker once it has warmed up.
    async fn admit(&self, mut guest: Guest) {
        if guest.greeted().await.is_err() {
            self.lock().failed();
            return drop(guest.close().await);
        }
        self.lock().started(guest);
        self.admitted.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Pool<u64, Guest>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_alive(guest: &mut Guest) -> bool {
    guest.exited.try_recv() == Err(TryRecvError::Empty)
}
