//! Pyodide in Deno: CPython as WebAssembly, in a process without permissions inside the local fence.
//!
//! - [`install`]: pinned versions; `cache`: cached files; `packages`: importable wheels, checked by
//!   `tag`; `message`: the protocol with a worker.
//! - `worker`: a Deno process for one program; `workers`: the source of these, also for the pool of
//!   idle ones.
//! - `run`: one program from its request to its result; `carrier`: its bridge; `files`: its input and
//!   output files.

mod cache;
mod carrier;
mod error;
mod files;
pub mod install;
mod installed;
mod message;
mod packages;
mod run;
mod settings;
mod tag;
mod worker;
mod workers;

use std::sync::Arc;
use std::time::Instant;

use ringfence_policy::{Bytes, ExecutionResult, Request};

pub use error::RunError;
pub use settings::Settings;

use crate::fingerprint::Fingerprint;
use crate::local::{Connection, Fence, HostOutput, Local};
use crate::spec::OutputDirectory;
use ringfence_pool::filled::FilledPool;
use worker::Start;
use workers::Workers;

/// Limit of the bytes that a program finds in its `/output`. They go through a message, in base64.
const MAX_EARLIER: Bytes = Bytes::mib(8);

/// The Pyodide backend. Nothing is started before the first request.
#[derive(Debug)]
pub struct Pyodide {
    settings: Settings,
    local: Arc<Local>,
    pool: FilledPool<Workers>,
}

impl Pyodide {
    /// Creates the backend.
    pub fn new(settings: Settings) -> Self {
        let local = Arc::new(Local::new(settings.local.clone()));
        let workers = Workers::new(settings.clone(), Arc::clone(&local));
        Self {
            pool: FilledPool::new(Workers::pool_settings(settings.spares), workers),
            settings,
            local,
        }
    }

    /// Returns the fingerprint of the settings that decide how programs run.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let Settings {
            directory,
            deno,
            packages,
            spares: _,
            local: _,
        } = &self.settings;
        Fingerprint::of(&(directory, deno, packages))
    }

    /// Runs a request in a worker of its own, which is ended afterwards.
    ///
    /// # Errors
    /// If the request could not be run at all. The program's own failure is not an error.
    pub async fn run(
        &self,
        request: &Request,
        fence: Fence,
        output_directory: Option<OutputDirectory>,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let since = Instant::now();
        run::check(request, fence)?;
        let spared = self.settings.local.spared(request);
        let host_output = output_directory
            .map(|output| HostOutput::open(&output, spared, request.limits.disk))
            .transpose()
            .map_err(RunError::OutputDirectory)?
            .map(|host_output| Arc::new(host_output.with_earlier_limit(MAX_EARLIER)));
        let key = worker::Key {
            memory: request.limits.memory,
            fence,
        };
        let (worker, warm) = match self.pool.take(&key) {
            Some(worker) => (worker, true),
            None => {
                let workers = self.pool.instances();
                (workers.start_worker(key, Start::Cold).await?, false)
            }
        };
        let result = run::run(worker, request, host_output.as_ref(), connection).await;
        self.pool.refill();
        result.map(|mut result| {
            result.meta.warm = warm;
            result.duration = since.elapsed().as_secs_f64();
            result
        })
    }

    /// Ends every worker, and waits for that.
    pub async fn close(&self) {
        self.pool.close().await;
        self.pool.instances().close().await;
        self.local.close().await;
    }
}
