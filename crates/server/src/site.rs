//! The HTTP listeners of a server beside its private socket: a loopback address for the API and the console, and one
//! more for the API, if asked for.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
pub use ringfence_e2b::{Domain, ParseDomainError};
use tokio::sync::watch;

use crate::api::Api;
use crate::console::Console;
use ringfence_gateway_protocol::socket::Socket;
use ringfence_http::{CertificateError, CertificateFiles, Listener, Refusal, Routes, Tls, serve_connection};

/// Maximum number of connections of a further Unix socket.
const MAX_CONNECTIONS: usize = 512;

/// An address to listen at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    Tcp(SocketAddr),
    /// The path of a Unix socket, whose peers must be the server's own user.
    Unix(PathBuf),
}

/// An error returned when parsing an [`Endpoint`] from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected ADDRESS:PORT or unix:PATH, such as 127.0.0.1:8080, got `{0}`")]
pub struct ParseEndpointError(String);

impl FromStr for Endpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Self, ParseEndpointError> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(_) => Err(ParseEndpointError(text.to_owned())),
            None => match text.strip_prefix("localhost:") {
                // Never asked of a name server, which could answer with another address.
                Some(port) => format!("127.0.0.1:{port}").parse(),
                None => text.parse(),
            }
            .map(Self::Tcp)
            .map_err(|_| ParseEndpointError(text.to_owned())),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Endpoint {
    /// Returns `true` if other machines may reach it.
    pub const fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(address) if !address.ip().is_loopback())
    }
}

/// A further listener of the API alone.
#[derive(Debug)]
pub enum Further {
    Network {
        listener: Listener,
        /// Domain below which the API and sandboxes have names.
        domain: Option<Domain>,
    },
    Unix(UnixSocket),
}

/// An error of opening a further listener.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// A Unix socket at a path that the operator chose, removed on drop.
#[derive(Debug)]
pub struct UnixSocket {
    socket: Socket,
    path: PathBuf,
}

impl Further {
    /// Listens at `endpoint`, at a TCP address with TLS if there are files for it, and by the names below `domain`.
    ///
    /// # Errors
    /// If the files cannot be used, or the socket cannot be created.
    pub async fn bind(
        endpoint: &Endpoint,
        tls: Option<CertificateFiles>,
        domain: Option<Domain>,
    ) -> Result<Self, BindError> {
        Ok(match endpoint {
            Endpoint::Tcp(address) => {
                let tls = tls.map(Tls::open).transpose()?;
                let listener = Listener::bind_network(*address, tls).await?;
                Self::Network { listener, domain }
            }
            Endpoint::Unix(path) => Self::Unix(UnixSocket {
                socket: Socket::bind_anywhere(path)?,
                path: path.clone(),
            }),
        })
    }

    fn url(&self) -> String {
        match self {
            Self::Network { listener, .. } => listener.url(),
            Self::Unix(UnixSocket { path, .. }) => Endpoint::Unix(path.clone()).to_string(),
        }
    }

    async fn serve(&self, api: &Arc<Api>, stop: impl Future<Output = ()>) {
        match self {
            Self::Network { listener, domain } => {
                if let Some(state) = listener.certificate() {
                    api.report_certificate(Arc::clone(state));
                }
                let routes = Routes {
                    own: api.on_network(domain.as_ref()),
                    others: api.on_network(domain.as_ref()),
                };
                listener.serve(routes, stop).await;
            }
            Self::Unix(UnixSocket { socket, .. }) => {
                let routes = api.on_socket();
                let supervise = |stream| serve_connection(stream, routes.clone());
                socket.serve(MAX_CONNECTIONS, supervise, stop).await;
            }
        }
    }
}

/// The HTTP listeners of a server.
#[derive(Debug)]
pub struct Site {
    pub api: Arc<Api>,
    /// The loopback address. `None` without a console, unless it was asked for.
    pub loopback: Option<Listener>,
    pub console: Option<Console>,
    pub further: Option<Further>,
}

impl Site {
    /// Creates a site of this API, without a listener.
    pub const fn of(api: Arc<Api>) -> Self {
        Self {
            api,
            loopback: None,
            console: None,
            further: None,
        }
    }

    /// Returns the addresses of the site's listeners, as URLs or `unix:PATH`.
    pub fn urls(&self) -> impl Iterator<Item = String> {
        let loopback = self.loopback.iter().map(Listener::url);
        loopback.chain(self.further.iter().map(Further::url))
    }

    /// Serves until `stop` becomes true.
    pub async fn serve(self, stop: watch::Receiver<bool>) {
        let loopback = async {
            if let Some(listener) = &self.loopback {
                let routes = self.on_loopback(listener.address());
                listener.serve(routes, until(stop.clone())).await;
            }
        };
        let further = async {
            if let Some(further) = &self.further {
                further.serve(&self.api, until(stop.clone())).await;
            }
        };
        tokio::select! {
            // The private socket, which is not the site's, has streams of questions without any listener here.
            _ = async { tokio::join!(loopback, further, until(stop.clone())) } => {}
            never = self.api.questions().watch() => match never {},
        }
    }

    /// Returns the routes of the loopback address. The console is for its own user alone.
    fn on_loopback(&self, address: SocketAddr) -> Routes {
        let refused = self
            .console
            .as_ref()
            .map(|_| Router::new().fallback(async || Refusal::FOREIGN_USER));
        Routes {
            own: self
                .api
                .on_loopback(address, self.console.as_ref().map(Console::routes)),
            others: self.api.on_loopback(address, refused),
        }
    }
}

/// Resolves when `stop` becomes true, or its sender is gone.
async fn until(mut stop: watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_or_a_path() {
        let check = |text: &str, remote: bool| {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.is_remote(), remote, "{text}");
        };
        check("127.0.0.1:0", false);
        check("[::1]:80", false);
        check("0.0.0.0:80", true);
        check("[::]:80", true);
        check("unix:/run/x", false);
        assert_eq!("localhost:80".parse(), "127.0.0.1:80".parse::<Endpoint>());
        for wrong in ["", "80", "localhost:", "localhost.x:80", "unix:", "127.0.0.1"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
