//! The directory of the audit log, and the conversion of its errors.

use std::path::PathBuf;

use ringfence_records::audit::Error;

use crate::config::{Config, Problems};
use crate::context::Context;
use crate::failure::Failure;
use crate::parts::absolute;
use crate::paths::Paths;

/// Returns the directory of the audit log.
///
/// # Errors
/// If the configuration cannot be used.
pub fn directory(context: &Context) -> Result<PathBuf, Problems> {
    Ok(directory_of(context.config()?, &context.paths))
}

/// Returns the directory of the audit log under a configuration.
pub fn directory_of(config: &Config, paths: &Paths) -> PathBuf {
    match &config.audit.dir {
        Some(dir) => absolute(dir),
        None => paths.state.join("audit"),
    }
}

/// Converts an error, with its causes and its hint.
pub fn failure(error: Error) -> Failure {
    let hint = error.hint();
    Failure::refused(with_causes(&error), hint)
}

/// Renders an error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |text, cause| format!("{text}: {cause}"))
}
