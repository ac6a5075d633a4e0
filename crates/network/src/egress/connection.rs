//! A connection to a host, which has a byte counter and can be cut off.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A counter of the bytes that connections sent and received.
#[derive(Debug, Clone, Default)]
pub(super) struct ByteCount(Arc<AtomicU64>);

impl ByteCount {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The socket of a connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    is_cut: AtomicBool,
}

impl Wire {
    /// Ends the connection in the kernel, whatever its owner waits for. What was received and not read yet is lost.
    pub(super) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        // Fails only if the peer has ended it already.
        let _ = rustix::net::shutdown(&self.stream, Shutdown::Both);
    }

    /// Tells a connection that was cut off from one that the host has ended: half an answer must not pass for the whole.
    fn check(&self) -> io::Result<()> {
        match self.is_cut.load(Ordering::Acquire) {
            true => Err(ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Performs an operation on the socket once it is ready.
    fn poll<T>(
        &self,
        mut poll_ready: impl FnMut() -> Poll<io::Result<()>>,
        mut operate: impl FnMut(&TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        loop {
            ready!(poll_ready())?;
            self.check()?;
            match operate(&self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

/// A connection to a host. Counts the bytes sent and received.
#[derive(Debug)]
pub struct Connection {
    wire: Arc<Wire>,
    count: ByteCount,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, count: ByteCount) -> Self {
        let wire = Arc::new(Wire {
            stream,
            is_cut: AtomicBool::new(false),
        });
        Self { wire, count }
    }

    pub(super) const fn wire(&self) -> &Arc<Wire> {
        &self.wire
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &TcpStream {
        &self.wire.stream
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &self.wire.stream;
        let read = self.wire.poll(
            || stream.poll_read_ready(context),
            |stream| stream.try_read_buf(buffer),
        );
        let count = ready!(read)?;
        self.count.add(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = &self.wire.stream;
        let written = self.wire.poll(
            || stream.poll_write_ready(context),
            |stream| stream.try_write(bytes),
        );
        let count = ready!(written)?;
        self.count.add(count);
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = &self.wire.stream;
        let written = self.wire.poll(
            || stream.poll_write_ready(context),
            |stream| stream.try_write_vectored(parts),
        );
        let count = ready!(written)?;
        self.count.add(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match rustix::net::shutdown(&self.wire.stream, Shutdown::Write) {
            // The peer has ended it already.
            Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            result => Poll::Ready(result.map_err(io::Error::from)),
        }
    }
}
