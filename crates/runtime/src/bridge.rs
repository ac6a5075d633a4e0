//! What goes between a program and the host's functions: messages as lines of JSON, on a channel of their own.
//!
//! The protocol is written down in `docs/protocol/bridge.md`. A backend only carries the bytes, both ways, for as long as
//! the program runs; what they mean is known to whoever holds the other [`Line`] end.

mod lines;
mod message;
mod passage;

pub use lines::Lines;
pub(crate) use message::check_shape;
pub use message::{Call, Fault, Id, MAX_DEPTH, MAX_LINE, Malformed, Message};

use std::net::Shutdown;
use std::os::fd::AsFd;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Pieces under way at once, each way.
const IN_FLIGHT: usize = 16;

/// How much is read at once.
const READ_SIZE: usize = 64 * 1024;

/// The end of a bridge that a backend connects to the program.
#[derive(Debug)]
pub struct Duct {
    /// Where the program's bytes go.
    pub(crate) out: mpsc::Sender<Vec<u8>>,
    /// Where those for the program come from.
    pub(crate) back: mpsc::Receiver<Vec<u8>>,
}

/// The end of a bridge where messages are understood.
#[derive(Debug)]
pub struct Line {
    lines: Lines,
    incoming: mpsc::Receiver<Vec<u8>>,
    speaker: Speaker,
}

/// What says something on a bridge.
#[derive(Debug, Clone)]
pub struct Speaker(mpsc::Sender<Vec<u8>>);

/// Two ends of which each says what the other hears: for who carries a bridge on.
fn passage() -> (Duct, Duct) {
    let (there, arrived) = mpsc::channel(IN_FLIGHT);
    let (returned, back) = mpsc::channel(IN_FLIGHT);
    let near = Duct { out: there, back };
    let far = Duct {
        out: returned,
        back: arrived,
    };
    (near, far)
}

/// Both ends of a bridge.
pub fn bridge() -> (Line, Duct) {
    let (out, incoming) = mpsc::channel(IN_FLIGHT);
    let (speaker, back) = mpsc::channel(IN_FLIGHT);
    let line = Line {
        lines: Lines::default(),
        incoming,
        speaker: Speaker(speaker),
    };
    (line, Duct { out, back })
}

impl Line {
    /// The next message; `None` once the program has no bridge any more. Dropping a call loses nothing.
    ///
    /// # Errors
    /// If it sent what is no message. Nothing that follows can be understood.
    pub async fn next(&mut self) -> Result<Option<Message>, Malformed> {
        loop {
            if let Some(message) = self.lines.take()? {
                return Ok(Some(message));
            }
            match self.incoming.recv().await {
                Some(bytes) => self.lines.push(&bytes),
                None => return Ok(None),
            }
        }
    }

    /// What speaks on this line.
    pub fn speaker(&self) -> Speaker {
        self.speaker.clone()
    }
}

impl Speaker {
    /// Says something, once there is room. A program that has no bridge any more hears nothing.
    pub async fn say(&self, message: &Message) {
        let _ = self.0.send(message.line()).await;
    }
}

impl Duct {
    /// Carries bytes over a socket of the program's, and then ends it in both directions: a program that writes on must not
    /// wait for a reader. The socket is to be kept until the program has ended: closed with something unread in it, it would
    /// look to the program like a fault, in place of an end.
    pub(crate) async fn carry_over(self, socket: &mut UnixStream) {
        self.carry(&mut *socket).await;
        // What cannot be ended so ends with the program.
        if let Ok(socket) = socket.as_fd().try_clone_to_owned() {
            let _ = std::os::unix::net::UnixStream::from(socket).shutdown(Shutdown::Both);
        }
    }

    /// Carries bytes both ways, until one side has closed its end.
    pub(crate) async fn carry(self, stream: impl AsyncRead + AsyncWrite) {
        let Self { out, mut back } = self;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let outwards = async {
            let mut buffer = vec![0; READ_SIZE];
            // A program's bytes are taken in only when there is room for them.
            while let Ok(room) = out.reserve().await {
                match reader.read(&mut buffer).await {
                    Ok(length @ 1..) => room.send(buffer[..length].to_vec()),
                    Ok(0) | Err(_) => return,
                }
            }
            // What is left to be said to the program comes first.
            std::future::pending().await
        };
        let backwards = async {
            while let Some(bytes) = back.recv().await {
                if writer.write_all(&bytes).await.is_err() {
                    back.close();
                    // Who hears no more may have said something before, which is still to be read.
                    return out.closed().await;
                }
            }
            // The other side sees the end of it.
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
