//! The error of a failed step, with the name of the step.

use std::io;

/// The error of a failed step.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}")]
pub(crate) struct StepError {
    /// Name of the step.
    pub(crate) step: &'static str,
    /// The cause.
    #[source]
    pub(crate) source: io::Error,
}

impl StepError {
    /// Returns the error number; EIO for the few errors without one.
    pub(crate) fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(libc::EIO)
    }
}

/// Attaches the name of a step to an error.
pub(crate) trait Step<T> {
    /// Attaches the step's name.
    fn step(self, step: &'static str) -> Result<T, StepError>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &'static str) -> Result<T, StepError> {
        self.map_err(|source| StepError { step, source })
    }
}

pub(crate) fn died() -> io::Error {
    io::Error::from_raw_os_error(libc::ECHILD)
}

/// Returns the error for a process that exited without a report.
pub(crate) fn silence() -> StepError {
    StepError {
        step: "set a guest up",
        source: died(),
    }
}

/// Converts an error reported by another process. Steps are literals in this very binary, so the few that are
/// leaked here are bounded by the number of failures, each of which ends a launcher or a run.
pub(crate) fn remote_error(step: String, errno: i32) -> StepError {
    StepError {
        step: Box::leak(step.into_boxed_str()),
        source: io::Error::from_raw_os_error(errno),
    }
}
