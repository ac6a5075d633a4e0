//! A run that its caller talks to.

use std::io;

use ringfence_exec::local::{Chunk, Connection};
use ringfence_policy::ExecutionResult;
use tokio::sync::{mpsc, oneshot, watch};

use crate::failure::{Error, Failure};
use crate::request::Stdin;

/// Capacity of the queues of input and output chunks. A slow reader blocks its own program only.
const IN_FLIGHT: usize = 16;

/// A program that runs. Dropping it kills the program.
#[derive(Debug)]
pub struct Run {
    /// Standard input, if the request [piped](crate::Request::piped_stdin) it. Dropping it ends the input.
    pub stdin: Option<StdinWriter>,
    chunks: Option<mpsc::Receiver<Chunk>>,
    result: oneshot::Receiver<Result<ExecutionResult, Error>>,
    cancellation: CancelOnDrop,
}

/// The program's side of a run.
#[derive(Debug)]
pub(super) struct End {
    pub(super) connection: Connection,
    pub(super) result: oneshot::Sender<Result<ExecutionResult, Error>>,
}

/// The output of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// In the result alone.
    Captured,
    /// Sent while the program runs, too.
    Live,
}

/// Returns a run and its program's side.
pub(super) fn pair(stdin: Stdin, output: Output) -> (Run, End) {
    let (cancel, cancelled) = watch::channel(false);
    let (sender, result) = oneshot::channel();
    let (writer, input) = match stdin {
        Stdin::Empty => (None, None),
        Stdin::Bytes(bytes) => (None, Some(one_chunk(bytes))),
        Stdin::Piped => {
            let (writer, input) = mpsc::channel(IN_FLIGHT);
            (Some(StdinWriter(writer)), Some(input))
        }
    };
    let (live, chunks) = match output {
        Output::Captured => (None, None),
        Output::Live => {
            let (live, chunks) = mpsc::channel(IN_FLIGHT);
            (Some(live), Some(chunks))
        }
    };
    let run = Run {
        stdin: writer,
        chunks,
        result,
        cancellation: CancelOnDrop(Cancellation(cancel)),
    };
    let connection = Connection {
        stdin: input,
        output: live,
        cancelled: Some(cancelled),
        bridge: None,
    };
    let end = End {
        connection,
        result: sender,
    };
    (run, end)
}

impl Run {
    /// Waits for the next output of the program; `None` at its end. The program blocks until its output is
    /// read.
    pub async fn output(&mut self) -> Option<Chunk> {
        self.chunks.as_mut()?.recv().await
    }

    /// Kills the program; its result has the outcome [`Cancelled`](ringfence_policy::Outcome::Cancelled).
    pub fn cancel(&self) {
        self.cancellation.0.cancel();
    }

    /// Returns a handle that cancels the run from elsewhere.
    pub fn cancellation(&self) -> Cancellation {
        self.cancellation.0.clone()
    }

    /// Waits for the program's end. Its standard input ends, unless the writer was taken; unread output is in the
    /// result alone.
    ///
    /// # Errors
    /// If the program could not be run, as for [`Runner::run`](crate::Runner::run).
    pub async fn result(mut self) -> Result<ExecutionResult, Error> {
        drop(self.stdin.take());
        while self.output().await.is_some() {}
        match (&mut self.result).await {
            Ok(result) => result,
            Err(_) => Err(lost().into()),
        }
    }
}

/// Cancels a run when its handle is dropped, beside other cancellations.
#[derive(Debug)]
struct CancelOnDrop(Cancellation);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A handle that cancels a run.
#[derive(Debug, Clone)]
pub struct Cancellation(watch::Sender<bool>);

impl Cancellation {
    /// Kills the program, if it still runs.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}

/// The writing end of a program's standard input.
#[derive(Debug)]
pub struct StdinWriter(mpsc::Sender<Vec<u8>>);

impl StdinWriter {
    /// Writes bytes. Waits while the program is behind.
    ///
    /// # Errors
    /// If the program has ended, or closed its standard input.
    pub async fn write(&self, bytes: impl Into<Vec<u8>>) -> io::Result<()> {
        let sent = self.0.send(bytes.into()).await;
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Returns a standard input of these bytes.
fn one_chunk(bytes: Vec<u8>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    // The channel has room for one; the end of the sender ends the input.
    let _ = sender.try_send(bytes);
    receiver
}

fn lost() -> Failure {
    Failure::refused(
        "the task of the run ended without a result",
        "keep the runtime until the run has ended",
    )
}
