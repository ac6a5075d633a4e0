//! The backend of a command: the server if one is running for this user, and this process otherwise.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ringfence::{InProcess, container, pyodide};
use ringfence_exec::backend::{Backend, Error, Fingerprint, Reason, Running, Unavailable};
use ringfence_exec::local::{self, Connection, Launcher, Local, Settings};
use ringfence_exec::runner::RunSpec;
use ringfence_policy::{ExecutionResult, Language, Target};
use ringfence_server::client::{self, Client};
use ringfence_server::wire::{self, Run};

use crate::context::Context;

/// The preparation of a run, made before the process did anything else: a connection to the server or, without a
/// server, a launcher of the local fence. Its fork would cost a run that the server serves a third of its time.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    connection: Option<UnixStream>,
    launcher: Option<Launcher>,
}

impl Prepared {
    /// Connects to the server at `socket`, or forks a launcher that has these arguments.
    ///
    /// Only for a process that has done nothing yet ([`Launcher::fork`]).
    pub(crate) fn new(socket: Option<&Path>, arguments: &mut [OsString]) -> Self {
        let connection = socket.and_then(|socket| client::connect_now(socket).ok());
        // If the fork fails, the local backend tries again later and reports the error.
        let launcher = match connection {
            Some(_) => None,
            None => Launcher::fork(arguments).ok(),
        };
        Self { connection, launcher }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(launcher) = self.launcher.take() {
            let _ = launcher.close();
        }
    }
}

/// A backend that dispatches each run to the server, or runs it in this process if there is no server with the same
/// settings.
#[derive(Debug)]
pub(crate) struct ServerOrLocal {
    /// The server's socket, if a server may be used.
    socket: Option<PathBuf>,
    /// A connection to it, for the first run.
    connection: Mutex<Option<UnixStream>>,
    own: InProcess,
    /// Set if a person named the Python.
    has_named_python: bool,
}

/// The outcome of a request to the server.
enum Asked {
    Done(Box<Result<ExecutionResult, Error>>),
    /// There is no server, or none that may run it.
    Unserved(Connection),
    /// The server's settings differ.
    Declined(Connection),
}

impl ServerOrLocal {
    /// Creates the backend of one command. Without a socket, everything runs in this process.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub(crate) fn new(
        socket: Option<PathBuf>,
        settings: Settings,
        mut prepared: Prepared,
        context: &Context,
    ) -> Result<Self, ringfence::Error> {
        let containers = Arc::new(container::containers(context)?);
        let pyodide = Arc::new(pyodide::once(context)?);
        Ok(Self {
            socket,
            connection: Mutex::new(prepared.connection.take()),
            has_named_python: settings.python.is_some(),
            own: InProcess {
                local: Arc::new(Local::new(settings).beginning_with(prepared.launcher.take())),
                containers,
                pyodide,
            },
        })
    }

    /// Ends everything that this process started, and waits for that.
    pub(crate) async fn close(&self) {
        self.own.close().await;
    }

    /// Takes the first connection, or makes another one.
    async fn connect(&self) -> Option<Client> {
        let socket = self.socket.as_deref()?;
        let early = self
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
        match spec.request.session.is_some() && !self.has_named_python {
            true => Some(None),
            false => self.own.fingerprint(spec).map(Some),
        }
    }

    async fn ask_server(&self, spec: &RunSpec, connection: Connection) -> Asked {
        let Some(mut client) = self.connect().await else {
            return Asked::Unserved(connection);
        };
        let Some(run) = self.required(spec).and_then(|settings| Run::of(spec, settings)) else {
            return Asked::Unserved(connection);
        };
        match client.run(run, connection).await {
            Err(client::Error::Declined(connection)) => Asked::Declined(connection),
            result => Asked::Done(Box::new(result.map_err(explained))),
        }
    }

    /// Returns a warning if the server's Python is not the first of the PATH, which the request asked for.
    fn started_cold(&self, spec: &RunSpec) -> Option<String> {
        let takes_first = spec.target == Target::Local
            && spec.request.language == Language::Python
            && !self.has_named_python;
        let python = self
            .own
            .local
            .interpreter(Language::Python)
            .filter(|_| takes_first)?;
        Some(local::started_cold(&python))
    }
}

impl Backend for ServerOrLocal {
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
        Box::pin(async move {
            let in_session = spec.request.session.is_some();
            match self.ask_server(spec, connection).await {
                Asked::Done(result) => *result,
                Asked::Unserved(_) if in_session => Err(no_server()),
                Asked::Declined(_) if in_session => Err(other_interpreter()),
                Asked::Unserved(connection) => self.own.run(spec, connection).await,
                Asked::Declined(connection) => {
                    let mut result = self.own.run(spec, connection).await?;
                    result.meta.warnings.extend(self.started_cold(spec));
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
        message: "sessions live in a server, and none is running".to_owned(),
        hint: "start one with `ringfence serve &`".to_owned(),
    }
}

/// Returns the error for a session of another interpreter; any other run falls back to this process.
fn other_interpreter() -> Error {
    Error {
        reason: Reason::Unavailable,
        message: "the server is set up for another interpreter".to_owned(),
        hint: "restart the server: its sessions use the interpreter that it was started with".to_owned(),
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
        error @ (client::Error::Declined(_) | client::Error::Broken(_) | client::Error::Answer(_)) => Error {
            reason: Reason::Failed,
            message: error.to_string(),
            hint: "nothing is known of the run; check the server, or pass `--no-engine`".to_owned(),
        },
    }
}
