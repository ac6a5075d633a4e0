//! The caller's side of an invocation.

use ringfence_exec::local::Chunk;
use ringfence_records::approval::PendingApproval;
use tokio::sync::{mpsc, watch};

/// The caller's side of an invocation: cancellation, live output, questions, notices.
#[derive(Debug, Default)]
pub struct Attention {
    /// Set, or closed, when the caller cancels. `None` if it cannot.
    pub cancelled: Option<watch::Receiver<bool>>,
    pub output: Option<mpsc::Sender<Chunk>>,
    /// Approval requests of the invocation, if the caller has a user.
    pub questions: Option<Questions>,
    /// Notices to the user about the invocation.
    pub notices: Option<mpsc::Sender<String>>,
}

/// Channel for approval requests.
#[derive(Debug)]
pub enum Questions {
    /// The user can answer on this channel.
    Answered(mpsc::Sender<PendingApproval>),
    /// The user is only notified, and may answer elsewhere. A request that needs a present user is not sent.
    Told(mpsc::Sender<PendingApproval>),
}

impl Questions {
    pub(super) const fn sender(&self) -> &mpsc::Sender<PendingApproval> {
        match self {
            Self::Answered(sender) | Self::Told(sender) => sender,
        }
    }
}
