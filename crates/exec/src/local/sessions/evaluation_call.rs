//! An evaluation to be done.

use std::sync::Arc;
use std::time::Instant;

use ringfence_policy::Request;

use super::super::connection::Connection;
use super::super::outbox::Outbox;
use super::super::provisions::Inbox;
use super::super::settings::Fence;

/// An evaluation with its connection and the directory of its output files.
#[derive(Debug)]
pub(in super::super) struct EvaluationCall {
    pub(in super::super) request: Request,
    pub(in super::super) fence: Fence,
    pub(in super::super) since: Instant,
    pub(in super::super) inbox: Inbox,
    pub(in super::super) outbox: Option<Arc<Outbox>>,
    pub(in super::super) connection: Connection,
}

impl EvaluationCall {
    /// Returns the time at which its timeout is over.
    pub(super) fn deadline(&self) -> Instant {
        self.since + self.request.limits.timeout.as_duration()
    }
}
