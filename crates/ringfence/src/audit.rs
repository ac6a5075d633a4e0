//! The directory of the audit log, and the conversion of its errors.

use std::path::PathBuf;
use std::time::Duration;

use ringfence_records::audit::{self, Limits};

use crate::config::Problems;
use crate::context::Context;
use crate::failure::{Error, Failure};

/// Returns the directory of the audit log.
///
/// # Errors
/// If the configuration cannot be used.
pub fn directory(context: &Context) -> Result<PathBuf, Problems> {
    Ok(context.paths.audit(context.config()?.audit.dir.as_deref()))
}

/// Returns the directory of the audit log, unless it lies in a state directory that others can replace.
///
/// # Errors
/// If it does, or the configuration cannot be used.
pub fn safe_directory(context: &Context) -> Result<PathBuf, Error> {
    if context.config()?.audit.dir.is_none() {
        context.paths.check_state()?;
    }
    Ok(directory(context)?)
}

/// Returns the retention limits of the audit log.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn limits(context: &Context) -> Result<Limits, Problems> {
    let config = &context.config()?.audit;
    Ok(Limits {
        max_file_bytes: config.max_file.0,
        max_files: config.max_files as usize,
        keep_host: Duration::from_secs(u64::from(config.keep_host_days) * 24 * 60 * 60),
    })
}

/// Converts an error, with its causes and its hint.
pub fn failure(error: audit::Error) -> Failure {
    let hint = error.hint();
    Failure::refused(with_causes(&error), hint)
}

/// Renders an error with its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    let first = causes.next().unwrap_or_default();
    causes.fold(first, |text, cause| format!("{text}: {cause}"))
}
