//! The socket of the HTTP interface, and the limits of each connection.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use crate::socket;

/// Connections at once.
const MAX_CONNECTIONS: usize = 64;

/// The longest that the headers of a request may be, all together.
const MAX_HEAD: usize = 16 * 1024;

/// Headers of a request.
const MAX_HEADERS: usize = 64;

/// How long a connection may take to send the headers of its next request.
const MAX_IDLE: Duration = Duration::from_secs(20);

/// How long a connection may last, whatever it does: one that does not read what it is sent ends, too.
const MAX_LIFE: Duration = Duration::from_secs(60 * 60);

/// A socket on this machine's own network.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens at `address`; the kernel chooses where the port is 0.
    ///
    /// # Errors
    /// If the socket cannot be made, or the address can be reached from other machines.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let why = "other machines could reach it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Self { socket, address })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `routes` until `stop` ends; then drops all that is under way.
    pub(crate) async fn serve(&self, routes: Router, stop: impl Future<Output = ()>) {
        let attend = |stream| Some(attend(stream, routes.clone()));
        socket::serve(
            MAX_CONNECTIONS,
            |context| self.socket.poll_accept(context),
            attend,
            stop,
        )
        .await;
    }
}

async fn attend(stream: TcpStream, routes: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_IDLE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // However it ended, there is nobody left to tell.
    let _ = tokio::time::timeout(MAX_LIFE, connection).await;
}
