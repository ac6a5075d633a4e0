//! The connection to a program in a sandbox, as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use ringfence_sandbox::PortReader;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Size of the buffer for what is sent.
const BUFFER: usize = 64 * 1024;
/// Pieces of what a program sends that wait for a slow visitor.
const UNREAD: usize = 4;

/// Maximum number of bytes before an answer: its head, and answers that only announce it (1xx).
const MAX_BEFORE_ANSWER: usize = 1024 * 1024;

/// A limit on what a program sends, until it is lifted: else announcements without an end would keep the server busy.
#[derive(Debug, Clone)]
pub(super) struct Limit(Arc<AtomicUsize>);

impl Default for Limit {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(MAX_BEFORE_ANSWER)))
    }
}

impl Limit {
    pub(super) fn lift(&self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }

    fn admit(&self, piece: Vec<u8>) -> io::Result<Vec<u8>> {
        let left = self.0.load(Ordering::Relaxed);
        if left == usize::MAX {
            return Ok(piece);
        }
        let left = left
            .checked_sub(piece.len())
            .ok_or_else(|| io::Error::other("no answer within the limit"))?;
        // Lifted meanwhile: it stays so.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            (now != usize::MAX).then_some(left)
        });
        Ok(piece)
    }
}

/// A connection to a program.
#[derive(Debug)]
pub(super) struct Stream {
    received: mpsc::Receiver<io::Result<Vec<u8>>>,
    /// The piece that is being read, and how much of it was.
    piece: Vec<u8>,
    read: usize,
    sent: DuplexStream,
}

/// Joins both directions of a connection. Tasks pass the bytes on.
pub(super) fn open(
    reader: PortReader,
    sending: mpsc::Sender<Vec<u8>>,
    limit: Limit,
    tasks: &mut JoinSet<()>,
) -> Stream {
    let (sent, unsent) = duplex(BUFFER);
    let (receiving, received) = mpsc::channel(UNREAD);
    tasks.spawn(send(unsent, sending));
    tasks.spawn(receive(reader, limit, receiving));
    Stream {
        received,
        piece: Vec::new(),
        read: 0,
        sent,
    }
}

async fn send(mut unsent: DuplexStream, sending: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; BUFFER];
    while let Ok(count @ 1..) = unsent.read(&mut buffer).await {
        if sending.send(buffer[..count].to_vec()).await.is_err() {
            return;
        }
    }
}

async fn receive(mut reader: PortReader, limit: Limit, receiving: mpsc::Sender<io::Result<Vec<u8>>>) {
    while let Some(piece) = reader.next().await.transpose() {
        // What broke off must not be taken for the whole.
        let piece = piece
            .map_err(io::Error::other)
            .and_then(|piece| limit.admit(piece));
        if receiving.send(piece).await.is_err() {
            return;
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.read == self.piece.len() {
            match ready!(self.received.poll_recv(context)) {
                Some(piece) => (self.piece, self.read) = (piece?, 0),
                None => return Poll::Ready(Ok(())),
            }
        }
        let unread = &self.piece[self.read..];
        let count = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread[..count]);
        self.read += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.sent).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sent).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sent).poll_shutdown(context)
    }
}
