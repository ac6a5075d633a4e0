//! Where the audit log is, and how its errors are told.

use std::path::PathBuf;

use ringfence_runtime::audit::Error;

use crate::context::Context;
use crate::exit::Failure;

/// Where the audit log is.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn directory(context: &Context) -> anyhow::Result<PathBuf> {
    Ok(match &context.config()?.audit.dir {
        Some(dir) => std::path::absolute(dir)?,
        None => context.paths.state.join("audit"),
    })
}

/// The failure with its causes, and what to do.
pub(crate) fn failure(error: Error) -> Failure {
    let hint = error.hint();
    Failure::refused(format!("{:#}", anyhow::Error::from(error)), hint)
}
