//! The socket that gateways connect to.

use std::future::Future;
use std::io;
use std::path::Path;
use std::time::Duration;

use ringfence_runtime::approval::Service;

use super::connection;
use crate::socket::Socket;

/// Gateways at once.
const MAX_CONNECTIONS: usize = 32;

/// How long a gateway may take to read what it is sent.
#[derive(Debug, Clone, Copy)]
pub struct Patience(pub Duration);

impl Default for Patience {
    fn default() -> Self {
        Self(Duration::from_secs(10))
    }
}

/// A socket for gateways, removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    patience: Patience,
}

impl Listener {
    /// Listens at `path`, in a directory of ours alone, in place of a socket that was left there. The caller must hold
    /// the engine's lock.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn bind(path: &Path, patience: Patience) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::bind(path)?,
            patience,
        })
    }

    /// Serves gateways until `stop` ends. Questions and answers are in the store, and outlive this.
    pub async fn serve(&self, service: &Service, stop: impl Future<Output = ()>) {
        let attend = |stream| connection::attend(stream, service.clone(), self.patience);
        self.socket.serve(MAX_CONNECTIONS, attend, stop).await;
    }
}
