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

use crate::backend::{Backend, Running};
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

impl Settings {
    /// Returns a fingerprint of the settings that a server must share with its client.
    fn fingerprint(&self) -> String {
        format!("{:?}", (&self.directory, &self.deno, &self.packages))
    }
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

    /// Returns a fingerprint: backends with equal ones run programs alike.
    pub fn fingerprint(&self) -> String {
        self.settings.fingerprint()
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
    ///
    /// # Errors
    /// If something cannot be removed.
    pub async fn close(self) -> Result<(), local::Error> {
        self.spares.close().await;
        match Arc::into_inner(self.local) {
            Some(local) => local.close().await,
            None => Ok(()),
        }
    }
}

impl Backend for Pyodide {
    fn run<'a>(
        &'a self,
        request: &'a Request,
        fence: Fence,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move {
            let ran = Self::run(self, (request, fence), output_directory, connection);
            Ok(ran.await?)
        })
    }
}
