//! Pyodide, built from the configuration.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_exec::backend::{Backend, Running};
use ringfence_exec::local::{Connection, Fence, Warmth};
use ringfence_exec::pyodide::{Pyodide, Settings};
use ringfence_policy::Request;

use crate::context::Context;
use crate::{local, plan};

/// Returns a Pyodide backend for one program.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn once(context: &Context) -> anyhow::Result<Pyodide> {
    settings(0, context).map(Pyodide::new)
}

/// Returns a Pyodide backend for many programs: after the first one, a pool of idle interpreters serves the
/// next.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn kept(context: &Context) -> anyhow::Result<Pyodide> {
    let spares = context.config()?.skills.sandbox.pool_size as usize;
    settings(spares, context).map(Pyodide::new)
}

/// Returns the backend of Pyodide programs: Pyodide, or the local fallback if the configuration disables it.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn or_local(
    pyodide: Arc<dyn Backend>,
    local: Arc<dyn Backend>,
    context: &Context,
) -> anyhow::Result<Arc<dyn Backend>> {
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
pub(crate) fn settings(spares: usize, context: &Context) -> anyhow::Result<Settings> {
    let sandbox = &context.config()?.skills.sandbox;
    let directory = match &context.parts()?.skills.pyodide {
        Some(directory) => directory.clone(),
        None => context.paths.state.join("pyodide"),
    };
    let named = Some(&sandbox.deno_path).filter(|path| path.as_os_str() != "deno");
    Ok(Settings {
        // Links are not mounted.
        directory: plan::resolved(&directory, context)?,
        deno: named.map(PathBuf::from),
        packages: sandbox.packages.as_deref().map(std::path::absolute).transpose()?,
        spares,
        local: local::settings(&plan::settings(None, context)?, Warmth::Cold, context)?,
    })
}

/// Closes Pyodide if this is the last reference. Files that cannot be removed are removed at the next start.
pub(crate) async fn close(pyodide: Arc<Pyodide>) {
    if let Some(pyodide) = Arc::into_inner(pyodide) {
        end(pyodide).await;
    }
}

/// Closes an owned Pyodide.
pub(crate) async fn end(pyodide: Pyodide) {
    let _ = pyodide.close().await;
}
