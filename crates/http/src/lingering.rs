//! Closes connections so that the peer can read the last response (RFC 9112, section 9.6).
//!
//! A socket that is closed while bytes of the peer are unread resets the connection, and the peer loses the response on its way to it:
//! the refusal of a request whose body nobody read, for example.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Time that a peer has to close its end.
const MAX_TIME: Duration = Duration::from_secs(1);

/// Maximum number of bytes discarded while waiting for the peer to close.
const MAX_BYTES: usize = 1024 * 1024;

/// A connection whose shutdown waits, within limits, until the peer has closed its end.
#[derive(Debug)]
pub(crate) struct Lingering<S> {
    stream: S,
    /// Set once this end is shut down.
    farewell: Option<Farewell>,
}

#[derive(Debug)]
struct Farewell {
    deadline: Pin<Box<Sleep>>,
    dropped: usize,
}

impl<S> Lingering<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self {
            stream,
            farewell: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, farewell } = &mut *self;
        if farewell.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
        }
        let farewell = farewell.get_or_insert_with(|| Farewell {
            deadline: Box::pin(tokio::time::sleep(MAX_TIME)),
            dropped: 0,
        });
        let mut bytes = [0; 8192];
        while farewell.dropped < MAX_BYTES && farewell.deadline.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut bytes);
            // What a peer does after the end is not an error of the connection.
            let is_read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)).is_ok();
            if !is_read || buffer.filled().is_empty() {
                break;
            }
            farewell.dropped += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Returns the response that a peer receives if its body is not read
    async fn read_by_peer(leave: impl AsyncFnOnce(TcpStream)) -> io::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (peer, accepted) = tokio::join!(TcpStream::connect(listener.local_addr()?), listener.accept());
        let (mut peer, (mut stream, _)) = (peer?, accepted?);
        peer.write_all(b"never read").await?;
        stream.readable().await?;
        stream.write_all(b"refused").await?;
        let read = async {
            let mut text = String::new();
            let read = peer.read_to_string(&mut text).await;
            drop(peer);
            read.map(|_| text)
        };
        tokio::join!(leave(stream), read).1
    }

    #[tokio::test]
    async fn a_peer_whose_bytes_nobody_read_is_not_reset() {
        let reset = read_by_peer(async |stream| drop(stream)).await.unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
        let text = read_by_peer(async |stream| Lingering::new(stream).shutdown().await.unwrap()).await;
        assert_eq!(text.unwrap(), "refused");
    }

    #[tokio::test]
    async fn a_peer_that_never_closes_is_left_after_a_second() {
        let (near, _far) = tokio::io::duplex(64);
        let begun = tokio::time::Instant::now();
        Lingering::new(near).shutdown().await.unwrap();
        assert!(begun.elapsed() >= MAX_TIME);
    }

    #[tokio::test]
    async fn a_peer_that_never_stops_is_left_after_a_mebibyte() {
        let (near, mut far) = tokio::io::duplex(4096);
        let near = async {
            Lingering::new(near).shutdown().await.unwrap();
        };
        let far = async {
            let mut written = 0;
            while far.write_all(&[0; 4096]).await.is_ok() {
                written += 4096;
            }
            written
        };
        let ((), written) = tokio::join!(near, far);
        assert!((MAX_BYTES..2 * MAX_BYTES).contains(&written), "{written}");
    }
}
