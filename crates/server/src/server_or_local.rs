//! A backend that runs requests on the server, or in this process if the server does not.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_exec::backend::{Backend, Error, Fingerprint, Reason, Running, Unavailable};
use ringfence_exec::local::{self, Connection, Local, Log};
use ringfence_exec::runner::RunSpec;
use ringfence_policy::{ExecutionResult, Language, Target};

use crate::client::{self, Client};
use crate::wire::{self, Run};

/// A backend that dispatches each run to the server, or to a backend of this process if there is no server with the
/// same settings.
#[derive(Debug)]
pub struct ServerOrLocal<B> {
    server: Server,
    own: B,
    python: Python,
    /// Destination of the warning about cold runs, beside their results.
    log: Option<Log>,
}

/// The server of this user.
#[derive(Debug, Default)]
pub struct Server {
    /// Path of the server's socket, if it may be used.
    pub socket: Option<PathBuf>,
    /// A connection to it, for the first run.
    pub connection: Mutex<Option<UnixStream>>,
}

/// The Python of local runs in this process.
#[derive(Debug)]
pub enum Python {
    /// Set by `--python` or `sandbox.python`.
    Named,
    /// The first of the PATH, as this backend finds it.
    First(Arc<Local>),
}

/// The outcome of a request to the server.
enum ServerAttempt {
    Done(Box<Result<ExecutionResult, Error>>),
    /// There is no server, or none that may run it.
    Unserved(Connection),
    /// The server's settings differ.
    Declined(Connection),
}

impl<B: Backend> ServerOrLocal<B> {
    /// Creates a backend. Requests that the server does not run are run by `own`.
    pub const fn new(server: Server, own: B, python: Python) -> Self {
        Self {
            server,
            own,
            python,
            log: None,
        }
    }

    /// Writes the warning about a run that the server declined to `log`, too: for callers whose results go to models,
    /// which are not shown it.
    #[must_use]
    pub fn with_log(self, log: Log) -> Self {
        Self {
            log: Some(log),
            ..self
        }
    }

    /// Returns the backend of this process.
    pub const fn own(&self) -> &B {
        &self.own
    }

    /// Takes the first connection, or makes another one.
    async fn connect(&self) -> Option<Client> {
        let socket = self.server.socket.as_deref()?;
        let early = self
            .server
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match early.and_then(|connection| Client::of(connection).ok()) {
            Some(client) => Some(client),
            None => Client::connect(socket).await.ok(),
        }
    }

    /// Returns the fingerprint that the server must share; the inner `None` if it need not. A session belongs to the
    /// server, and so does its interpreter, unless the user named one. Without a usable interpreter no server is
    /// asked: it would use its own, and this process reports the error.
    fn required(&self, spec: &RunSpec) -> Option<Option<Fingerprint>> {
        match self.python {
            Python::First(_) if spec.request.session.is_some() => Some(None),
            Python::First(_) | Python::Named => self.own.fingerprint(spec).map(Some),
        }
    }

    async fn ask_server(&self, spec: &RunSpec, connection: Connection) -> ServerAttempt {
        let Some(mut client) = self.connect().await else {
            return ServerAttempt::Unserved(connection);
        };
        let Some(run) = self.required(spec).and_then(|settings| Run::of(spec, settings)) else {
            return ServerAttempt::Unserved(connection);
        };
        match client.run(run, connection).await {
            Err(client::Error::Declined(connection)) => ServerAttempt::Declined(connection),
            Err(client::Error::Unread(connection)) => ServerAttempt::Unserved(connection),
            result => ServerAttempt::Done(Box::new(result.map_err(explained))),
        }
    }

    /// Returns a warning if the server's Python is not the first of the PATH, which the request asked for.
    fn started_cold(&self, spec: &RunSpec) -> Option<String> {
        let Python::First(local) = &self.python else {
            return None;
        };
        let is_python = spec.target == Target::Local && spec.request.language == Language::Python;
        let python = local.interpreter(Language::Python).filter(|_| is_python)?;
        Some(local::started_cold(&python))
    }
}

impl<B: Backend> Backend for ServerOrLocal<B> {
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
        Box::pin(async move {
            let in_session = spec.request.session.is_some();
            match self.ask_server(spec, connection).await {
                ServerAttempt::Done(result) => *result,
                ServerAttempt::Unserved(_) if in_session => Err(no_server()),
                ServerAttempt::Declined(_) if in_session => Err(other_interpreter()),
                ServerAttempt::Unserved(connection) => self.own.run(spec, connection).await,
                ServerAttempt::Declined(connection) => {
                    let mut result = self.own.run(spec, connection).await?;
                    let warning = self.started_cold(spec);
                    if let (Some(warning), Some(log)) = (&warning, &self.log) {
                        log.write(warning);
                    }
                    result.meta.warnings.extend(warning);
                    Ok(result)
                }
            }
        })
    }

    fn unavailable<'a>(&'a self, target: &'a Target) -> Unavailable<'a> {
        self.own.unavailable(target)
    }

    fn fingerprint(&self, spec: &RunSpec) -> Option<Fingerprint> {
        self.own.fingerprint(spec)
    }
}

/// Returns the error for a session without a server: a local fence ends with its run, and a session with it.
fn no_server() -> Error {
    Error {
        reason: Reason::Unavailable,
        message: "sessions live in a server, and none is running for this user".to_owned(),
        hint: "start one with `ringfence serve &`, or run this as the user of the one that runs".into(),
    }
}

/// Returns the error for a session of another interpreter; any other run falls back to this process.
fn other_interpreter() -> Error {
    Error {
        reason: Reason::Unavailable,
        message: "the server is set up for another interpreter".to_owned(),
        hint: "restart the server: its sessions use the interpreter that it was started with".into(),
    }
}

fn explained(error: client::Error) -> Error {
    match error {
        client::Error::Refused(refusal) => Error {
            reason: match refusal.reason {
                wire::Reason::Busy => Reason::Busy,
                wire::Reason::Invalid => Reason::Invalid,
                wire::Reason::NotFound => Reason::NotFound,
                wire::Reason::Unavailable => Reason::Unavailable,
                wire::Reason::Declined | wire::Reason::Failed => Reason::Failed,
            },
            message: refusal.message,
            hint: refusal.hint,
        },
        error @ (client::Error::Declined(_)
        | client::Error::Unread(_)
        | client::Error::Broken(_)
        | client::Error::Answer(_)) => Error {
            reason: Reason::Failed,
            message: error.to_string(),
            hint: "nothing is known of the run; check the server, or pass `--no-engine`".into(),
        },
    }
}
