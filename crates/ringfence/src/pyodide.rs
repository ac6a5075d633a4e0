//! Pyodide, built from the configuration.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_exec::backend::{Backend, Running};
use ringfence_exec::local::{Connection, Fence, Warmth};
use ringfence_exec::pyodide::{Pyodide, Settings};
use ringfence_policy::Request;

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

/// Returns the backend of Pyodide programs: Pyodide, or the local fallback if the configuration disables it.
///
/// # Errors
/// If the configuration cannot be used.
pub fn or_local(
    pyodide: Arc<dyn Backend>,
    local: Arc<dyn Backend>,
    context: &Context,
) -> Result<Arc<dyn Backend>, Error> {
    Ok(match context.config()?.skills.sandbox.enabled {
        true => pyodide,
        false => Arc::new(Instead(local)),
    })
}

/// A backend that runs Pyodide programs elsewhere, and reports this in each result.
#[derive(Debug)]
struct Instead(Arc<dyn Backend>);

impl Backend for Instead {
    fn run<'a>(
        &'a self,
        request: &'a Request,
        fence: Fence,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move {
            let ran = self.0.run(request, fence, output_directory, connection).await;
            ran.map(|mut result| {
                let told = "NOT IN PYODIDE: `skills.sandbox.enabled` is false, for development alone; the local fence was \
                            all that held this program";
                result.meta.warnings.push(told.to_owned());
                result
            })
        })
    }
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

/// Closes Pyodide if this is the last reference. Files that cannot be removed are removed at the next start.
pub async fn close(pyodide: Arc<Pyodide>) {
    if let Some(pyodide) = Arc::into_inner(pyodide) {
        end(pyodide).await;
    }
}

/// Closes an owned Pyodide.
pub async fn end(pyodide: Pyodide) {
    let _ = pyodide.close().await;
}
