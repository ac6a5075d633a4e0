//! Connects blocking code to a program in a container.

use std::io::{self, BufWriter, Read, Write};

use ringfence_exec::local::{Chunk, Connection, Stream};
use ringfence_jail::init::frames::{MAX_PIECE, Start};
use ringfence_policy::{Bytes, Outcome};
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};

use crate::init::{Finished, InitClient};

/// Capacity of each channel, in chunks.
const PIECES: usize = 4;

/// A program that failed, or a failure of one of its ends.
pub(super) struct Broken<R> {
    pub(super) why: String,
    /// Result of the receiver, if it did not fail itself.
    pub(super) received: Option<R>,
}

/// Runs a program with `send` at its standard input and `receive` at its standard output; returns the results
/// of both.
pub(super) async fn run<S: Send + 'static, R: Send + 'static>(
    init: &InitClient,
    start: Start,
    send: impl FnOnce(&mut dyn Write) -> io::Result<S> + Send + 'static,
    receive: impl FnOnce(&mut dyn Read) -> io::Result<R> + Send + 'static,
) -> Result<(S, R), Broken<R>> {
    let (input, stdin) = mpsc::channel(PIECES);
    let (output, printed) = mpsc::channel(PIECES);
    let sending = spawn_blocking(move || {
        let mut out = BufWriter::with_capacity(MAX_PIECE, Input(input));
        let sent = send(&mut out)?;
        out.flush().map(|()| sent)
    });
    let receiving = spawn_blocking(move || {
        let mut source = Output {
            printed,
            rest: Vec::new(),
            read: 0,
        };
        let received = receive(&mut source)?;
        // Unread output would block the program.
        io::copy(&mut source, &mut io::sink()).map(|_| received)
    });
    let connection = Connection {
        stdin: Some(stdin),
        output: Some(output),
        ..Connection::none()
    };
    let ran = init.run_beside(start, Bytes::kib(4), connection).await;
    let (sent, received) = (joined(sending.await), joined(receiving.await));
    let succeeded = ran.map_err(|error| error.to_string()).and_then(succeeded);
    match (succeeded.and(sent), received) {
        (Ok(sent), Ok(received)) => Ok((sent, received)),
        (Err(why), received) => Err(Broken {
            why,
            received: received.ok(),
        }),
        (_, Err(why)) => Err(Broken { why, received: None }),
    }
}

fn joined<T>(ended: Result<io::Result<T>, JoinError>) -> Result<T, String> {
    let result = ended.map_err(|_| "the task panicked".to_owned())?;
    result.map_err(|error| error.to_string())
}

/// Rejects a program that did not exit with status 0.
fn succeeded(finished: Finished) -> Result<(), String> {
    let (outcome, status) = (finished.outcome, finished.exit_code);
    if (outcome, status) == (Outcome::Exited, 0) {
        return Ok(());
    }
    let why = finished.stderr.text.lines().next().unwrap_or_default();
    Err(format!(
        "{outcome:?} with status {status}: {}",
        why.escape_debug()
    ))
}

/// Standard input of a program.
struct Input(mpsc::Sender<Vec<u8>>);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(MAX_PIECE)];
        let sent = self.0.blocking_send(piece.to_vec());
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard output of a program.
struct Output {
    printed: mpsc::Receiver<Chunk>,
    rest: Vec<u8>,
    read: usize,
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.rest.len() {
            match self.printed.blocking_recv() {
                Some(chunk) if chunk.stream == Stream::Stdout => (self.rest, self.read) = (chunk.bytes, 0),
                Some(_) => {}
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.rest.len() - self.read);
        buffer[..count].copy_from_slice(&self.rest[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}
