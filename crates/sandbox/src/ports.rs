//! Connections to TCP ports of a sandbox. Its init makes them inside: nothing outside has a route there.

use std::sync::Arc;

use ringfence_jail::init::files::Operation;
use ringfence_jail::init::frames::PROXY_PORTS;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::error::Error;
use super::files::Operating;
use super::place::Place;
use super::sandbox::{MAX_CONNECTIONS, Sandbox};

/// Port of the server's proxy in sandboxes, which nobody reaches from outside.
pub const PROXY_PORT: u16 = PROXY_PORTS.start;

/// The bytes that a port sends. Dropping it closes the connection.
#[derive(Debug)]
pub struct PortReader {
    operating: Operating,
    _permit: OwnedSemaphorePermit,
}

impl Sandbox {
    /// Connects to a TCP port at 127.0.0.1 inside. Pieces that are sent to the second part go there; dropping it ends that
    /// direction.
    ///
    /// # Errors
    /// If its programs have no ports, the port is the server's own, none listens there, or there are 16 connections.
    pub async fn connect(&self, port: u16) -> Result<(PortReader, mpsc::Sender<Vec<u8>>), Error> {
        // The sockets of its programs are what matters: with hosts to reach, they have them, too.
        if !self.request().ports {
            return Err(Error::NoPorts);
        }
        if self.is_own_port(port) {
            return Err(Error::OwnPort(port));
        }
        let permit = Arc::clone(&self.connections).try_acquire_owned();
        let permit = permit.map_err(|_| Error::Full {
            what: "connections to its ports",
            most: MAX_CONNECTIONS,
        })?;
        let mut operating = self.operate(&Operation::Connect { port }).await?;
        let connected = operating.first_line().await;
        connected.map_err(|error| refused(error, port))?;
        let sending = operating.take_input();
        let reader = PortReader {
            operating,
            _permit: permit,
        };
        Ok((reader, sending))
    }

    /// Returns `true` for a port at which the server's proxy listens inside, for programs of the sandbox alone: visitors would
    /// reach the hosts that those may reach. In a container that has hosts, or had some, each process has a proxy.
    fn is_own_port(&self, port: u16) -> bool {
        let has_proxies = self.of_place(Place::has_proxies) == Some(true);
        port == PROXY_PORT || has_proxies && PROXY_PORTS.contains(&port)
    }
}

fn refused(error: Error, port: u16) -> Error {
    match error {
        Error::File(error) if error.errno == ECONNREFUSED => Error::NothingListens(port),
        error => error,
    }
}

/// See errno(3).
const ECONNREFUSED: i32 = 111;

impl PortReader {
    /// Returns the next piece; `None` once the other end has closed. Cancel safe.
    ///
    /// # Errors
    /// If the connection broke.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        self.operating.next().await
    }
}
