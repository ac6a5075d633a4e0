//! Workers that wait for their program. Each serves one and is gone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_policy::Bytes;
use tokio::task::JoinSet;

use super::RunError;
use super::install::Installed;
use super::worker::{Start, Worker};
use crate::local::{Fence, Local};

/// How long a worker waits for a program. It holds about 200 MiB.
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
}

/// Workers that wait, the one that has waited longest first.
#[derive(Debug)]
pub(super) struct Spares {
    most: usize,
    waiting: Arc<Mutex<VecDeque<Spare>>>,
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

    /// Starts a worker for the next program of this kind, off the caller's path.
    pub(super) fn refill(&self, key: Key, installed: &Installed, local: &Arc<Local>) {
        if self.most == 0 {
            return;
        }
        let (waiting, most) = (Arc::clone(&self.waiting), self.most);
        let (processes, installed, local) =
            (Arc::clone(&self.processes), installed.clone(), Arc::clone(local));
        let mut keepers = lock(&self.keepers);
        while keepers.try_join_next().is_some() {}
        keepers.spawn(async move {
            // One that cannot be started is started, and its error told, when it is needed.
            let Ok(worker) = start((key, Start::Warm), &installed, &local, &processes).await else {
                return;
            };
            let over = {
                let mut waiting = lock(&waiting);
                waiting.push_back(Spare {
                    key,
                    worker,
                    since: Instant::now(),
                });
                (waiting.len() > most).then(|| waiting.pop_front()).flatten()
            };
            end(over).await;
            tokio::time::sleep(IDLE).await;
            let idle = lock(&waiting).pop_front_if(|spare| spare.since.elapsed() >= IDLE);
            end(idle).await;
        });
    }

    /// Ends every worker, and waits until nothing is left.
    pub(super) async fn close(&self) {
        let mut keepers = std::mem::take(&mut *lock(&self.keepers));
        keepers.shutdown().await;
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for spare in waiting {
            end(Some(spare)).await;
        }
        let mut processes = self.processes.lock().await;
        while processes.join_next().await.is_some() {}
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
fn take_waiting(waiting: &Mutex<VecDeque<Spare>>, key: Key) -> Option<Worker> {
    let mut waiting = lock(waiting);
    waiting.retain(|spare| !spare.worker.is_over());
    let at = waiting.iter().position(|spare| spare.key == key)?;
    waiting.remove(at).map(|spare| spare.worker)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
