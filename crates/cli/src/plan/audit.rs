//! The directory of the audit log, and the conversion of its errors.

use std::path::PathBuf;

use ringfence_records::audit::Error;

use crate::config::{Config, Problems};
use crate::context::Context;
use crate::exit::Failure;
use crate::parts::absolute;
use crate::paths::Paths;

/// Returns the directory of the audit log.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn directory(context: &Context) -> Result<PathBuf, Problems> {
    Ok(directory_of(context.config()?, &context.paths))
}

/// Returns the directory of the audit log under a configuration.
pub(crate) fn directory_of(config: &Config, paths: &Paths) -> PathBuf {
    match &config.audit.dir {
        Some(dir) => absolute(dir),
        None => paths.state.join("audit"),
    }
}

/// Converts an error, with its causes and its hint.
pub(crate) fn failure(error: Error) -> Failure {
    let hint = error.hint();
    Failure::refused(format!("{:#}", anyhow::Error::from(error)), hint)
}
