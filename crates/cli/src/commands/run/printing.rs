//! Prints a program's output while it runs.

use std::future::Future;
use std::io;
use std::thread::JoinHandle;

use ringfence_exec::local::Chunk;
use tokio::sync::mpsc;

use super::{IN_FLIGHT, report};
use crate::plan::Report;

/// A printer of the chunks of a program's output.
#[derive(Debug)]
pub(super) struct Printer {
    chunks: mpsc::Receiver<Chunk>,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    /// The bytes themselves.
    Stream,
    /// JSON objects, one per line.
    Events,
}

/// The output of a program that has ended.
#[derive(Debug)]
pub(super) enum Unprinted {
    /// Chunks that arrived with the result.
    All(Printer),
    /// Chunks that a thread has not printed yet. It ends with the last one, or at the first that it cannot print.
    Rest(JoinHandle<io::Result<()>>),
}

impl Printer {
    /// Returns a channel for output, and its printer; `None` if the result alone contains the output.
    pub(super) fn of(report: Report) -> Option<(mpsc::Sender<Chunk>, Self)> {
        let form = match report {
            Report::Json => return None,
            Report::Stream => Form::Stream,
            Report::JsonLines => Form::Events,
        };
        let (sender, chunks) = mpsc::channel(IN_FLIGHT);
        Some((sender, Self { chunks, form }))
    }

    /// Runs a program to completion, and prints its live output in a thread, so that a blocked reader does
    /// not delay a time limit or a signal. Most short programs need none, because a server's result arrives
    /// with their output.
    pub(super) async fn print_during<T>(
        printer: Option<Self>,
        running: impl Future<Output = T>,
    ) -> (T, Option<Unprinted>) {
        let Some(mut printer) = printer else {
            return (running.await, None);
        };
        tokio::pin!(running);
        let first = tokio::select! {
            biased;
            result = &mut running => return (result, Some(Unprinted::All(printer))),
            first = printer.chunks.recv() => first,
        };
        let thread = std::thread::spawn(move || printer.print(first));
        (running.await, Some(Unprinted::Rest(thread)))
    }

    /// Prints a chunk and those that follow.
    fn print(mut self, first: Option<Chunk>) -> io::Result<()> {
        let chunks = first
            .into_iter()
            .chain(std::iter::from_fn(|| self.chunks.blocking_recv()));
        match self.form {
            Form::Stream => report::print_chunks(chunks),
            Form::Events => report::print_events(chunks),
        }
    }
}

impl Unprinted {
    /// Prints the rest.
    ///
    /// # Errors
    /// If it cannot be printed.
    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::All(printer) => printer.print(None),
            Self::Rest(thread) => thread.join().unwrap_or(Ok(())),
        }
    }
}
