//! Connects blocking code to a program in a container.

use std::io::{self, BufWriter, Read, Write};

use ringfence_exec::local::{Chunk, Connection, Stream};
use ringfence_jail::init::frames::{MAX_PIECE, Start};
use ringfence_policy::{Bytes, Outcome};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::init::InitClient;

/// Capacity of each channel, in chunks.
const PIECES: usize = 4;

/// Runs a program with `send` at its standard input and `receive` at its standard output; returns the results
/// of both, or the reason if the program or either of them fails.
pub(super) async fn run<S: Send + 'static, R: Send + 'static>(
    init: &InitClient,
    start: Start,
    send: impl FnOnce(&mut dyn Write) -> io::Result<S> + Send + 'static,
    receive: impl FnOnce(&mut dyn Read) -> io::Result<R> + Send + 'static,
) -> Result<(S, R), String> {
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
    let (sent, received) = (sending.await, receiving.await);
    let finished = ran.map_err(|error| error.to_string())?;
    if (finished.outcome, finished.exit_code) != (Outcome::Exited, 0) {
        let why = finished.stderr.text.lines().next().unwrap_or_default().to_owned();
        let (outcome, status) = (finished.outcome, finished.exit_code);
        return Err(format!(
            "{outcome:?} with status {status}: {}",
            why.escape_debug()
        ));
    }
    let broken = |_| "the task panicked".to_owned();
    let said = |error: io::Error| error.to_string();
    Ok((
        sent.map_err(broken)?.map_err(said)?,
        received.map_err(broken)?.map_err(said)?,
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
