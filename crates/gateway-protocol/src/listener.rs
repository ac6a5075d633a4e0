//! Serves the socket for gateways.

use std::future::Future;
use std::io;
use std::path::Path;
use std::time::Duration;

use ringfence_records::approval::Service;

use super::connection;
use crate::socket::Socket;

/// Maximum number of gateways.
const MAX_CONNECTIONS: usize = 32;

/// Timeout for a gateway to read a message.
#[derive(Debug, Clone, Copy)]
pub struct ReadTimeout(pub Duration);

impl Default for ReadTimeout {
    fn default() -> Self {
        Self(Duration::from_secs(10))
    }
}

/// The socket for gateways, removed on drop.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    patience: ReadTimeout,
}

impl Listener {
    /// Listens at `path`, which must be in a private directory, replacing a stale socket. The caller must
    /// hold the server's lock.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub fn bind(path: &Path, patience: ReadTimeout) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::bind(path)?,
            patience,
        })
    }

    /// Serves gateways until `stop` resolves. Requests and answers are in the store, and persist.
    pub async fn serve(&self, service: &Service, stop: impl Future<Output = ()>) {
        let supervise = |stream| connection::supervise(stream, service.clone(), self.patience);
        self.socket.serve(MAX_CONNECTIONS, supervise, stop).await;
    }
}
