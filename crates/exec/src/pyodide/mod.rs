//! Pyodide in Deno: CPython as WebAssembly, in a process without permissions inside the local fence.
//!
//! - [`install`]: pinned versions; `kept`: cached files; `packages`: importable wheels, checked by
//!   `tag`; `message`: the protocol with a worker.
//! - `worker`: a Deno process for one program; `spares`: the pool of idle ones.
//! - `run`: one program from its request to its result; `carrier`: its bridge; `files`: its input and
//!   output files.

mod cache;
mod carrier;
mod error;
mod files;
pub mod install;
mod message;
mod packages;
mod run;
mod spares;
mod tag;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ringfence_policy::{ExecutionResult, Request};
use tokio::sync::OnceCell;

pub use error::RunError;

use crate::backend::Fingerprint;
use crate::local::{self, Connection, Destination, Fence, Local};
use install::Installed;
use spares::Spares;

/// Settings of the Pyodide backend.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory that `ringfence setup deno` installs to.
    pub directory: PathBuf,
    /// Deno to use instead of the installed one.
    pub deno: Option<PathBuf>,
    /// Directory of wheels that programs can import.
    pub packages: Option<PathBuf>,
    /// Number of idle workers, once there was a first request.
    pub spares: usize,
    /// Settings of the fence that Deno runs in.
    pub local: local::Settings,
}

/// The Pyodide backend. Nothing is started before the first request.
#[derive(Debug)]
pub struct Pyodide {
    settings: Settings,
    local: Arc<Local>,
    installed: OnceCell<Installed>,
    spares: Spares,
}

impl Pyodide {
    /// Creates the backend.
    pub fn new(settings: Settings) -> Self {
        let local = Arc::new(Local::new(settings.local.clone()));
        Self {
            spares: Spares::new(settings.spares),
            settings,
            local,
            installed: OnceCell::new(),
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
    /// If the request could not be run at all. The program's own failure is no error.
    pub async fn run(
        &self,
        (request, fence): (&Request, Fence),
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Result<ExecutionResult, RunError> {
        let since = Instant::now();
        run::check(request, fence)?;
        let destination = output_directory
            .as_deref()
            .map(|path| Destination::open(path, self.settings.local.spared(request)))
            .transpose();
        let destination = destination.map_err(RunError::OutputDirectory)?;
        let installed = self
            .installed
            .get_or_try_init(|| install::prepared(&self.settings, &self.local))
            .await?;
        let key = spares::Key {
            memory: request.limits.memory,
            fence,
        };
        let (worker, warm) = self.spares.take(key, installed, &self.local).await?;
        let result = run::run(worker, request, destination.as_ref(), connection).await;
        self.spares.refill(key, installed, &self.local);
        result.map(|mut result| {
            result.meta.warm = warm;
            result.duration = since.elapsed().as_secs_f64();
            result
        })
    }

    /// Ends every worker, and waits for that.
    pub async fn close(&self) {
        self.spares.close().await;
        self.local.close().await;
    }
}
