//! Accepts HTTP connections, within limits.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware::from_fn;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use ringfence_e2b::Tunnel;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::failures::PeerAddress;
use super::lingering::Lingering;
use super::slots::{ConnectionSlot, ConnectionSlots};
use super::unread::announce_close;
use ringfence_gateway_protocol::{peer, socket};
use ringfence_tls::{CertificateState, Tls};

/// Maximum number of connections. Clients keep one or more each, and wait on them for their turn.
const MAX_CONNECTIONS: usize = 256;

/// Maximum size of all headers of a request.
const MAX_HEAD: usize = 16 * 1024;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// Timeout for the headers of the next request.
const MAX_IDLE: Duration = Duration::from_secs(20);

/// Maximum lifetime of a connection: also ends one that does not read its response.
const MAX_LIFE: Duration = Duration::from_secs(60 * 60);

/// Routes by the user at the other end of a connection.
#[derive(Debug)]
pub struct Routes {
    /// For the user of the server, and root.
    pub own: Router,
    /// For other users of this machine and, if it can be reached from there, for other machines.
    pub others: Router,
}

/// Peers that can connect to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Processes of this machine. The kernel reports their users.
    Loopback,
    Network,
}

/// A listening TCP socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    reach: Reach,
    tls: Option<Arc<Tls>>,
}

impl Listener {
    /// Listens at the loopback address `address`; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// If the socket cannot be created, the address is not a loopback address, or the kernel does not report
    /// the user of a connection.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            let why = "other machines could reach it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        let reach = Reach::Loopback;
        let listener = Self {
            socket,
            address,
            reach,
            tls: None,
        };
        listener.try_peer().await?;
        Ok(listener)
    }

    /// Listens at an address that other machines may reach, with TLS or without. Every peer is a stranger.
    ///
    /// # Errors
    /// If the socket cannot be created.
    pub async fn bind_network(address: SocketAddr, tls: Option<Tls>) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        let reach = Reach::Network;
        Ok(Self {
            socket,
            address,
            reach,
            tls: tls.map(Arc::new),
        })
    }

    /// Connects to itself, to check that the kernel reports the user of a connection.
    async fn try_peer(&self) -> io::Result<()> {
        let client = TcpStream::connect(self.address).await?;
        if is_ours(client.local_addr()?, self.address) {
            return Ok(());
        }
        let why = "the kernel does not say whose a connection is (its module `tcp_diag`)";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Returns the state of the listener's certificate, if it has one.
    pub fn certificate(&self) -> Option<&Arc<CertificateState>> {
        self.tls.as_ref().map(|tls| tls.certificate())
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the listener's root.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves `routes` until `stop` resolves; then drops all connections.
    pub async fn serve(&self, routes: Routes, stop: impl Future<Output = ()>) {
        // Strangers evict each other only.
        let (own, others) = (
            ConnectionSlots::new(MAX_CONNECTIONS),
            ConnectionSlots::new(MAX_CONNECTIONS),
        );
        let supervise = |stream: TcpStream, peer: SocketAddr| {
            let (slots, routes) = match self.reach {
                Reach::Loopback if is_ours(peer, self.address) => (&own, &routes.own),
                Reach::Loopback | Reach::Network => (&others, &routes.others),
            };
            let place = slots.enter()?;
            let routes = routes.clone().layer(Extension(PeerAddress(peer.ip())));
            Some(supervise(stream, self.tls.clone(), routes, place))
        };
        let serve = socket::serve(
            // Twice the limits, because evicted connections are still closing.
            4 * MAX_CONNECTIONS,
            |context| self.socket.poll_accept(context),
            supervise,
            stop,
        );
        let renew = async {
            match &self.tls {
                Some(tls) => tls.keep_new().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = serve => {}
            never = renew => { let _: Infallible = never; }
        }
    }
}

/// Returns `true` if a connection is of the server's user, or of root; `false` if the user is unknown.
fn is_ours(peer: SocketAddr, own: SocketAddr) -> bool {
    peer::user(peer, own).is_ok_and(|user| user.is_some_and(peer::is_ours))
}

async fn supervise(stream: TcpStream, tls: Option<Arc<Tls>>, routes: Router, place: Arc<ConnectionSlot>) {
    // An answer in several writes must not wait for the peer's acknowledgement of the first.
    let _ = stream.set_nodelay(true);
    let routes = routes.layer(Extension(Arc::clone(&place)));
    let connection = async {
        match tls {
            None => serve_connection(stream, routes).await,
            // Whoever cannot complete a handshake is told nothing.
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    serve_connection(stream, routes).await;
                }
            }
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(MAX_LIFE, connection) => {}
        () = place.evicted() => {}
    }
}

/// Serves one connection to its end, which is that of the tunnel if a program of a sandbox has switched its protocol.
pub async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, routes: Router) {
    let tunnel = Tunnel::default();
    let routes = routes
        .layer(Extension(tunnel.clone()))
        .layer(from_fn(announce_close));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(MAX_IDLE)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(
            TokioIo::new(Lingering::new(stream)),
            TowerToHyperService::new(routes),
        )
        .with_upgrades();
    // Errors of a connection are ignored: there is no one to report them to.
    let _ = connection.await;
    if let Some(relay) = tunnel.take() {
        relay.await;
    }
}
