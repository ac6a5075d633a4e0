//! Counts the bytes that tools themselves exchange with hosts, by caller.

use std::fmt::Debug;

use ringfence_network::egress::AttemptLog;
use ringfence_policy::Scope;

/// A counter of egress bytes by their owner.
pub trait EgressMeter: Debug + Send + Sync {
    /// Counts bytes that were sent or received for an owner.
    fn count(&self, owner: &Scope, bytes: u64);
}

/// The attempts of a call, whose bytes count at its end, and also if it is dropped before.
#[derive(Debug)]
pub(crate) struct EgressLog<'a> {
    attempts: AttemptLog,
    meter: Option<&'a dyn EgressMeter>,
    owner: &'a Scope,
}

impl<'a> EgressLog<'a> {
    pub(super) fn new(meter: Option<&'a dyn EgressMeter>, owner: &'a Scope) -> Self {
        Self {
            attempts: AttemptLog::default(),
            meter,
            owner,
        }
    }

    pub(crate) fn attempts(&self) -> &AttemptLog {
        &self.attempts
    }
}

impl Drop for EgressLog<'_> {
    fn drop(&mut self) {
        let bytes = self.attempts.bytes();
        if let Some(meter) = self.meter.filter(|_| bytes > 0) {
            meter.count(self.owner, bytes);
        }
    }
}
