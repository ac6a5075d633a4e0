//! Client of the gateway socket.

use std::io;
use std::path::Path;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::{FromGateway, FromServer, MAX_LINE, Refusal, VERSION, parse_from_server};
use crate::line_reader::{LineRead, Lines};

/// A gateway's connection to the server.
#[derive(Debug)]
pub struct Client {
    lines: Lines<OwnedReadHalf>,
    sender: OwnedWriteHalf,
}

impl Client {
    /// Connects to a server's socket, and waits for its greeting.
    ///
    /// # Errors
    /// If no server listens there, or it has another protocol version.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        let (reader, sender) = UnixStream::connect(socket).await?.into_split();
        let mut client = Self {
            lines: Lines::new(reader, MAX_LINE),
            sender,
        };
        match client.next().await? {
            Some(FromServer::Hello { version: VERSION }) => Ok(client),
            Some(_) => Err(invalid("the server speaks another version of the protocol")),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Receives the next message; `None` at the end of the connection. Skips messages of unknown types.
    ///
    /// # Errors
    /// If the connection breaks, or a message is malformed.
    pub async fn next(&mut self) -> io::Result<Option<FromServer>> {
        loop {
            match self.lines.next().await? {
                LineRead::End => return Ok(None),
                LineRead::TooLong => return Err(invalid("the server sent a line that is too long")),
                LineRead::Line(line) => match parse_from_server(&line) {
                    Ok(message) => return Ok(Some(message)),
                    Err(Refusal::UnknownType) => {}
                    Err(Refusal::Malformed(what)) => return Err(invalid(&what)),
                },
            }
        }
    }

    /// Sends a message.
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
