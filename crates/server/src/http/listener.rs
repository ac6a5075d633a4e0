//! The socket of the HTTP interface: whose connections are served, and the limits of each.

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
use super::places::{Place, Places};
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

/// The answer to other users of this machine, before they have said anything.
const FOREIGN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n\
    this console answers the user who started it, and root; the connection is another user's\n";

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
    /// If the socket cannot be made, the address can be reached from other machines, or the kernel does not say whose a
    /// connection is.
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

    /// Connects to itself: whose that connection is must be known.
    async fn try_peer(&self) -> io::Result<()> {
        let client = TcpStream::connect(self.address).await?;
        if is_ours(client.local_addr()?, self.address) {
            return Ok(());
        }
        let why = "the kernel does not say whose a connection is (its module `tcp_diag`)";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `routes` until `stop` ends; then drops all that is under way.
    pub(crate) async fn serve(&self, routes: Router, stop: impl Future<Output = ()>) {
        let places = Places::new(MAX_CONNECTIONS);
        let attend = |stream: TcpStream, peer| {
            if is_ours(peer, self.address) {
                let place = places.enter()?;
                return Some(attend(stream, routes.clone(), place));
            }
            // Whoever it is takes no place, and is waited for by nobody.
            let _ = stream.try_write(FOREIGN);
            None
        };
        socket::serve(
            // Those that were evicted are still ending.
            2 * MAX_CONNECTIONS,
            |context| self.socket.poll_accept(context),
            attend,
            stop,
        )
        .await;
    }
}

/// Whether a connection is of somebody who may use the interface. What the kernel does not say is no.
fn is_ours(peer: SocketAddr, own: SocketAddr) -> bool {
    peer::user(peer, own).is_ok_and(|user| user.is_some_and(peer::is_ours))
}

async fn attend(stream: TcpStream, routes: Router, place: Arc<Place>) {
    let routes = routes.layer(Extension(Arc::clone(&place)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_IDLE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // However it ended, there is nobody left to tell.
    tokio::select! {
        _ = tokio::time::timeout(MAX_LIFE, connection) => {}
        () = place.evicted() => {}
    }
}
