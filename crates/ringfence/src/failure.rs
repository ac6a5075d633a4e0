//! Errors of configuration, arguments and the machine, each with a hint.

use ringfence_exec::backend;
use ringfence_tools::toolbox::{ErrorKind, ToolError};

use crate::config::{Problem, Problems};

/// The configuration, an argument or the machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is invalid.
    #[error(transparent)]
    Invalid(#[from] Problems),
    /// Any other failure or refusal.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl Error {
    /// Returns advice, a line for each kind of problem.
    pub fn hint(&self) -> String {
        match self {
            Self::Invalid(Problems(problems)) => {
                let mut hints: Vec<&str> = Vec::new();
                for Problem { hint, .. } in problems {
                    if !hints.contains(&hint.as_str()) {
                        hints.push(hint);
                    }
                }
                hints.join("\n")
            }
            Self::Failed(failure) => failure.hint.clone(),
        }
    }
}

/// The party that can correct a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The caller, whose arguments or configuration are wrong.
    Usage,
    /// Ringfence or the machine, which failed or refused.
    Refused,
}

/// An error message with a hint.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub cause: Cause,
    /// The error type of tools.
    pub kind: ErrorKind,
    pub message: String,
    pub hint: String,
}

impl Failure {
    /// Creates a usage error.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            cause: Cause::Usage,
            kind: ErrorKind::InvalidArguments,
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// Creates a failure or refusal of Ringfence.
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            cause: Cause::Refused,
            kind: ErrorKind::Internal,
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl Failure {
    /// Converts the failure into a configuration problem.
    pub fn into_problem(self) -> Problem {
        Problem::new(self.message, self.hint)
    }

    /// Returns the error for a session without a server.
    pub fn no_engine_for_sessions() -> Self {
        Self::refused(
            "sessions live in a server, and none is running for this user",
            "start one with `ringfence serve &`, or run this as the user of the one that runs",
        )
        .of(ErrorKind::RuntimeUnavailable)
    }

    /// Sets the error type.
    pub fn of(self, kind: ErrorKind) -> Self {
        Self { kind, ..self }
    }
}

impl From<backend::Error> for Failure {
    fn from(error: backend::Error) -> Self {
        let (message, hint) = (error.message.clone(), error.hint.clone());
        let ToolError { kind, .. } = error.into();
        Self::refused(message, hint).of(kind)
    }
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        Self::refused(error.message, error.hint).of(error.kind)
    }
}

impl From<Problems> for Failure {
    /// Converts the first problem, for code that read a valid configuration before.
    fn from(problems: Problems) -> Self {
        let mut problems = problems.0.into_iter();
        let first = problems.next();
        let (message, hint) = first.map_or_else(Default::default, |problem| (problem.message, problem.hint));
        Self::usage(message, hint)
    }
}

impl From<ToolError> for Error {
    fn from(error: ToolError) -> Self {
        Self::Failed(error.into())
    }
}
