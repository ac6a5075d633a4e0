//! Transports calls of host functions from a program: messages as lines of JSON, on a channel of their own.
//!
//! `docs/protocol/bridge.md` specifies the protocol. A backend relays the bytes in both directions while the
//! program runs; the owner of the other end, a [`MessageStream`], interprets them.

mod decoder;
mod message;
mod relay;

pub use decoder::MessageDecoder;
pub use message::{Call, CallError, Id, MAX_DEPTH, MAX_LINE, Malformed, Message, check_shape};

use std::net::Shutdown;
use std::os::fd::AsFd;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Capacity in chunks, per direction.
const IN_FLIGHT: usize = 16;

/// Size of one read, in bytes.
const READ_SIZE: usize = 64 * 1024;

/// The byte channel end of a bridge, which a backend connects to the program.
#[derive(Debug)]
pub struct ByteChannel {
    /// Bytes from the program.
    pub(crate) out: mpsc::Sender<Vec<u8>>,
    /// Bytes to the program.
    pub(crate) back: mpsc::Receiver<Vec<u8>>,
}

/// The message end of a bridge.
#[derive(Debug)]
pub struct MessageStream {
    decoder: MessageDecoder,
    incoming: mpsc::Receiver<Vec<u8>>,
    speaker: MessageSink,
}

/// A sender of messages on a bridge.
#[derive(Debug, Clone)]
pub struct MessageSink(mpsc::Sender<Vec<u8>>);

/// Returns a connected pair of byte channels, for relays.
fn connected_pair() -> (ByteChannel, ByteChannel) {
    let (there, arrived) = mpsc::channel(IN_FLIGHT);
    let (returned, back) = mpsc::channel(IN_FLIGHT);
    let near = ByteChannel { out: there, back };
    let far = ByteChannel {
        out: returned,
        back: arrived,
    };
    (near, far)
}

/// Returns both ends of a bridge.
pub fn bridge() -> (MessageStream, ByteChannel) {
    let (out, incoming) = mpsc::channel(IN_FLIGHT);
    let (speaker, back) = mpsc::channel(IN_FLIGHT);
    let line = MessageStream {
        decoder: MessageDecoder::default(),
        incoming,
        speaker: MessageSink(speaker),
    };
    (line, ByteChannel { out, back })
}

impl MessageStream {
    /// Returns the next message; `None` once the program has closed its end. Cancel safe.
    ///
    /// # Errors
    /// If the program sent an invalid message. The stream is unusable then.
    pub async fn next(&mut self) -> Result<Option<Message>, Malformed> {
        loop {
            if let Some(message) = self.decoder.take()? {
                return Ok(Some(message));
            }
            match self.incoming.recv().await {
                Some(bytes) => self.decoder.push(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// Returns a sender of messages.
    pub fn speaker(&self) -> MessageSink {
        self.speaker.clone()
    }
}

impl MessageSink {
    /// Sends a message; waits for capacity. Ignores a program that has closed its end.
    pub async fn say(&self, message: &Message) {
        let _ = self.0.send(message.line()).await;
    }
}

impl ByteChannel {
    /// Relays bytes over a socket to the program, and then shuts it down in both directions: a program that
    /// continues to write must not block. Keep the socket until the program has ended: closed with unread
    /// data, it would give the program a connection reset instead of end of file.
    pub(crate) async fn carry_over(self, socket: &mut UnixStream) {
        self.carry(&mut *socket).await;
        // A socket that cannot be shut down closes with the program.
        if let Ok(socket) = socket.as_fd().try_clone_to_owned() {
            let _ = std::os::unix::net::UnixStream::from(socket).shutdown(Shutdown::Both);
        }
    }

    /// Relays bytes in both directions until one side closes.
    pub async fn carry(self, stream: impl AsyncRead + AsyncWrite) {
        let Self { out, mut back } = self;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let outwards = async {
            let mut buffer = vec![0; READ_SIZE];
            // Backpressure: the program's bytes are read only when there is capacity.
            while let Ok(room) = out.reserve().await {
                match reader.read(&mut buffer).await {
                    Ok(length @ 1..) => room.send(buffer[..length].to_vec()),
                    Ok(0) | Err(_) => return,
                }
            }
            // First deliver the remaining bytes to the program.
            std::future::pending().await
        };
        let backwards = async {
            while let Some(bytes) = back.recv().await {
                if writer.write_all(&bytes).await.is_err() {
                    back.close();
                    // A program that no longer reads may have written before, which is still to be read.
                    return out.closed().await;
                }
            }
            // Signals end of file to the other side.
            let _ = writer.shutdown().await;
        };
        tokio::select! {
            () = outwards => {}
            () = backwards => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn messages_go_both_ways_until_one_side_hangs_up() {
        let (mut line, duct) = bridge();
        let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
        let program = async {
            theirs
                .write_all(b"{\"type\":\"call\",\"id\":\"1\",\"data\":{\"path\":\"A.b\"}}\n")
                .await
                .unwrap();
            let mut heard = Vec::new();
            theirs.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let host = async {
            let Ok(Some(Message::Call(id, call))) = line.next().await else {
                panic!("no call");
            };
            assert_eq!(call.path, "A.b");
            line.speaker().say(&Message::Result(id, json!(7))).await;
            drop(line);
        };
        let ((), (), heard) = tokio::join!(duct.carry(ours), host, program);
        assert_eq!(
            heard,
            b"{\"type\":\"result\",\"id\":\"1\",\"data\":{\"value\":7}}\n"
        );
    }
}
