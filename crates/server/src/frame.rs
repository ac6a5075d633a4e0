//! Frames of the server's socket: one byte for the kind, four for the length (little endian), the payload.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;

/// Maximum length of a payload. A request contains a program of up to 8 MiB, escaped as JSON.
pub const MAX_PAYLOAD: usize = 64 * 1024 * 1024;

const HEADER: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To the server: a [`crate::wire::Run`] as JSON.
    Run = 1,
    /// To the server: bytes of standard input.
    Stdin = 2,
    /// To the server: end of standard input.
    StdinEnd = 3,
    /// To the server: the client cancels the request.
    Cancel = 4,
    /// To the server: a [`crate::wire::SessionRequest`] as JSON.
    Session = 5,
    /// To the server: a [`crate::wire::SandboxRequest`] as JSON.
    Sandbox = 6,
    /// To the server: a request for access to the console, without a payload.
    Console = 7,
    /// From the server: the request will run, and input or a bridge may follow. Sent only for a request with one of them.
    Accepted = 15,
    /// From the server: bytes of standard output.
    Stdout = 16,
    /// From the server: bytes of standard error.
    Stderr = 17,
    /// From the server: a [`ringfence_policy::ExecutionResult`] as JSON. Ends a request.
    Result = 18,
    /// From the server: a [`crate::wire::Refusal`] as JSON. Ends a request.
    Refusal = 19,
    /// From the server: the requested sessions as JSON. Ends a request.
    Sessions = 20,
    /// From the server: a [`crate::wire::SandboxAnswer`] as JSON. Ends a request.
    Sandboxes = 21,
    /// From the server: a [`crate::wire::ConsoleAccess`] as JSON. Ends a request.
    ConsoleAccess = 22,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        let kinds = [
            Self::Run,
            Self::Stdin,
            Self::StdinEnd,
            Self::Cancel,
            Self::Session,
            Self::Sandbox,
            Self::Console,
            Self::Accepted,
            Self::Stdout,
            Self::Stderr,
            Self::Result,
            Self::Refusal,
            Self::Sessions,
            Self::Sandboxes,
            Self::ConsoleAccess,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == byte)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    /// Content, by kind.
    pub payload: Vec<u8>,
}

/// Bytes are not a valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Unknown kind.
    #[error("unknown message kind {0}")]
    Kind(u8),
    /// The payload is too long.
    #[error("a message of {0} bytes is too long")]
    Length(usize),
}

/// Removes the first frame from `buffer`. Returns `Ok(None)` if it is not complete yet.
///
/// # Errors
/// If the bytes cannot be the beginning of a frame.
pub fn decode(buffer: &mut Vec<u8>) -> Result<Option<Frame>, Malformed> {
    let Some((header, rest)) = buffer.split_at_checked(HEADER) else {
        return Ok(None);
    };
    let kind = Kind::from_byte(header[0]).ok_or(Malformed::Kind(header[0]))?;
    let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
    if length > MAX_PAYLOAD {
        return Err(Malformed::Length(length));
    }
    let Some(payload) = rest.get(..length) else {
        return Ok(None);
    };
    let frame = Frame {
        kind,
        payload: payload.to_vec(),
    };
    buffer.drain(..HEADER + length);
    Ok(Some(frame))
}

/// A receiver of frames. [`Receiver::next`] is cancel safe.
#[derive(Debug)]
pub struct Receiver<R> {
    stream: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Receiver<R> {
    pub const fn new(stream: R) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Receives the next frame; `None` at the end of the stream.
    ///
    /// # Errors
    /// If the stream breaks, ends inside a frame, or carries something else.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let decoded = decode(&mut self.buffer);
            if let Some(frame) = decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(16 * 1024);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let whole = self.buffer.is_empty();
                return if whole {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }
}

impl Receiver<OwnedReadHalf> {
    /// Returns the stream, to receive file descriptors. `None` if bytes after the last frame have already
    /// been read.
    pub fn stream(&self) -> Option<&UnixStream> {
        self.buffer.is_empty().then(|| self.stream.as_ref())
    }
}

/// Sends a frame.
///
/// # Errors
/// If the stream breaks, or the payload is too long.
pub async fn send(stream: &mut (impl AsyncWrite + Unpin), kind: Kind, payload: &[u8]) -> io::Result<()> {
    if payload.len() > MAX_PAYLOAD {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            Malformed::Length(payload.len()),
        ));
    }
    let length = (payload.len() as u32).to_le_bytes();
    let mut message = Vec::with_capacity(HEADER + payload.len());
    message.push(kind as u8);
    message.extend(length);
    message.extend(payload);
    stream.write_all(&message).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_out_whole_or_not_at_all() {
        let mut buffer = vec![16, 3, 0, 0, 0, b'a', b'b'];
        assert_eq!(decode(&mut buffer), Ok(None));
        buffer.extend(b"c\x03");
        assert_eq!(
            decode(&mut buffer),
            Ok(Some(Frame {
                kind: Kind::Stdout,
                payload: b"abc".to_vec()
            }))
        );
        assert_eq!(buffer, b"\x03");
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(decode(&mut vec![99, 0, 0, 0, 0]), Err(Malformed::Kind(99)));
        assert_eq!(
            decode(&mut vec![1, 255, 255, 255, 255]),
            Err(Malformed::Length(u32::MAX as usize))
        );
    }
}
