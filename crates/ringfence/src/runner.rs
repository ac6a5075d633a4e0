//! The runner of a program that embeds this library.

mod builder;
mod files;
mod run;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_exec::local::Connection;
use ringfence_exec::runner::{self, Hooks, RunSpec};
use ringfence_policy::ExecutionResult;
use ringfence_tools::toolbox::Surface;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::failure::{Error, Failure};
use crate::in_process::InProcess;
use crate::packages::{self, Installer, Requirement};
use crate::request::{Request, Stdin};
use crate::{resolve, trust};

pub use builder::Builder;
pub use run::{Cancellation, Run, StdinWriter};

use builder::Defaults;
use run::Output;

/// Runs programs in the fence of this machine, or on another runtime.
///
/// Clones share their processes. Each run goes through [`ringfence_exec::runner::Runner`], as those of the command
/// line, the tools and the server do: with the same checks, limits and records.
///
/// ```standalone_crate
/// use ringfence::{Request, Runner};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     ringfence::init();
///     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
///     runtime.block_on(async {
///         let runner = Runner::builder().build()?;
///         let result = runner.run(Request::python("print(6 * 7)")).await?;
///         assert_eq!((result.stdout.as_str(), result.exit_code), ("42\n", 0));
///         runner.close().await;
///         Ok(())
///     })
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Runner(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The only way to a program.
    door: runner::Runner,
    backend: InProcess,
    context: Context,
    python: Option<PathBuf>,
    defaults: Defaults,
    /// The tasks of runs.
    runs: Mutex<JoinSet<()>>,
}

impl Runner {
    /// Returns a builder with every default.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs a program to its end. If the future is dropped before, the program is killed.
    ///
    /// # Errors
    /// If the program could not be run: a path, a limit or a layer of the fence is not available, or
    /// [`init`](crate::init) was not called. A program that fails is a result.
    pub async fn run(&self, request: Request) -> Result<ExecutionResult, Error> {
        if request.stdin == Stdin::Piped {
            return Err(nobody_writes().into());
        }
        self.begin(request, Output::Captured)?.result().await
    }

    /// Starts a program whose output is read, and which can be written to and cancelled, while it runs.
    ///
    /// ```standalone_crate
    /// use ringfence::{Outcome, Request, Runner};
    ///
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     ringfence::init();
    ///     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    ///     runtime.block_on(async {
    ///         let runner = Runner::builder().build()?;
    ///         let request = Request::bash("read name; echo hi $name; sleep 60").piped_stdin();
    ///         let mut run = runner.start(request).await?;
    ///         if let Some(stdin) = run.stdin.take() {
    ///             stdin.write("Ann\n").await?;
    ///         }
    ///         let chunk = run.output().await.ok_or("no output")?;
    ///         assert_eq!(chunk.bytes, b"hi Ann\n");
    ///         run.cancel();
    ///         assert_eq!(run.result().await?.meta.outcome, Outcome::Cancelled);
    ///         runner.close().await;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// If a path of the request cannot be used.
    // Asynchronous, so that it is called where a runtime is.
    pub async fn start(&self, request: Request) -> Result<Run, Error> {
        self.begin(request, Output::Live)
    }

    /// Waits for the runs under way, then ends every process and container, and waits for that.
    pub async fn close(&self) {
        let mut runs = std::mem::take(&mut *self.runs());
        while runs.join_next().await.is_some() {}
        self.0.backend.close().await;
    }

    /// Starts a program in a task, which a dropped [`Run`] leaves to clean up.
    fn begin(&self, request: Request, output: Output) -> Result<Run, Error> {
        let Inner {
            context,
            python,
            defaults,
            ..
        } = &*self.0;
        let request = defaults.completed(request);
        let named = trust::Named {
            skills: None,
            python: python.as_deref(),
        };
        let mut spec = resolve::run_spec(&request, named, context)?;
        let files = files::supply(&mut spec.request, &request.files, context)?;
        let (run, end) = run::pair(request.stdin, output);
        let runner = self.clone();
        let running = async move {
            let result = runner.run_with(spec, request.packages, end.connection).await;
            drop(files);
            // Nobody may wait for it any more.
            let _ = end.result.send(result);
        };
        let mut runs = self.runs();
        while runs.try_join_next().is_some() {}
        runs.spawn(running);
        Ok(run)
    }

    /// Runs a program with these packages.
    async fn run_with(
        &self,
        mut spec: RunSpec,
        requirements: Vec<Requirement>,
        connection: Connection,
    ) -> Result<ExecutionResult, Error> {
        let Inner {
            door,
            backend,
            context,
            ..
        } = &*self.0;
        let requirements = packages::all(requirements, &spec, context)?;
        let mut checkout = None;
        if !requirements.is_empty() {
            let installer = Installer::new(Arc::new(backend.clone()), Surface::Library, context)?;
            let cancelled = connection.cancelled.clone();
            checkout = Some(installer.add(&mut spec, &requirements, || {}, cancelled).await?);
        }
        let describe = |result: &mut ExecutionResult| {
            if let Some(checkout) = &checkout {
                checkout.describe(result);
            }
        };
        let hooks = Hooks {
            complete: Some(&describe),
            ..Hooks::default()
        };
        let result = door.run(&spec, hooks, connection).await;
        result.map_err(|error| Failure::from(error).into())
    }

    fn runs(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nobody_writes() -> Failure {
    Failure::usage(
        "`run` leaves nobody to write to the program's standard input",
        "use `start`, or give the whole input to `Request::stdin`",
    )
}
