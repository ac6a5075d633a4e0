//! The proxy through which a guest reaches the hosts that its policy names, and nothing else.
//!
//! It speaks HTTP/1.1 on any stream: requests in absolute form, and CONNECT for TLS that it does not look into. What
//! goes on is written anew from what was parsed, so that two readings of one message cannot differ.

mod answer;
mod echo;
mod forward;
mod hello;
mod idle;
mod inject;
mod tunnel;

#[cfg(test)]
mod tests;

pub use inject::{Injection, InjectionError};

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{AttemptLog, Guard};
use crate::fetch::Trust;
use answer::{Fault, Payload};
use idle::{Activity, Watched};
use tunnel::Tunnel;

/// How many connections of one guest are served at once. More wait.
const MAX_CONNECTIONS: usize = 64;

/// The largest head of a request or an answer.
const MAX_HEAD: usize = 64 * 1024;

/// The most headers of a request or an answer.
const MAX_HEADERS: usize = 128;

/// How long the proxy waits.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a connection to a host, its look-up included, and its handshake.
    pub connect: Duration,
    /// For the first bytes in a tunnel.
    pub hello: Duration,
    /// For the next byte, in either direction.
    pub idle: Duration,
}

impl Patience {
    /// The usual one: half a minute to connect, ten seconds to begin, two minutes of silence.
    pub const USUAL: Self = Self {
        connect: Duration::from_secs(30),
        hello: Duration::from_secs(10),
        idle: Duration::from_secs(120),
    };
}

/// A proxy for one guest.
#[derive(Debug)]
pub struct Proxy {
    guard: Guard,
    trust: Arc<Trust>,
    injections: Vec<Injection>,
    patience: Patience,
}

impl Proxy {
    /// A proxy that goes out through `guard`, and adds credentials where hosts that `trust` believes are asked.
    pub fn new(guard: Guard, trust: Arc<Trust>, injections: Vec<Injection>) -> Self {
        Self {
            guard,
            trust,
            injections,
            patience: Patience::USUAL,
        }
    }

    /// The same with other patience.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// Serves whoever connects, until it is dropped.
    pub async fn listen(self: Arc<Self>, listener: TcpListener, log: Arc<AttemptLog>) {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= MAX_CONNECTIONS {
                connections.join_next().await;
            }
            tokio::select! {
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => {
                    // A guest that hung up already, or a process out of descriptors: the pause keeps this from spinning.
                    let Ok((stream, _)) = accepted else {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    };
                    let (proxy, log) = (Arc::clone(&self), Arc::clone(&log));
                    connections.spawn(async move { proxy.serve(stream, &log).await });
                }
            }
        }
    }

    /// Serves one connection of a guest to its end, with a line in the log for whatever was tried.
    pub async fn serve<S>(&self, stream: S, log: &AttemptLog)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Activity::default());
        let stream = Watched::new(stream, Arc::clone(&activity));
        tokio::select! {
            () = self.converse(stream, log) => {}
            () = activity.ceases(self.patience.idle) => {}
        }
    }

    async fn converse<S>(&self, stream: S, log: &AttemptLog)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let tunnel = Mutex::new(None);
        let service = service_fn(|request| self.answer(request, &tunnel, log));
        let connection = http1::Builder::new()
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        // A guest that speaks badly has been told so, as far as it would listen.
        let _ = connection.await;
        let tunnel: Option<Tunnel> = tunnel.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(tunnel) = tunnel {
            tunnel.run(self.patience.hello, log).await;
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        tunnel: &Mutex<Option<Tunnel>>,
        log: &AttemptLog,
    ) -> Result<Response<Payload>, Infallible> {
        let result = if request.method() == Method::CONNECT {
            match Tunnel::open(request, &self.guard, self.deadline(), log).await {
                Ok(opened) => {
                    *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
                    Ok(answer::opened())
                }
                Err(fault) => Err(fault),
            }
        } else {
            forward::forward(self, request, log).await
        };
        Ok(result.unwrap_or_else(|fault: Fault| answer::refusal(&fault)))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.patience.connect
    }
}
