//! A client of a kernel's channels, from the kernel's side.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::message::{Incoming, Outgoing};

/// Messages that wait for a client.
const WAITING: usize = 32;

/// Time that a kernel waits for a client that reads nothing, before it is cut off.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Resolves when a client's key is revoked or expires; never, if it cannot.
pub type KeyEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A guard of the caller's, such as a share of the memory for requests, which drop releases.
pub type Guard = Box<dyn Any + Send + Sync>;

/// An act of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Runs code.
    Run,
    Interrupt,
    Restart,
    /// Ends the kernel.
    Remove,
}

/// An act is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Type of the error.
    pub kind: &'static str,
    pub message: String,
}

/// The caller's side of a connection.
pub trait Gate: Send + Sync + fmt::Debug {
    /// Checks, counts and records an operation, which is not performed if that fails. It is under way until the guard is dropped.
    ///
    /// # Errors
    /// If it is not allowed, or cannot be recorded.
    fn begin(&self, act: Act, described: &Value) -> Result<Guard, Refusal>;

    /// Takes memory for a request that waits.
    ///
    /// # Errors
    /// If the client has no more of it.
    fn keep(&self, bytes: usize) -> Result<Guard, Refusal>;

    /// Returns the end of the client's key.
    fn key_end(&self) -> KeyEnd;
}

/// A client, until its connection ends.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: u64,
    messages: mpsc::Sender<Arc<Outgoing>>,
    cut: watch::Sender<bool>,
}

/// A request of a client, on its way to the kernel.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) message: Incoming,
    pub(crate) peer: Arc<Peer>,
    pub(crate) gate: Arc<dyn Gate>,
    /// Restarts before it: it is not carried out after another one.
    pub(crate) restarts: u64,
    pub(crate) _kept: Guard,
}

/// The other end of a peer, which its connection has.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) messages: mpsc::Receiver<Arc<Outgoing>>,
    cut: watch::Receiver<bool>,
}

impl Peer {
    pub(crate) fn new(id: u64) -> (Arc<Self>, Mailbox) {
        let (sender, messages) = mpsc::channel(WAITING);
        let (cut, is_cut) = watch::channel(false);
        let peer = Self {
            id,
            messages: sender,
            cut,
        };
        (
            Arc::new(peer),
            Mailbox {
                messages,
                cut: is_cut,
            },
        )
    }

    /// Passes on a message, as soon as the client has room for it. One that reads nothing is cut off.
    pub(crate) async fn send(&self, message: Arc<Outgoing>) {
        let sent = self.messages.send_timeout(message, TIMEOUT).await;
        // One that has gone needs no cut.
        if sent.is_err() {
            self.cut.send_replace(true);
        }
    }
}

impl Mailbox {
    /// Resolves when the client is cut off.
    pub(crate) fn cut(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut cut = self.cut.clone();
        async move {
            if cut.wait_for(|cut| *cut).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
