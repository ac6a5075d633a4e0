//! An evaluation to be done.

use std::sync::Arc;
use std::time::Instant;

use ringfence_policy::Request;

use super::super::connection::Connection;
use super::super::host_output::HostOutput;
use super::super::initial_files::RequestFiles;
use super::super::settings::Fence;

/// An evaluation with its connection and the directory of its output files.
#[derive(Debug)]
pub(in super::super) struct EvaluationCall {
    pub(in super::super) request: Request,
    pub(in super::super) fence: Fence,
    pub(in super::super) since: Instant,
    pub(in super::super) request_files: RequestFiles,
    pub(in super::super) host_output: Option<Arc<HostOutput>>,
    pub(in super::super) connection: Connection,
}

impl EvaluationCall {
    /// Returns the time at which its timeout is over.
    pub(super) fn deadline(&self) -> Instant {
        self.since + self.request.limits.timeout.as_duration()
    }
}
