//! Records that people see and answer: questions, stored runs, the audit log.

use std::path::PathBuf;

use ringfence_exec::artifact::Store;
use ringfence_records::approval::Service;

/// The records of a server, as the console and the API show them.
#[derive(Debug, Clone)]
pub struct Sources {
    pub approvals: Service,
    /// Stored runs.
    pub runs: Store,
    /// Directory of the audit log.
    pub audit: PathBuf,
}
