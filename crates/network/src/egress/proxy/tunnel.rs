//! Serves CONNECT: relays bytes in both directions, after the ClientHello was found to name the allowed host.

use std::time::{Duration, Instant};

use hyper::Request;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use ringfence_policy::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::time::timeout;

use super::super::{AttemptLog, Connection, Guard, Verdict};
use super::answer::ForwardError;
use super::hello::{self, Hello, HelloFault, MAX_HELLO};
use crate::fetch::Url;

/// A tunnel that is connected to the host, and waits for the guest's upgrade.
#[derive(Debug)]
pub(super) struct Tunnel {
    host: Host,
    port: u16,
    far: Connection,
    near: OnUpgrade,
}

/// Cause for the end of a tunnel before any byte was relayed.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error(transparent)]
    Hello(#[from] HelloFault),
    #[error("TLS was asked for another host")]
    OtherHost,
    #[error("TLS was asked for no host (no SNI)")]
    NoHost,
    #[error("the client sent nothing")]
    Silence,
}

impl Tunnel {
    /// Connects to the target of a CONNECT request, if allowed.
    pub(super) async fn open(
        request: Request<Incoming>,
        guard: &Guard,
        deadline: Instant,
        log: &AttemptLog,
    ) -> Result<Self, ForwardError> {
        let url = target(&request).inspect_err(|fault| log.malformed(&request.uri().to_string(), fault))?;
        let far = guard.connect(&url.host, url.port, deadline, log).await?;
        Ok(Self {
            host: url.host,
            port: url.port,
            far,
            near: hyper::upgrade::on(request),
        })
    }

    /// Relays bytes until one side closes.
    pub(super) async fn run(self, patience: Duration, log: &AttemptLog) {
        let Self {
            host,
            port,
            mut far,
            near,
        } = self;
        let Ok(near) = near.await else { return };
        let mut near = TokioIo::new(near);
        let hello = timeout(patience, first_message(&mut near, &host)).await;
        let sent = match hello.unwrap_or(Err(Closed::Silence)) {
            Ok(bytes) => far.write_all(&bytes).await,
            Err(closed) => return log.record(&host, port, None, Verdict::Closed(closed.to_string())),
        };
        if sent.is_ok() {
            // Either side may close at any time; nothing else can go wrong.
            let _ = copy_bidirectional(&mut near, &mut far).await;
        }
    }
}

fn target(request: &Request<Incoming>) -> Result<Url, ForwardError> {
    let authority = request.uri().authority().ok_or(ForwardError::NotAbsolute)?;
    if authority.port().is_none() {
        return Err(ForwardError::NoPort);
    }
    Ok(format!("https://{authority}/").parse()?)
}

/// Reads the ClientHello, and returns all bytes read if it is for the host.
async fn first_message(near: &mut TokioIo<Upgraded>, host: &Host) -> Result<Vec<u8>, Closed> {
    let mut bytes = Vec::new();
    let name = loop {
        let count = (&mut *near).take(MAX_HELLO as u64).read_buf(&mut bytes).await;
        if !matches!(count, Ok(1..)) {
            return Err(Closed::Silence);
        }
        if let Hello::Whole(name) = hello::read(&bytes)? {
            break name;
        }
    };
    match (host, name) {
        // IP addresses are not allowed as server names (RFC 6066).
        (Host::Address(_), None) => Ok(bytes),
        (Host::Name(_), None) => Err(Closed::NoHost),
        (host, Some(name)) if name.parse().is_ok_and(|name: Host| name == *host) => Ok(bytes),
        (_, Some(_)) => Err(Closed::OtherHost),
    }
}
