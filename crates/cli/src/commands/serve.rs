//! `ringfence serve`.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ringfence_policy::Scope;
use ringfence_runtime::local::{Local, Warmth};
use ringfence_server::listener::Listener;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ServeArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::{high, local};

/// Threads that wait for slow system calls, such as taking a large file system apart.
const MAX_BLOCKING_THREADS: usize = 8;

pub(crate) fn run(_args: &ServeArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let config = context.config()?;
    let warmth = Warmth::Pool {
        size: config.engine.pool_size as usize,
        renew_after: u64::from(config.engine.rotate_after_runs),
        renew_every: std::time::Duration::from_secs(60 * u64::from(config.engine.rotate_after_minutes)),
    };
    let settings = local::settings(&high::settings(None, context)?, warmth, context)?;
    context.paths.make_runtime()?;
    // Held until the process ends, however it ends.
    let _lock = lock(context.paths.make_state()?)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .build()?;
    runtime.block_on(async {
        let socket = context.paths.socket();
        let listener = Listener::bind(&socket).map_err(|error| {
            let message = format!("cannot listen at {}: {error}", socket.display());
            Failure::refused(
                message,
                "check the directory, or set XDG_RUNTIME_DIR to another one",
            )
        })?;
        let mut terminate = signal(SignalKind::terminate())?;
        let backend = Arc::new(Local::new(settings));
        backend
            .warm_up(&Scope::local(), None)
            .await
            .map_err(|error| Failure::refused(error.explain(), error.hint()))?;
        context.ui.err(format!("listening at {}\n", socket.display()))?;
        let stop = async {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        };
        listener.serve(Arc::clone(&backend), stop).await;
        drop(listener);
        if let Some(backend) = Arc::into_inner(backend) {
            backend
                .close()
                .await
                .map_err(|error| Failure::refused(error.explain(), error.hint()))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// One engine for each state directory.
fn lock(state: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(state.join("engine.lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::refused(
            format!("an engine is already running for {}", state.display()),
            "use that one, stop it, or set XDG_STATE_HOME to another directory",
        )
        .into()),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}
