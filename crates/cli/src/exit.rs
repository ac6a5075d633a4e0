//! From what happened to the exit status.

use std::io;
use std::process::ExitCode;

use ringfence_policy::{ExecutionResult, Outcome};
use ringfence_runtime::backend;

use crate::config::{Problem, Problems};
use crate::ui::Ui;

/// Wrong usage, or a configuration that cannot be used.
pub(crate) const USAGE: u8 = 2;
/// The program was killed at its time limit.
pub(crate) const TIMED_OUT: u8 = 124;
/// Ringfence failed or refused.
pub(crate) const FAILED: u8 = 125;
/// The program was refused before it ran.
pub(crate) const BLOCKED: u8 = 126;

/// The person, or the system, took the request back.
pub(crate) const INTERRUPTED: u8 = 128 + SIGINT;

const SIGINT: u8 = 2;
const SIGKILL: u8 = 9;

/// A failure with a line that says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    hint: String,
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The caller asked for something that cannot be.
    Usage,
    /// We failed, or refused.
    Refused,
}

impl Failure {
    /// What the caller asked for cannot be: status 2.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: Kind::Usage,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// We failed or refused: status 125.
    pub(crate) fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            kind: Kind::Refused,
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl Failure {
    /// The same as one of the configuration's problems.
    pub(crate) fn into_problem(self) -> Problem {
        Problem::new(self.message, self.hint)
    }

    /// Sessions live in an engine, and there is none.
    pub(crate) fn no_engine_for_sessions() -> Self {
        Self::refused(
            "sessions live in an engine, and none is running",
            "start one with `ringfence serve &`",
        )
    }
}

impl From<backend::Error> for Failure {
    fn from(error: backend::Error) -> Self {
        Self::refused(error.message, error.hint)
    }
}

impl From<Problems> for Failure {
    /// For a configuration that was read before without one.
    fn from(problems: Problems) -> Self {
        let mut problems = problems.0.into_iter();
        let first = problems.next();
        let (message, hint) = first.map_or_else(Default::default, |problem| (problem.message, problem.hint));
        Self::usage(message, hint)
    }
}

/// The exit status of a run that has a result.
pub(crate) fn status_of(result: &ExecutionResult) -> u8 {
    let by_signal = |signal: u8| 128 | (signal & 0x7f);
    let signal = u8::try_from(-i64::from(result.exit_code))
        .ok()
        .filter(|signal| *signal > 0);
    match result.meta.outcome {
        Outcome::Exited => u8::try_from(result.exit_code & 0xff).unwrap_or(FAILED),
        Outcome::TimedOut => TIMED_OUT,
        Outcome::MemoryExceeded => by_signal(signal.unwrap_or(SIGKILL)),
        Outcome::Signalled => signal.map_or(FAILED, by_signal),
        Outcome::Blocked => BLOCKED,
        Outcome::Cancelled => by_signal(SIGINT),
        Outcome::Unknown => FAILED,
    }
}

/// Prints why a command failed and what to do; the status that says so.
pub(crate) fn report(ui: Ui, error: &anyhow::Error) -> ExitCode {
    if is_broken_pipe(error) {
        // Whoever read our output has seen enough.
        return ExitCode::SUCCESS;
    }
    if let Some(Problems(problems)) = error.downcast_ref() {
        for problem in problems {
            ui.error(&problem.message);
            ui.hint(&problem.hint);
        }
        return ExitCode::from(USAGE);
    }
    ui.error(&format!("{error:#}"));
    match error.downcast_ref::<Failure>() {
        Some(failure) => {
            ui.hint(&failure.hint);
            ExitCode::from(if failure.kind == Kind::Usage {
                USAGE
            } else {
                FAILED
            })
        }
        None => {
            ui.hint("`ringfence doctor` checks this machine");
            ExitCode::from(FAILED)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{Language, Limits, Meta, RuntimeKind};

    fn status(outcome: Outcome, exit_code: i32) -> u8 {
        let meta = Meta::of(RuntimeKind::Local, Language::Python, Limits::DEFAULT, outcome);
        status_of(&ExecutionResult {
            stdout: String::new(),
            stderr: String::new(),
            exit_code,
            duration: 0.0,
            meta,
        })
    }

    #[test]
    fn every_outcome_has_its_status() {
        assert_eq!(status(Outcome::Exited, 0), 0);
        assert_eq!(status(Outcome::Exited, 3), 3);
        assert_eq!(status(Outcome::TimedOut, -1), 124);
        assert_eq!(status(Outcome::Signalled, -11), 139);
        assert_eq!(status(Outcome::MemoryExceeded, -9), 137);
        assert_eq!(status(Outcome::MemoryExceeded, 1), 137);
        assert_eq!(status(Outcome::Blocked, 126), 126);
        assert_eq!(status(Outcome::Cancelled, -2), 130);
        assert_eq!(status(Outcome::Unknown, 0), 125);
    }
}
