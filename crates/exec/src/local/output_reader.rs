//! The output reader: captures both output streams of a guest and forwards them.

use ringfence_policy::Limits;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::output::{Captured, Captures, Chunk, Stream};
use crate::supervise::DRAIN_TIMEOUT;

/// Buffer size: the default capacity of a pipe.
const READ_SIZE: usize = 64 * 1024;

/// Maximum number of bytes that can be left in a pipe when the program has exited
/// (/proc/sys/fs/pipe-max-size).
const MAX_PIPE: usize = 1024 * 1024;

/// A reader of both output streams.
#[derive(Debug)]
pub(super) struct OutputReader {
    captures: Captures,
    open: [bool; 2],
    buffers: [Vec<u8>; 2],
    output: Option<mpsc::Sender<Chunk>>,
    /// Captured chunk that is not forwarded yet.
    pending: Option<Chunk>,
}

impl OutputReader {
    pub(super) fn new(limits: &Limits, output: Option<mpsc::Sender<Chunk>>) -> Self {
        Self {
            captures: Captures::new(limits.max_output),
            open: [true; 2],
            buffers: [vec![0; READ_SIZE], vec![0; READ_SIZE]],
            output,
            pending: None,
        }
    }

    /// Returns the captured standard output and standard error.
    pub(super) fn finish(self) -> (Captured, Captured) {
        self.captures.finish()
    }

    /// Forwards one chunk, or reads one. Never resolves once both streams are closed. Cancel-safe: a chunk
    /// that was read is kept for the next call.
    pub(super) async fn listen(&mut self, stdout: &mut pipe::Receiver, stderr: &mut pipe::Receiver) {
        if let Some(output) = self.output.clone().filter(|_| self.pending.is_some()) {
            // Backpressure: a slow caller blocks its own program.
            match (output.reserve().await, self.pending.take()) {
                (Ok(permit), Some(chunk)) => permit.send(chunk),
                _ => self.output = None,
            }
            return;
        }
        let [out_buffer, err_buffer] = &mut self.buffers;
        let (stream, read) = tokio::select! {
            read = stdout.read(out_buffer), if self.open[0] => (Stream::Stdout, read),
            read = stderr.read(err_buffer), if self.open[1] => (Stream::Stderr, read),
            else => return std::future::pending().await,
        };
        self.take(stream, read.unwrap_or(0));
    }

    /// Captures bytes that were read; zero bytes mean end of file.
    fn take(&mut self, stream: Stream, length: usize) {
        self.open[stream as usize] &= length > 0;
        let bytes = &self.buffers[stream as usize][..length];
        self.captures.push(stream, bytes);
        if self.output.is_some() && length > 0 {
            self.pending = Some(Chunk {
                stream,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Reads the rest of the output after the program has exited.
    ///
    /// Reads from the pipes directly: the event loop may not have reported their readiness yet.
    pub(super) async fn drain(&mut self, stdout: &pipe::Receiver, stderr: &pipe::Receiver) {
        let patience = tokio::time::Instant::now() + DRAIN_TIMEOUT;
        self.pass_on(patience).await;
        for (stream, pipe) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
            let mut left = MAX_PIPE;
            while self.open[stream as usize] && left > 0 {
                let Ok(length) = rustix::io::read(pipe, &mut self.buffers[stream as usize]) else {
                    break;
                };
                self.take(stream, length);
                left = left.saturating_sub(length);
                self.pass_on(patience).await;
            }
        }
    }

    /// Forwards the pending chunk. After a timeout the stream is dropped; the caller still gets the result.
    async fn pass_on(&mut self, patience: tokio::time::Instant) {
        if let (Some(output), Some(chunk)) = (&self.output, self.pending.take()) {
            let sent = tokio::time::timeout_at(patience, output.send(chunk)).await;
            if !matches!(sent, Ok(Ok(()))) {
                self.output = None;
            }
        }
    }
}
