//! Pyodide, set up from the configuration.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_runtime::local::Warmth;
use ringfence_runtime::pyodide::{Pyodide, Settings};

use crate::context::Context;
use crate::{high, local};

/// Pyodide with as many waiting interpreters, once code was run there.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn pyodide(spares: usize, context: &Context) -> anyhow::Result<Pyodide> {
    settings(spares, context).map(Pyodide::new)
}

/// What Pyodide takes.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn settings(spares: usize, context: &Context) -> anyhow::Result<Settings> {
    let sandbox = &context.config()?.skills.sandbox;
    let directory = match &sandbox.directory {
        Some(directory) => std::path::absolute(directory)?,
        None => context.paths.state.join("pyodide"),
    };
    let named = Some(&sandbox.deno_path).filter(|path| path.as_os_str() != "deno");
    Ok(Settings {
        // A link is not mounted.
        directory: high::resolved(&directory)?,
        deno: named.map(PathBuf::from),
        spares,
        local: local::settings(&high::settings(None, context)?, Warmth::Cold, context)?,
    })
}

/// Ends what there is of it. What cannot be removed is removed at the next start.
pub(crate) async fn close(pyodide: Arc<Pyodide>) {
    if let Some(pyodide) = Arc::into_inner(pyodide) {
        let _ = pyodide.close().await;
    }
}
