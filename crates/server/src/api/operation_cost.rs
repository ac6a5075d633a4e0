//! Costs of operations, and runs that count against the quotas of keys.

use std::sync::Arc;

use ringfence_tools::toolbox::ErrorKind;

use super::tenant::Account;
use crate::usage::Usage;

/// A run of a key that counts, unless it is taken back. Those of the server's own user are not counted.
#[derive(Debug)]
pub(super) struct Begun(pub(super) Option<(Arc<Usage>, Account)>);

impl Begun {
    /// Takes it back: nothing has begun.
    pub(super) fn take_back(self) {
        if let Some((usage, account)) = self.0 {
            usage.take_back(&account);
        }
    }

    /// Takes it back if a tool says by this error that nothing has begun.
    pub(super) fn end_with(self, error: ErrorKind) {
        match error {
            ErrorKind::Timeout | ErrorKind::Cancelled | ErrorKind::Internal | ErrorKind::RuntimeLost => {}
            ErrorKind::InvalidArguments
            | ErrorKind::PermissionDenied
            | ErrorKind::Blocked
            | ErrorKind::Rejected
            | ErrorKind::ApprovalTimeout
            | ErrorKind::NotFound
            | ErrorKind::RuntimeUnavailable
            | ErrorKind::LimitExceeded
            | ErrorKind::Busy => self.take_back(),
        }
    }
}

/// The cost of an operation on a sandbox, against the quota of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OperationCost {
    /// Nothing that is not there yet.
    Nothing,
    /// The content of files on its way in or out, which no quota limits, and which a server that drains lets begin.
    Transfer,
    /// A copy that is kept, which no quota limits.
    Copy,
    /// A sandbox or an interpreter.
    Place,
    /// A process or a piece of code, which counts as a run.
    Run,
}

impl OperationCost {
    /// Returns the cost of an operation, by the name of its record.
    pub(super) fn of(operation: &str) -> Self {
        match operation {
            "sandbox.create" | "sandbox.fork" | "sandbox.create_context" | "sandbox.restart_context" => {
                Self::Place
            }
            "sandbox.read" | "sandbox.write" | "sandbox.archive" | "sandbox.extract" | "template.upload" => {
                Self::Transfer
            }
            "sandbox.snapshot" | "image.pull" => Self::Copy,
            "sandbox.exec" | "sandbox.start" | "sandbox.run" => Self::Run,
            _ => Self::Nothing,
        }
    }
}
