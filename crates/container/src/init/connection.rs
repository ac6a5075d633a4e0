//! Implements the host side of a guest's connection as an asynchronous stream.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringfence_jail::init::frames::{InitRequest, MAX_PIECE};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::mux::Mux;

/// A connection of a guest. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct GuestStream {
    line: Arc<Mux>,
    id: u32,
}

impl GuestStream {
    /// Wraps the connection with this number, which must be registered.
    pub(super) fn new(line: Arc<Mux>, id: u32) -> Self {
        Self { line, id }
    }
}

impl AsyncRead for GuestStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.line.on_connection(self.id, |flow, outbox| {
            if flow.read(self.id, buffer, outbox) || flow.heard_all || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if flow.gone {
                return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
            }
            flow.reader = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.line.on_connection(self.id, |flow, outbox| {
            if flow.gone || flow.said_all {
                return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
            }
            let count = bytes.len().min(MAX_PIECE).min(flow.room as usize);
            if count == 0 && !bytes.is_empty() {
                flow.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            // An empty frame would mean end of file.
            if count > 0 {
                flow.room -= count as u32;
                let (connection, bytes) = (self.id, bytes[..count].to_vec());
                InitRequest::Deliver { connection, bytes }.write(outbox);
            }
            Poll::Ready(Ok(count))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.on_connection(self.id, |flow, outbox| {
            if !flow.said_all && !flow.gone {
                flow.said_all = true;
                let (connection, bytes) = (self.id, Vec::new());
                InitRequest::Deliver { connection, bytes }.write(outbox);
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl Drop for GuestStream {
    fn drop(&mut self) {
        self.line.forget(&[self.id]);
    }
}
