//! The caller's side of a run.

use tokio::sync::{mpsc, watch};

use crate::bridge::ByteChannel;
use crate::output::Chunk;

/// The caller's side of a run: standard input, live output, cancellation, the skills bridge.
#[derive(Debug)]
pub struct Connection {
    /// Standard input; empty if `None`. Dropping the sender closes it.
    pub stdin: Option<mpsc::Receiver<Vec<u8>>>,
    /// Live output. A slow reader blocks its own program only.
    pub output: Option<mpsc::Sender<Chunk>>,
    /// Set, or closed, when the caller cancels. `None` if it cannot.
    pub cancelled: Option<watch::Receiver<bool>>,
    /// Bridge over which a Python program calls functions of the host.
    pub bridge: Option<ByteChannel>,
}

impl Connection {
    /// Returns a connection without input, live output, cancellation or bridge.
    pub const fn none() -> Self {
        Self {
            stdin: None,
            output: None,
            cancelled: None,
            bridge: None,
        }
    }

    /// Returns `true` if the caller has cancelled.
    pub fn is_cancelled(&self) -> bool {
        let cancelled = self.cancelled.as_ref();
        cancelled.is_some_and(|cancelled| *cancelled.borrow() || cancelled.has_changed().is_err())
    }
}
