//! Implements the HTTP proxy of a guest: the only way to the hosts that its policy allows.
//!
//! It speaks HTTP/1.1 on any stream: requests in absolute form, and CONNECT for TLS, which is not decrypted.
//! Forwarded messages are serialized anew from the parsed ones, so that two parsers cannot disagree (request
//! smuggling).

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
use ringfence_policy::EgressPolicy;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{AttemptLog, Guard};
use crate::fetch::Trust;
use answer::{ForwardError, Payload};
use idle::{Activity, Watched};
use tunnel::Tunnel;

/// Limit of concurrent connections per guest. Further ones queue.
const MAX_CONNECTIONS: usize = 64;

/// Size limit of the head of a request or response, in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// Limit of headers per request or response.
const MAX_HEADERS: usize = 128;

/// Timeouts of the proxy.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Connection to a host, including name resolution and handshake.
    pub connect: Duration,
    /// First bytes in a tunnel.
    pub hello: Duration,
    /// Next byte in either direction.
    pub idle: Duration,
}

impl Timeouts {
    /// Defaults: half a minute to connect, ten seconds for the first bytes, two minutes idle.
    pub const USUAL: Self = Self {
        connect: Duration::from_secs(30),
        hello: Duration::from_secs(10),
        idle: Duration::from_secs(120),
    };
}

/// The proxy of one guest.
#[derive(Debug)]
pub struct Proxy {
    guard: Guard,
    trust: Arc<Trust>,
    injections: Vec<Injection>,
    patience: Timeouts,
}

impl Proxy {
    /// Creates a proxy that connects through `guard`, and adds credentials to requests over TLS, verified
    /// with `trust`.
    pub fn new(guard: Guard, trust: Arc<Trust>, injections: Vec<Injection>) -> Self {
        Self {
            guard,
            trust,
            injections,
            patience: Timeouts::USUAL,
        }
    }

    /// Replaces the policy; see [`Guard::replace`].
    pub fn replace(&self, policy: EgressPolicy) {
        self.guard.replace(policy);
    }

    /// Sets the timeouts.
    #[must_use]
    pub fn with_patience(self, patience: Timeouts) -> Self {
        Self { patience, ..self }
    }

    /// Accepts and serves connections until dropped.
    pub async fn listen(self: Arc<Self>, listener: TcpListener, log: Arc<AttemptLog>) {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= MAX_CONNECTIONS {
                connections.join_next().await;
            }
            tokio::select! {
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => {
                    // The guest hung up already, or file descriptors ran out: the pause prevents a busy loop.
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

    /// Serves one connection of a guest until it ends, and records every attempt in the log.
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
        // A guest that violated the protocol has got an error response if it reads.
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
        Ok(result.unwrap_or_else(|fault: ForwardError| answer::refusal(&fault)))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.patience.connect
    }
}
