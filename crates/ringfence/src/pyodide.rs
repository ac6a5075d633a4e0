//! Pyodide, built from the configuration.

use std::path::PathBuf;

use ringfence_exec::local::Warmth;
use ringfence_exec::pyodide::{Pyodide, Settings};

use crate::context::Context;
use crate::failure::Error;
use crate::parts::absolute;
use crate::{local, settings};

/// Returns a Pyodide backend for one program.
///
/// # Errors
/// If the configuration cannot be used.
pub fn once(context: &Context) -> Result<Pyodide, Error> {
    settings(0, context).map(Pyodide::new)
}

/// Returns a Pyodide backend for many programs: after the first one, a pool of idle interpreters serves the
/// next.
///
/// # Errors
/// If the configuration cannot be used.
pub fn kept(context: &Context) -> Result<Pyodide, Error> {
    let spares = context.config()?.skills.sandbox.pool_size as usize;
    settings(spares, context).map(Pyodide::new)
}

/// Returns the settings of Pyodide.
///
/// # Errors
/// If the configuration cannot be used.
pub fn settings(spares: usize, context: &Context) -> Result<Settings, Error> {
    let sandbox = &context.config()?.skills.sandbox;
    let directory = match &context.parts()?.skills.pyodide {
        Some(directory) => directory.clone(),
        None => context.paths.state.join("pyodide"),
    };
    let named = Some(&sandbox.deno_path).filter(|path| path.as_os_str() != "deno");
    Ok(Settings {
        // Links are not mounted.
        directory: settings::resolved(&directory, context)?,
        deno: named.map(PathBuf::from),
        packages: sandbox.packages.as_deref().map(absolute),
        spares,
        local: local::settings(&settings::settings(context)?, Warmth::Cold, context)?,
    })
}
