//! A pool of fenced and warmed-up workers: each runs one job and is discarded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_cgroup::Group;
use ringfence_policy::Limits;
use tokio::sync::Notify;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::guest::{self, Groups, Guest, Plan as GuestPlan};
use super::launcher::{LauncherClient, Zygote};
use ringfence_pool::{Plan, Pool, PoolSettings};

/// The idle workers. Their key is the number of the zygote that they were forked from.
#[derive(Debug)]
pub(super) struct WorkerPool {
    idle: Mutex<Pool<u64, Guest>>,
    /// Empty control groups of former guests, with the limits of an idle worker.
    groups: Mutex<Vec<Group>>,
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
        };
        Self {
            idle: Mutex::new(Pool::new(settings)),
            groups: Mutex::default(),
            wanted: Notify::new(),
            admitted: Notify::new(),
            size,
            limits,
        }
    }

    /// Takes an idle worker of a zygote to which these limits can be applied, if there is one. A worker of an
    /// older zygote would share its memory layout with programs that may have learned it.
    pub(super) fn take(&self, zygote: u64, limits: &Limits) -> Option<Guest> {
        if limits.disk != self.limits.disk {
            return None;
        }
        let mut guest = self.take_alive(zygote)?;
        let same = (limits.memory, limits.pids, limits.cpus)
            == (self.limits.memory, self.limits.pids, self.limits.cpus);
        let adapted = same
            || guest
                .group
                .as_mut()
                .is_some_and(|group| group.set_limits(guest::group_limits(limits)).is_ok());
        if adapted {
            return Some(guest);
        }
        self.lock().put_back(zygote, guest);
        None
    }

    fn take_alive(&self, zygote: u64) -> Option<Guest> {
        let mut idle = self.lock();
        let alive = idle.take(&zygote, Instant::now(), is_alive);
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

    /// Keeps a group without processes for the next worker, or removes it.
    pub(super) fn keep(&self, mut group: Group) {
        let is_new = group.reset(guest::group_limits(&self.limits));
        let mut groups = self.groups();
        if is_new && groups.len() < self.size {
            return groups.push(group);
        }
        drop(groups);
        // Leftovers are removed by the sweep of the next start.
        let _ = group.close();
    }

    /// Removes all workers and groups, to be closed.
    pub(super) fn empty(&self) -> (Vec<Guest>, Vec<Group>) {
        (self.lock().close(), std::mem::take(&mut *self.groups()))
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Keeps the pool full of workers of the newest zygote. `specify` returns a worker's specification.
    pub(super) async fn keep_full(
        &self,
        launcher: &Arc<LauncherClient>,
        groups: Option<&Groups>,
        specify: impl Fn() -> GuestPlan,
    ) {
        let mut state = launcher.zygote();
        let mut closing = JoinSet::new();
        loop {
            if state.wait_for(|state| *state == Zygote::Warm).await.is_err() {
                return;
            }
            let Plan { surplus, start, .. } = self.plan(launcher.zygotes());
            while closing.try_join_next().is_some() {}
            for guest in surplus {
                closing.spawn(guest.close());
            }
            let failed = match start {
                None => false,
                Some(_) => match guest::start(launcher, groups, self.with_group(specify())).await {
                    Ok(guest) => {
                        self.admit(guest).await;
                        continue;
                    }
                    // The zygote has died or is about to; its successor changes the state.
                    Err(_) => {
                        self.lock().failed();
                        true
                    }
                },
            };
            tokio::select! {
                () = self.wanted.notified(), if !failed => {}
                changed = state.changed() => if changed.is_err() { return },
            }
        }
    }

    fn with_group(&self, plan: GuestPlan) -> GuestPlan {
        GuestPlan {
            group: self.groups().pop(),
            ..plan
        }
    }

    /// Plans the next step towards a pool full of workers of this zygote.
    fn plan(&self, zygote: u64) -> Plan<u64, Guest> {
        let mut pool = self.lock();
        let now = Instant::now();
        pool.reserve(&zygote, now);
        pool.plan(now, is_alive)
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
