//! `ringfence mcp`: the tools for whatever client has started us.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ringfence_policy::Scope;
use ringfence_runtime::local::{Local, Warmth};
use ringfence_server::mcp::{self, Settings};

use crate::args::McpArgs;
use crate::commands::run::interrupted;
use crate::context::Context;
use crate::exit::Failure;
use crate::{high, kernel, local};

/// Threads that wait for slow system calls, for standard input and for output.
const MAX_BLOCKING_THREADS: usize = 8;

/// How often others are given the chance to let go of the backend.
const MAX_YIELDS: usize = 1000;

pub(crate) fn run(args: &McpArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let config = context.config()?;
    let warmth = Warmth::Pool {
        size: config.engine.pool_size as usize,
        renew_after: u64::from(config.engine.rotate_after_runs),
        renew_every: Duration::from_secs(60 * u64::from(config.engine.rotate_after_minutes)),
    };
    let settings = local::settings(&high::settings(None, context)?, warmth, context)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .build()?;
    let backend = Arc::new(Local::new(settings));
    let settings = Settings {
        scope: args.user.clone().unwrap_or_else(Scope::local),
        session: None,
        kernel: Arc::new(kernel::build(
            backend.clone(),
            kernel::workspaces(None, context)?,
            context,
        )?),
        adopt: None,
    };
    let served = runtime.block_on(serve(settings, backend, context));
    // A thread may still wait for standard input, and will for ever.
    runtime.shutdown_background();
    served?;
    Ok(ExitCode::SUCCESS)
}

/// Serves the client until it leaves or we are told to stop, then clears up.
async fn serve(settings: Settings, backend: Arc<Local>, context: &Context) -> anyhow::Result<()> {
    let (reader, writer) = mcp::stdio_pipes();
    let serving = mcp::serve(settings, reader, writer, interrupted());
    let warming = async {
        // A client that waits for an answer to its greeting does not wait for this.
        if let Err(error) = backend.warm_up().await {
            context.ui.warn(&error.explain());
            context.ui.hint(error.hint());
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        () = serving => {}
        () = warming => {}
    }
    if let Some(backend) = alone(backend).await {
        backend
            .close()
            .await
            .map_err(|error| Failure::refused(error.explain(), error.hint()))?;
    }
    Ok(())
}

/// The backend, once the tasks that served the last messages have let go of it.
async fn alone(backend: Arc<Local>) -> Option<Local> {
    for _ in 0..MAX_YIELDS {
        if Arc::strong_count(&backend) == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    Arc::into_inner(backend)
}
