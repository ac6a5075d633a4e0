//! The pool of idle workers. Each runs one program and is discarded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_policy::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::RunError;
use super::install::Installed;
use super::worker::{Start, Worker};
use crate::local::{Fence, Local};

/// Idle timeout of a worker, which takes about 130 MiB.
const IDLE: Duration = Duration::from_secs(600);

/// Pool key: requests with equal keys can use the same worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) memory: Bytes,
    pub(super) fence: Fence,
}

/// An idle worker.
#[derive(Debug)]
struct Spare {
    key: Key,
    worker: Worker,
    since: Instant,
    /// Dropped when the worker is taken, which ends its idle timeout.
    _kept: oneshot::Sender<()>,
}

/// The idle workers, the oldest first, and the keys of those being started.
#[derive(Debug, Default)]
struct Waiting {
    spares: VecDeque<Spare>,
    starting: Vec<Key>,
}

/// The pool of idle workers.
#[derive(Debug)]
pub(super) struct Spares {
    most: usize,
    waiting: Arc<Mutex<Waiting>>,
    /// Processes of all workers.
    processes: Arc<tokio::sync::Mutex<JoinSet<()>>>,
    /// Tasks that start idle workers and enforce their timeout.
    keepers: Mutex<JoinSet<()>>,
}

impl Spares {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            waiting: Arc::default(),
            processes: Arc::default(),
            keepers: Mutex::default(),
        }
    }

    /// Returns a worker, and `true` if it was idle.
    pub(super) async fn take(
        &self,
        key: Key,
        installed: &Installed,
        local: &Arc<Local>,
    ) -> Result<(Worker, bool), RunError> {
        if let Some(worker) = take_waiting(&self.waiting, key) {
            return Ok((worker, true));
        }
        start((key, Start::Cold), installed, local, &self.processes)
            .await
            .map(|worker| (worker, false))
    }

    /// Starts workers for the next programs with this key, in the background.
    pub(super) fn refill(&self, key: Key, installed: &Installed, local: &Arc<Local>) {
        let mut keepers = lock(&self.keepers);
        while keepers.try_join_next().is_some() {}
        for _ in 0..lock(&self.waiting).missing(key, self.most) {
            let (waiting, most) = (Arc::clone(&self.waiting), self.most);
            let (processes, installed, local) =
                (Arc::clone(&self.processes), installed.clone(), Arc::clone(local));
            keepers.spawn(async move {
                let started = start((key, Start::Warm), &installed, &local, &processes).await;
                keep(started, key, most, &waiting).await;
            });
        }
    }

    /// Ends every worker, and waits for that.
    pub(super) async fn close(&self) {
        let mut keepers = std::mem::take(&mut *lock(&self.keepers));
        keepers.shutdown().await;
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for spare in waiting.spares {
            end(Some(spare)).await;
        }
        let mut processes = self.processes.lock().await;
        while processes.join_next().await.is_some() {}
    }
}

impl Waiting {
    /// Reserves the places of missing workers with this key, and returns their number.
    fn missing(&mut self, key: Key, most: usize) -> usize {
        let waiting = self.spares.iter().map(|spare| spare.key);
        let all = waiting.chain(self.starting.iter().copied());
        let missing = most.saturating_sub(all.filter(|other| *other == key).count());
        self.starting.extend(std::iter::repeat_n(key, missing));
        missing
    }

    /// Adds a started worker. Returns the oldest one if there are too many.
    fn put(&mut self, started: Option<Spare>, key: Key, most: usize) -> Option<Spare> {
        if let Some(at) = self.starting.iter().position(|other| *other == key) {
            self.starting.swap_remove(at);
        }
        self.spares.extend(started);
        (self.spares.len() > most)
            .then(|| self.spares.pop_front())
            .flatten()
    }
}

/// Adds a worker to the pool, and ends it when its idle timeout expires.
async fn keep(started: Result<Worker, RunError>, key: Key, most: usize, waiting: &Mutex<Waiting>) {
    let (kept, gone) = oneshot::channel();
    // If starting fails, the next request starts one itself and gets the error.
    let spare = started.ok().map(|worker| Spare {
        key,
        worker,
        since: Instant::now(),
        _kept: kept,
    });
    let over = lock(waiting).put(spare, key, most);
    end(over).await;
    if tokio::time::timeout(IDLE, gone).await.is_err() {
        let idle = lock(waiting)
            .spares
            .pop_front_if(|spare| spare.since.elapsed() >= IDLE);
        end(idle).await;
    }
}

async fn start(
    (key, start): (Key, Start),
    installed: &Installed,
    local: &Arc<Local>,
    processes: &tokio::sync::Mutex<JoinSet<()>>,
) -> Result<Worker, RunError> {
    let starting = Worker::start(
        installed,
        ((key.memory, key.fence), start),
        local,
        &mut *processes.lock().await,
    )?;
    starting.ready().await
}

async fn end(spare: Option<Spare>) {
    if let Some(spare) = spare {
        let _ = spare.worker.end().await;
    }
}

/// Takes the oldest worker with this key that is alive.
fn take_waiting(waiting: &Mutex<Waiting>, key: Key) -> Option<Worker> {
    let waiting = &mut lock(waiting).spares;
    waiting.retain(|spare| !spare.worker.is_over());
    let at = waiting.iter().position(|spare| spare.key == key)?;
    waiting.remove(at).map(|spare| spare.worker)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
