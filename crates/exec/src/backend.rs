//! The trait of backends: this process, or a server.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use ringfence_imports as imports;
use ringfence_policy::{ExecutionResult, Remedy, Target, remedy};

pub use crate::fingerprint::Fingerprint;
use crate::local::{self, Connection, SessionError};
use crate::spec::RunSpec;

/// A future that resolves to the result of a run.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<ExecutionResult, Error>> + Send + 'a>>;

/// A future that resolves to the reason why a target is unavailable, if it is.
pub type Unavailable<'a> = Pin<Box<dyn Future<Output = Option<Error>> + Send + 'a>>;

/// Runs requests, wherever their targets are.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Runs a request to completion on its target. The fallback is left to [`Runner`](crate::runner::Runner).
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a>;

    /// Checks that the engine of a target answers.
    fn unavailable<'a>(&'a self, target: &'a Target) -> Unavailable<'a>;

    /// Returns the fingerprint of the settings that decide how a request runs: two backends with equal ones run
    /// it alike. `None` if there is nothing to run it with.
    fn fingerprint(&self, spec: &RunSpec) -> Option<Fingerprint>;
}

/// A request was not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub reason: Reason,
    pub message: String,
    pub hint: Remedy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The backend, an interpreter, or a layer of the fence is unavailable.
    Unavailable,
    /// A concurrency limit is reached.
    Busy,
    /// A program, or something that it needs, does not exist.
    NotFound,
    Invalid,
    /// The launcher died before anything of the program ran, twice; the request can be repeated.
    Lost,
    /// An internal failure.
    Failed,
}

impl From<&local::Error> for Error {
    fn from(error: &local::Error) -> Self {
        use local::Error as E;
        let reason = match error {
            E::Busy { .. } => Reason::Busy,
            E::Session(error) => match error {
                SessionError::Busy(_) | SessionError::TooMany(_) => Reason::Busy,
                SessionError::Unknown(_) => Reason::NotFound,
                SessionError::NotForkable { .. } => Reason::Unavailable,
                SessionError::Closing | SessionError::Cancelled(_) | SessionError::Fork { .. } => {
                    Reason::Failed
                }
                SessionError::Language(_)
                | SessionError::Unfenced
                | SessionError::Taken(_)
                | SessionError::Fixed { .. }
                | SessionError::Outdated { .. }
                | SessionError::Weaker(_) => Reason::Invalid,
            },
            E::Interpreter(_)
            | E::NoInterpreter { .. }
            | E::NotJavascript(_)
            | E::Exposing { .. }
            | E::NamespacesForbidden { .. }
            | E::NoControlGroups { .. }
            | E::NeedsNamespaces { .. }
            | E::NeedsIds => Reason::Unavailable,
            E::NoMoreRoots { .. } => Reason::Busy,
            E::LauncherLost => Reason::Lost,
            // They are too large.
            E::Files(error) if error.raw_os_error().is_none() => Reason::Invalid,
            E::Trusted(_)
            | E::TooLong
            | E::Image(_)
            | E::NetworkOfSession
            | E::Processors(_)
            | E::Program { errno: 7, .. } => Reason::Invalid,
            E::Program { .. } | E::WorkingDirectory { .. } => Reason::NotFound,
            E::Fence { .. }
            | E::ControlGroup(_)
            | E::Pipes(_)
            | E::Directory(_)
            | E::Files(_)
            | E::OutputDirectory(_)
            | E::Launcher(_)
            | E::NotInitialised
            | E::NoLauncher
            | E::LauncherGone => Reason::Failed,
        };
        Self {
            reason,
            message: error.explain(),
            hint: error.hint(),
        }
    }
}

impl From<imports::Error> for Error {
    fn from(error: imports::Error) -> Self {
        Self {
            reason: Reason::Invalid,
            message: error.to_string(),
            hint: remedy::Run::SplitCode.into(),
        }
    }
}
