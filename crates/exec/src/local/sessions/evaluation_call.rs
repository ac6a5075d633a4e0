//! An evaluation to be done.

use std::time::Instant;

use ringfence_policy::Request;

use super::super::connection::Connection;
use super::super::destination::Destination;
use super::super::settings::Fence;

/// An evaluation with its connection and destination.
#[derive(Debug)]
pub(in super::super) struct EvaluationCall {
    pub(in super::super) request: Request,
    pub(in super::super) fence: Fence,
    pub(in super::super) since: Instant,
    pub(in super::super) destination: Option<Destination>,
    pub(in super::super) connection: Connection,
}

impl EvaluationCall {
    /// Returns `true` if the caller has cancelled.
    pub(in super::super) fn is_cancelled(&self) -> bool {
        let cancelled = self.connection.cancelled.as_ref();
        cancelled.is_some_and(|cancelled| *cancelled.borrow() || cancelled.has_changed().is_err())
    }

    /// Returns the time at which its timeout is over.
    pub(super) fn deadline(&self) -> Instant {
        self.since + self.request.limits.timeout.as_duration()
    }
}
