//! Pyodide in Deno: CPython as WebAssembly, in a process that is granted nothing and stands in the local fence.
//!
//! - [`install`]: what it takes, pinned; [`kept`]: what is made of it once, until nobody uses it; [`packages`]: what programs can import beside, by [`tag`]; [`message`]: the lines
//!   between a worker and us.
//! - [`worker`]: a Deno process that is ready for one program; [`spares`]: those that wait.
//! - [`run`]: one program from its request to its result; [`carrier`]: its bridge; [`files`]: what it finds and leaves in its
//!   memory.

mod carrier;
mod error;
mod files;
pub mod install;
mod kept;
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

/// How Pyodide is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where `ringfence setup deno` puts things.
    pub directory: PathBuf,
    /// The Deno to use instead of that of the directory.
    pub deno: Option<PathBuf>,
    /// A directory of wheels that programs can import.
    pub packages: Option<PathBuf>,
    /// How many workers wait for their program, once there was a first one.
    pub spares: usize,
    /// The fence that Deno runs in.
    pub local: local::Settings,
}

/// Pyodide as a place where requests run. Nothing is started before the first request.
#[derive(Debug)]
pub struct Pyodide {
    settings: Settings,
    local: Arc<Local>,
    installed: OnceCell<Installed>,
    spares: Spares,
}

impl Settings {
    /// A mark of what an engine must have in common with its client.
    fn mark(&self) -> String {
        format!("{:?}", (&self.directory, &self.deno, &self.packages))
    }
}

impl Pyodide {
    /// Sets it up.
    pub fn new(settings: Settings) -> Self {
        let local = Arc::new(Local::new(settings.local.clone()));
        Self {
            spares: Spares::new(settings.spares),
            settings,
            local,
            installed: OnceCell::new(),
        }
    }

    /// Tells whether another would run programs as this one does: then it has the same.
    pub fn mark(&self) -> String {
        self.settings.mark()
    }

    /// Runs a request in a worker of its own, which is gone when this ends.
    ///
    /// # Errors
    /// If it could not be run at all. How the program ended is no error.
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

    /// Ends every worker, and waits until nothing is left.
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
