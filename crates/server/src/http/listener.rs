//! Accepts connections of the HTTP interface: from permitted users only, within limits.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use super::peer;
use super::slots::{ConnectionSlot, ConnectionSlots};
use crate::socket;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 64;

/// Maximum size of all headers of a request.
const MAX_HEAD: usize = 16 * 1024;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// Timeout for the headers of the next request.
const MAX_IDLE: Duration = Duration::from_secs(20);

/// Maximum lifetime of a connection: also ends one that does not read its response.
const MAX_LIFE: Duration = Duration::from_secs(60 * 60);

/// Response to other users of this machine, before reading a request.
const FOREIGN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n\
    this console answers the user who started it, and root; the connection is another user's\n";

/// A listening socket on loopback.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens at `address`; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// If the socket cannot be created, the address is not a loopback address, or the kernel cannot tell the
    /// user of a connection.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let why = "other machines could reach it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        let listener = Self { socket, address };
        listener.try_peer().await?;
        Ok(listener)
    }

    /// Connects to itself, to check that the kernel can tell the user of a connection.
    async fn try_peer(&self) -> io::Result<()> {
        let client = TcpStream::connect(self.address).await?;
        if is_ours(client.local_addr()?, self.address) {
            return Ok(());
        }
        let why = "the kernel does not say whose a connection is (its module `tcp_diag`)";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `routes` until `stop` resolves; then drops all connections.
    pub(crate) async fn serve(&self, routes: Router, stop: impl Future<Output = ()>) {
        let places = ConnectionSlots::new(MAX_CONNECTIONS);
        let supervise = |stream: TcpStream, peer| {
            if is_ours(peer, self.address) {
                let place = places.enter()?;
                return Some(supervise(stream, routes.clone(), place));
            }
            // A foreign connection uses no slot, and is not awaited.
            let _ = stream.try_write(FOREIGN);
            None
        };
        socket::serve(
            // Twice the limit, because evicted connections are still closing.
            2 * MAX_CONNECTIONS,
            |context| self.socket.poll_accept(context),
            supervise,
            stop,
        )
        .await;
    }
}

/// Returns `true` if a connection's user may use the interface; `false` if the user is unknown.
fn is_ours(peer: SocketAddr, own: SocketAddr) -> bool {
    peer::user(peer, own).is_ok_and(|user| user.is_some_and(peer::is_ours))
}

async fn supervise(stream: TcpStream, routes: Router, place: Arc<ConnectionSlot>) {
    let routes = routes.layer(Extension(Arc::clone(&place)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_IDLE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // Errors of a connection are ignored: there is no one to report them to.
    tokio::select! {
        _ = tokio::time::timeout(MAX_LIFE, connection) => {}
        () = place.evicted() => {}
    }
}
