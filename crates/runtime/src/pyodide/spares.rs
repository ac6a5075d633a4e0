//! Workers that wait for their program. Each serves one and is gone.

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

/// How long a worker waits for a program. It holds about 130 MiB.
const IDLE: Duration = Duration::from_secs(600);

/// What a worker is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) memory: Bytes,
    pub(super) fence: Fence,
}

/// A worker that waits.
#[derive(Debug)]
struct Spare {
    key: Key,
    worker: Worker,
    since: Instant,
    /// Its keeper waits for the end of this.
    _kept: oneshot::Sender<()>,
}

/// Workers that wait, the one that has waited longest first, and the kinds of those that are being started.
#[derive(Debug, Default)]
struct Waiting {
    spares: VecDeque<Spare>,
    starting: Vec<Key>,
}

/// The workers that wait.
#[derive(Debug)]
pub(super) struct Spares {
    most: usize,
    waiting: Arc<Mutex<Waiting>>,
    /// The processes of all workers.
    processes: Arc<tokio::sync::Mutex<JoinSet<()>>>,
    /// What starts spares, and ends them.
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

    /// A worker, and whether it was started beforehand.
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

    /// Starts workers for the next programs of this kind, off the caller's path.
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

    /// Ends every worker, and waits until nothing is left.
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
    /// Counts those of a kind that are to be started, so that there are as many.
    fn missing(&mut self, key: Key, most: usize) -> usize {
        let waiting = self.spares.iter().map(|spare| spare.key);
        let all = waiting.chain(self.starting.iter().copied());
        let missing = most.saturating_sub(all.filter(|other| *other == key).count());
        self.starting.extend(std::iter::repeat_n(key, missing));
        missing
    }

    /// Takes one in that was started. The one that has waited longest goes if there are too many.
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

/// Has a worker wait, until it is taken or has waited for too long.
async fn keep(started: Result<Worker, RunError>, key: Key, most: usize, waiting: &Mutex<Waiting>) {
    let (kept, gone) = oneshot::channel();
    // One that cannot be started is started, and its error told, when it is needed.
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

/// The one that has waited longest, and lives.
fn take_waiting(waiting: &Mutex<Waiting>, key: Key) -> Option<Worker> {
    let waiting = &mut lock(waiting).spares;
    waiting.retain(|spare| !spare.worker.is_over());
    let at = waiting.iter().position(|spare| spare.key == key)?;
    waiting.remove(at).map(|spare| spare.worker)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
