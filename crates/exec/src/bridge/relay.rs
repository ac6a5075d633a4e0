//! Passes a bridge between processes by sending a socket (SCM_RIGHTS).

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;

use tokio::io::Interest;
use tokio::net::UnixStream;

use super::{ByteChannel, connected_pair};

impl ByteChannel {
    /// Sends a socket for the program's end over `channel`, with one byte. The returned future relays the
    /// bridge and keeps the socket open while it is polled; it never resolves.
    ///
    /// # Errors
    /// If the socket cannot be created or sent.
    pub async fn hand_over(self, channel: &UnixStream) -> io::Result<impl Future<Output = ()> + use<>> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let hand_over = || ringfence_jail::hand_over(channel.as_fd(), theirs.as_fd());
        channel.async_io(Interest::WRITABLE, hand_over).await?;
        Ok(async move {
            self.carry_over(&mut ours).await;
            std::future::pending().await
        })
    }

    /// Receives a socket sent by [`Self::hand_over`]. Returns the byte channel for the program, and a future
    /// that relays the bridge while it is polled.
    ///
    /// # Errors
    /// If no socket is received.
    pub async fn take_over(channel: &UnixStream) -> io::Result<(Self, impl Future<Output = ()> + use<>)> {
        let take_over = || ringfence_jail::take_over(channel.as_fd());
        let socket = StdStream::from(channel.async_io(Interest::READABLE, take_over).await?);
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        let (near, far) = connected_pair();
        Ok((far, near.carry(socket)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::bridge::{Id, Message, bridge};

    #[tokio::test]
    async fn a_bridge_goes_through_another_process() {
        let (client, engine) = UnixStream::pair().unwrap();
        let (mut line, duct) = bridge();
        let carrying = duct.hand_over(&client).await.unwrap();
        let (far, relaying) = ByteChannel::take_over(&engine).await.unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let program = async {
            let call = b"{\"type\":\"call\",\"id\":\"1\",\"data\":{\"path\":\"A.b\"}}\n";
            theirs.write_all(call).await.unwrap();
            let mut heard = Vec::new();
            theirs.read_to_end(&mut heard).await.unwrap();
            heard
        };
        let host = async {
            let heard = line.next().await;
            assert!(matches!(heard, Ok(Some(Message::Call(..)))), "{heard:?}");
            line.speaker().say(&Message::Result(Id::of(1), json!("é"))).await;
            drop(line);
        };
        let passing = async { tokio::join!(carrying, relaying, far.carry(ours)) };
        let heard = tokio::select! {
            (heard, ()) = async { tokio::join!(program, host) } => heard,
            _ = passing => panic!("the bridge was closed"),
        };
        let answer = Message::Result(Id::of(1), json!("é")).line();
        assert_eq!(String::from_utf8(heard), String::from_utf8(answer));
    }

    #[tokio::test]
    async fn what_nobody_reads_is_no_fault_of_the_bridge() {
        let (host, interpreter) = UnixStream::pair().unwrap();
        let (line, duct) = bridge();
        line.speaker().say(&Message::Result(Id::of(1), json!(7))).await;
        let carrying = duct.hand_over(&host).await.unwrap();
        let theirs = ringfence_jail::take_over(interpreter.as_fd()).unwrap();
        let mut theirs = StdStream::from(theirs);
        std::io::Write::write_all(&mut theirs, b"unheard\n").unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut theirs = UnixStream::from_std(theirs).unwrap();
        drop(line);
        let program = async {
            let mut heard = Vec::new();
            theirs.read_to_end(&mut heard).await.unwrap();
            let refused = theirs.write_all(b"unheard\n").await.unwrap_err();
            (heard, refused.kind())
        };
        let (heard, refused) = tokio::select! {
            told = program => told,
            () = carrying => panic!("the bridge was closed"),
        };
        assert_eq!(heard, Message::Result(Id::of(1), json!(7)).line());
        assert_eq!(refused, io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_byte_alone_is_no_bridge() {
        let (client, engine) = UnixStream::pair().unwrap();
        client.try_write(&[0]).unwrap();
        assert!(ByteChannel::take_over(&engine).await.is_err());
        drop(client);
        assert!(ByteChannel::take_over(&engine).await.is_err());
    }
}
