//! Connections to TCP ports of a sandbox. Its init makes them inside: nothing outside has a route there.

use std::sync::Arc;

use ringfence_jail::init::files::Operation;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::error::Error;
use super::files::Operating;
use super::sandbox::{MAX_CONNECTIONS, Sandbox};

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
    /// If its programs have no ports, none listens there, or there are 16 connections.
    pub async fn connect(&self, port: u16) -> Result<(PortReader, mpsc::Sender<Vec<u8>>), Error> {
        // The sockets of its programs are what matters: with hosts to reach, they have them, too.
        if !self.request().ports {
            return Err(Error::NoPorts);
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
