//! The preparation of a command's backend, before the process did anything else.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ringfence::InProcess;
use ringfence_exec::local::{Launcher, Local, Settings};
use ringfence_server::client;
use ringfence_server::server_or_local::{Python, Server, ServerOrLocal};

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
        let mut prepared = Self::connected(socket);
        if prepared.connection.is_none() {
            // If the fork fails, the local backend tries again later and reports the error.
            prepared.launcher = Launcher::fork(arguments).ok();
        }
        prepared
    }

    /// Connects to the server at `socket`. The server wakes up while this process gets ready.
    pub(crate) fn connected(socket: Option<&Path>) -> Self {
        Self {
            connection: socket.and_then(|socket| client::connect_now(socket).ok()),
            launcher: None,
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(launcher) = self.launcher.take() {
            let _ = launcher.close();
        }
    }
}

/// Creates the backend of one command. Without a socket, everything runs in this process.
///
/// # Errors
/// If the configuration cannot be used.
pub(crate) fn server_or_local(
    socket: Option<PathBuf>,
    settings: Settings,
    mut prepared: Prepared,
    context: &Context,
) -> Result<ServerOrLocal<InProcess>, ringfence::Error> {
    let is_named = settings.python.is_some();
    let local = Local::new(settings).beginning_with(prepared.launcher.take());
    let own = InProcess::for_one(local, context)?;
    let python = match is_named {
        true => Python::Named,
        false => Python::First(Arc::clone(&own.local)),
    };
    let connection = Mutex::new(prepared.connection.take());
    Ok(ServerOrLocal::new(Server { socket, connection }, own, python))
}
