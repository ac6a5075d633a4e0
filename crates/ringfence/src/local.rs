//! The local backend and its rules, built from the configuration.

use std::path::PathBuf;
use std::time::Duration;

use ringfence_exec::artifact::Store;
use ringfence_exec::local::{self, SessionSettings, Warmth};
use ringfence_exec::runner::Rules;
use ringfence_network::redact::Redactor;

use crate::context::Context;
use crate::failure::Error;
use crate::settings;

/// Returns the settings of the backend, for one run or for a server.
///
/// # Errors
/// If the configuration cannot be used.
pub fn settings(
    settings: &settings::Settings,
    warmth: Warmth,
    context: &Context,
) -> Result<local::Settings, Error> {
    let config = context.config()?;
    // The cache of interpreter properties is optional: without it they are queried again.
    let cache = context.paths.make_state().ok().map(PathBuf::from);
    let home = context.environment.directory("HOME");
    let private = [context.paths.state.clone(), context.paths.runtime.clone()];
    Ok(local::Settings {
        python: settings.python.clone(),
        javascript: settings.javascript.clone(),
        preload: settings.preload.clone(),
        preload_timeout: config.sandbox.preload_timeout,
        log: context.log.clone(),
        path: context.environment.get("PATH").map(ToOwned::to_owned),
        cache,
        private: private.into_iter().chain(home).collect(),
        protected: config.permissions.filesystem.protected.clone(),
        scratch: std::env::temp_dir(),
        warmth,
        limits: settings::default_limits(config),
        interpreters: local::InterpreterCache::default(),
        max_concurrent: config.engine.max_concurrent as usize,
        max_queued: config.engine.queue as usize,
        sessions: SessionSettings {
            max: config.engine.max_sessions as usize,
            idle: config.engine.session_idle_minutes.0,
            lifetime: config.engine.session_lifetime_minutes.0,
        },
        network: context.parts()?.egress.network.clone(),
    })
}

/// Returns the pool of a process that serves many requests, as configured.
///
/// # Errors
/// If the configuration cannot be used.
pub fn pool(context: &Context) -> Result<Warmth, Error> {
    let engine = &context.config()?.engine;
    Ok(Warmth::Pool {
        size: engine.pool_size as usize,
        renew_after: u64::from(engine.rotate_after_runs),
        renew_every: Duration::from_secs(60 * u64::from(engine.rotate_after_minutes)),
    })
}

/// Returns the processing rules of requests before and after they run, without a log of runs.
///
/// # Errors
/// If the configuration cannot be used.
pub fn rules(settings: &settings::Settings, context: &Context) -> Result<Rules, Error> {
    Ok(Rules {
        pyodide: context.config()?.skills.sandbox.enabled,
        blocked_imports: Some(settings.blocked_imports.clone()).filter(|modules| !modules.is_empty()),
        blocked_in_pyodide: Some(settings.blocked_in_pyodide.clone()).filter(|modules| !modules.is_empty()),
        store_policy: settings.store,
        store: Store::new(&settings.artifacts_dir, settings.artifacts_keep),
        redactor: Redactor::from_environment(context.environment.lossy_pairs()),
        log: None,
    })
}
