//! Where the audit log is, and how its errors are told.

use std::path::PathBuf;

use ringfence_runtime::audit::Error;

use crate::config::Problems;
use crate::context::Context;
use crate::exit::Failure;

/// Where the audit log is.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn directory(context: &Context) -> Result<PathBuf, Problems> {
    Ok(match &context.config()?.audit.dir {
        // Without a working directory the path leads where it leads.
        Some(dir) => std::path::absolute(dir).unwrap_or_else(|_| dir.clone()),
        None => context.paths.state.join("audit"),
    })
}

/// The failure with its causes, and what to do.
pub(crate) fn failure(error: Error) -> Failure {
    let hint = error.hint();
    Failure::refused(format!("{:#}", anyhow::Error::from(error)), hint)
}
