//! Backends that use the server if one is running for this user, and this process otherwise.

use std::ffi::OsString;
use std::mem;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_container::keepalive::Wanted;
use ringfence_container::runner::{InContainers, Missing};
use ringfence_container::{Containers, Flavor};
use ringfence_exec::backend::{Backend, Error, Reason, Running};
use ringfence_exec::local::{self, Connection, Fence, Launcher, Local, Settings};
use ringfence_exec::pyodide::Pyodide;
use ringfence_policy::{ExecutionResult, Language, Request};
use ringfence_server::client::{self, Client};
use ringfence_server::wire::{self, InContainer, Run};

/// A backend that dispatches each run to the server, or to a local fence.
#[derive(Debug)]
pub(crate) struct Nearby {
    /// The server's socket, if a server may be used.
    pub(crate) socket: Option<PathBuf>,
    /// Settings of the local fence.
    pub(crate) settings: Settings,
    /// The preparation of the first run.
    pub(crate) prepared: Prepared,
}

/// The preparation of a run, made before the process did anything else.
#[derive(Debug, Default)]
pub(crate) struct Prepared(Mutex<Preparation>);

/// A connection to the server or, without a server, a launcher of the local fence: its fork would cost a run that
/// the server serves a third of its time.
#[derive(Debug, Default)]
enum Preparation {
    #[default]
    None,
    Connection(UnixStream),
    Launcher(Launcher),
}

impl Prepared {
    /// Connects to the server at `socket`, or forks a launcher that has these arguments.
    ///
    /// Only for a process that has done nothing yet ([`Launcher::fork`]).
    pub(crate) fn new(socket: Option<&Path>, arguments: &mut [OsString]) -> Self {
        let connection = socket.and_then(|socket| client::connect_now(socket).ok());
        let preparation = match connection {
            Some(connection) => Preparation::Connection(connection),
            // If the fork fails, the local backend tries again later and reports the error.
            None => Launcher::fork(arguments).map_or(Preparation::None, Preparation::Launcher),
        };
        Self(Mutex::new(preparation))
    }

    /// Takes the connection, or makes one to a server that has started since.
    async fn connect(&self, socket: Option<&Path>) -> Option<Client> {
        let is_connection = |preparation: &Preparation| matches!(preparation, Preparation::Connection(_));
        let early = match self.take_if(is_connection) {
            Preparation::Connection(connection) => socket.and(Client::of(connection).ok()),
            Preparation::None | Preparation::Launcher(_) => None,
        };
        match early {
            Some(client) => Some(client),
            None => connect(socket).await,
        }
    }

    /// Takes the launcher.
    fn launcher(&self) -> Option<Launcher> {
        let is_launcher = |preparation: &Preparation| matches!(preparation, Preparation::Launcher(_));
        match self.take_if(is_launcher) {
            Preparation::Launcher(launcher) => Some(launcher),
            Preparation::None | Preparation::Connection(_) => None,
        }
    }

    /// Ends a launcher that will not be used.
    fn dismiss(&self) {
        if let Preparation::Launcher(launcher) = &*self.lock() {
            launcher.end();
        }
    }

    fn take_if(&self, fits: impl FnOnce(&Preparation) -> bool) -> Preparation {
        let mut preparation = self.lock();
        match fits(&preparation) {
            true => mem::take(&mut preparation),
            false => Preparation::None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Preparation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(launcher) = self.launcher() {
            let _ = launcher.close();
        }
    }
}

impl Backend for Nearby {
    fn run<'a>(
        &'a self,
        request: &'a Request,
        fence: Fence,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move {
            let mut connection = connection;
            let session = request.session.is_some();
            let mut cold = None;
            if let (Some(mut client), Some(mut run)) = (
                self.prepared.connect(self.socket.as_deref()).await,
                self.wire(request, fence),
            ) {
                self.prepared.dismiss();
                run.output_directory.clone_from(&output_directory);
                let interpreter = run.interpreter.clone();
                match client.run(run, connection).await {
                    Err(client::Error::Declined(back)) if !session => {
                        cold = interpreter.filter(|_| self.takes_first_python(request));
                        drop(self.prepared.launcher());
                        connection = back;
                    }
                    result => return result.map_err(told),
                }
            }
            if session {
                return Err(no_engine());
            }
            let local = Local::new(self.settings.clone()).beginning_with(self.prepared.launcher());
            let result = local.run(request, fence, output_directory, connection).await;
            let closed = local.close().await;
            let result = result.and_then(|result| closed.map(|()| result));
            let mut result = result.map_err(|error| Error::from(&error))?;
            result
                .meta
                .warnings
                .extend(cold.as_deref().map(local::started_cold));
            Ok(result)
        })
    }
}

impl Nearby {
    /// Returns `true` if the request runs on the first Python of the PATH because none was named.
    fn takes_first_python(&self, request: &Request) -> bool {
        request.language == Language::Python && self.settings.python.is_none()
    }

    /// Returns the request in the server's form; `None` if no server may serve it. A request without a usable
    /// interpreter stays local: the local run reports the error, whereas a server would use its own
    /// interpreter. A session belongs to the server, and so does its interpreter, unless the user named one.
    fn wire(&self, request: &Request, fence: Fence) -> Option<Run> {
        let mut run = Run::of(request, fence)?;
        if request.session.is_some() && self.settings.python.is_none() {
            return Some(run);
        }
        run.interpreter = local::interpreter(&self.settings, request.language);
        (run.interpreter.is_some() || request.language == Language::Command).then_some(run)
    }
}

/// Containers of the server, or of this process.
#[derive(Debug)]
pub(crate) struct NearbyContainers {
    /// The server's socket, if a server may be used.
    pub(crate) socket: Option<PathBuf>,
    /// The local fallback.
    pub(crate) own: Containers,
}

impl InContainers for NearbyContainers {
    fn missing(&self, flavor: Flavor) -> Missing<'_> {
        self.own.missing(flavor)
    }

    fn run_in<'a>(
        &'a self,
        flavor: Flavor,
        (request, fence): (&'a Request, Fence),
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move {
            let asked = in_engine(self.socket.as_deref(), (request, fence), connection, |run| {
                run.output_directory.clone_from(&output_directory);
                run.container = Some(InContainer {
                    engine: flavor,
                    settings: self.own.settings().fingerprint(),
                    kept: None,
                });
            });
            let connection = match asked.await {
                Ok(result) => return result,
                Err(connection) => connection,
            };
            self.own
                .run_in(flavor, (request, fence), output_directory, connection)
                .await
        })
    }

    fn call_in<'a>(
        &'a self,
        wanted: &'a Wanted,
        (request, fence): (&'a Request, Fence),
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move {
            let asked = in_engine(self.socket.as_deref(), (request, fence), connection, |run| {
                run.container = Some(InContainer {
                    engine: wanted.engine,
                    settings: self.own.settings().fingerprint(),
                    kept: Some(wanted.clone()),
                });
            });
            let connection = match asked.await {
                Ok(result) => return result,
                Err(connection) => connection,
            };
            self.own.call_in(wanted, (request, fence), connection).await
        })
    }
}

/// Pyodide of the server, or of this process.
#[derive(Debug)]
pub(crate) struct NearbyPyodide {
    /// The server's socket, if a server may be used.
    pub(crate) socket: Option<PathBuf>,
    /// The local fallback.
    pub(crate) own: Pyodide,
}

impl Backend for NearbyPyodide {
    fn run<'a>(
        &'a self,
        request: &'a Request,
        fence: Fence,
        output_directory: Option<PathBuf>,
        connection: Connection,
    ) -> Running<'a> {
        Box::pin(async move {
            let asked = in_engine(self.socket.as_deref(), (request, fence), connection, |run| {
                run.output_directory.clone_from(&output_directory);
                run.pyodide = Some(self.own.fingerprint());
            });
            let connection = match asked.await {
                Ok(result) => return result,
                Err(connection) => connection,
            };
            let order = (request, fence);
            Ok(self.own.run(order, output_directory, connection).await?)
        })
    }
}

/// Dispatches a run to the server, after `place` has set its runtime. Returns the connection if there is no
/// server, or one with another configuration: the caller then runs the request locally.
async fn in_engine(
    socket: Option<&Path>,
    (request, fence): (&Request, Fence),
    connection: Connection,
    place: impl FnOnce(&mut Run),
) -> Result<Result<ExecutionResult, Error>, Connection> {
    let (Some(mut client), Some(mut run)) = (connect(socket).await, Run::of(request, fence)) else {
        return Err(connection);
    };
    place(&mut run);
    match client.run(run, connection).await {
        Err(client::Error::Declined(connection)) => Err(connection),
        result => Ok(result.map_err(told)),
    }
}

async fn connect(socket: Option<&Path>) -> Option<Client> {
    Client::connect(socket?).await.ok()
}

/// Returns the error for a session without a server: a local fence ends with its run, and a session with it.
fn no_engine() -> Error {
    Error {
        reason: Reason::Unavailable,
        message: "sessions live in a server, and none is running".to_owned(),
        hint: "start one with `ringfence serve &`".to_owned(),
    }
}

fn told(error: client::Error) -> Error {
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
        // Any other run would fall back to this process.
        client::Error::Declined(_) => Error {
            reason: Reason::Unavailable,
            message: "the server is set up for another interpreter".to_owned(),
            hint: "restart the server: its sessions use the interpreter that it was started with".to_owned(),
        },
        error @ (client::Error::Broken(_) | client::Error::Answer(_)) => Error {
            reason: Reason::Failed,
            message: error.to_string(),
            hint: "nothing is known of the run; check the server, or pass `--no-engine`".to_owned(),
        },
    }
}
