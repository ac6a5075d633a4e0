//! The trait of execution backends: this process's fence, Pyodide, the server.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use ringfence_policy::{ExecutionResult, Request};

use crate::execute;
use crate::local::{self, Connection, Fence, Local, SessionError};

/// A future that resolves to the result of a run.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<ExecutionResult, Error>> + Send + 'a>>;

pub trait Backend: fmt::Debug + Send + Sync {
    /// Runs a request to completion.
    fn run<'a>(
        &'a self,
        request: &'a Request,
        fence: Fence,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a>;
}

/// A request was not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub reason: Reason,
    pub message: String,
    pub hint: String,
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
    /// An internal failure.
    Failed,
}

impl Backend for Local {
    fn run<'a>(
        &'a self,
        request: &'a Request,
        fence: Fence,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move {
            Self::run(self, request, fence, output_directory, connection)
                .await
                .map_err(|error| Error::from(&error))
        })
    }
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
            | E::Exposing { .. }
            | E::NamespacesForbidden { .. }
            | E::NoControlGroups { .. }
            | E::NeedsNamespaces { .. } => Reason::Unavailable,
            E::Trusted(_) | E::TooLong | E::NetworkOfSession | E::Program { errno: 7, .. } => Reason::Invalid,
            E::Program { .. } | E::WorkingDirectory { .. } => Reason::NotFound,
            E::Fence { .. }
            | E::ControlGroup(_)
            | E::Pipes(_)
            | E::Directory(_)
            | E::OutputDirectory(_)
            | E::Launcher(_)
            | E::NotInitialised
            | E::NoLauncher
            | E::LauncherGone => Reason::Failed,
        };
        Self {
            reason,
            message: error.explain(),
            hint: error.hint().to_owned(),
        }
    }
}

impl From<execute::Error> for Error {
    fn from(error: execute::Error) -> Self {
        let reason = match error {
            execute::Error::RuntimeUnavailable { .. } => Reason::Unavailable,
            execute::Error::Imports(_) => Reason::Invalid,
        };
        Self {
            reason,
            hint: error.hint().to_owned(),
            message: error.to_string(),
        }
    }
}
