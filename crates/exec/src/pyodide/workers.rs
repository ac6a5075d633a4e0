//! Starts workers, for a program or for the pool of idle ones. Each runs one program and is discarded.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OnceCell};
use tokio::task::JoinSet;

use super::error::RunError;
use super::install;
use super::installed::Installed;
use super::settings::Settings;
use super::worker::{Key, Start, Worker};
use crate::local::Local;
use ringfence_pool::PoolSettings;
use ringfence_pool::filled::Instances;

/// Idle timeout of a worker, which takes about 130 MiB.
const IDLE: Duration = Duration::from_secs(600);

/// The source of workers.
#[derive(Debug)]
pub(super) struct Workers {
    settings: Settings,
    local: Arc<Local>,
    installed: OnceCell<Installed>,
    /// Tasks that run the workers' processes.
    processes: Mutex<JoinSet<()>>,
}

impl Workers {
    pub(super) fn new(settings: Settings, local: Arc<Local>) -> Self {
        Self {
            settings,
            local,
            installed: OnceCell::new(),
            processes: Mutex::default(),
        }
    }

    /// Returns the settings of the pool: a run reserves all of it for the next ones with its key.
    pub(super) const fn pool_settings(size: usize) -> PoolSettings {
        PoolSettings {
            size,
            max_size: size,
            per_checkout: size,
            expiry: Some(IDLE),
        }
    }

    /// Starts a worker, and waits until it is ready.
    pub(super) async fn start_worker(&self, key: Key, start: Start) -> Result<Worker, RunError> {
        let installed = self
            .installed
            .get_or_try_init(|| install::prepared(&self.settings, &self.local))
            .await?;
        let starting = Worker::start(
            installed,
            key,
            start,
            &self.local,
            &mut *self.processes.lock().await,
        )?;
        starting.ready().await
    }

    /// Waits for the end of every process.
    pub(super) async fn close(&self) {
        let mut processes = self.processes.lock().await;
        while processes.join_next().await.is_some() {}
    }
}

impl Instances for Workers {
    type Key = Key;
    type Instance = Worker;

    fn is_usable(&self, worker: &Worker) -> bool {
        !worker.is_over()
    }

    async fn start(&self, key: &Key) -> Option<Worker> {
        self.start_worker(*key, Start::Warm).await.ok()
    }

    async fn end(&self, worker: Worker) {
        let _ = worker.end().await;
    }
}
