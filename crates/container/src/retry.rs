//! A second attempt of a call whose container died before it received the call.

use ringfence_exec::local::{Chunk, Connection};
use tokio::sync::{mpsc, watch};

/// The connection of a call's retry. Impossible with input or a bridge, which the first attempt consumes.
#[derive(Debug)]
pub(super) struct Retry {
    output: Option<mpsc::Sender<Chunk>>,
    cancelled: Option<watch::Receiver<bool>>,
}

impl Retry {
    /// Prepares a retry, if one is possible.
    pub(super) fn of(connection: &Connection) -> Option<Self> {
        let Connection {
            stdin,
            output,
            cancelled,
            bridge,
        } = connection;
        (stdin.is_none() && bridge.is_none()).then(|| Self {
            output: output.clone(),
            cancelled: cancelled.clone(),
        })
    }

    pub(super) fn connection(&self) -> Connection {
        Connection {
            output: self.output.clone(),
            cancelled: self.cancelled.clone(),
            ..Connection::none()
        }
    }
}
