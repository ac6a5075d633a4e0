//! The gateway's side of the socket.

use std::io;
use std::path::Path;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::{FromEngine, FromGateway, MAX_LINE, Refusal, VERSION, parse_from_engine};
use crate::lines::{Lines, Next};

/// A gateway's connection to an engine.
#[derive(Debug)]
pub struct Client {
    lines: Lines<OwnedReadHalf>,
    sender: OwnedWriteHalf,
}

impl Client {
    /// Connects to the engine whose socket this is, and waits for its greeting.
    ///
    /// # Errors
    /// If nobody listens there, or somebody who speaks another version.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        let (reader, sender) = UnixStream::connect(socket).await?.into_split();
        let mut client = Self {
            lines: Lines::new(reader, MAX_LINE),
            sender,
        };
        match client.next().await? {
            Some(FromEngine::Hello { version: VERSION }) => Ok(client),
            Some(_) => Err(invalid("the engine speaks another version of the protocol")),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// What the engine says next; `None` when it has gone. What this version does not know is passed over.
    ///
    /// # Errors
    /// If the connection breaks, or carries something else.
    pub async fn next(&mut self) -> io::Result<Option<FromEngine>> {
        loop {
            match self.lines.next().await? {
                Next::End => return Ok(None),
                Next::TooLong => return Err(invalid("the engine sent a line that is too long")),
                Next::Line(line) => match parse_from_engine(&line) {
                    Ok(message) => return Ok(Some(message)),
                    Err(Refusal::UnknownType) => {}
                    Err(Refusal::Malformed(what)) => return Err(invalid(&what)),
                },
            }
        }
    }

    /// Says something to the engine.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn say(&mut self, message: &FromGateway) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.sender.write_all(&line).await
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}
