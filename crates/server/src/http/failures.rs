//! Counts requests with wrong credentials.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::refusal::RETRY_AFTER;

/// Maximum number of failures in [`RETRY_AFTER`] seconds.
const MAX: u32 = 30;

/// Failures since a point in time.
#[derive(Debug)]
pub(crate) struct Failures(Mutex<(Instant, u32)>);

impl Failures {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((Instant::now(), 0)))
    }

    /// Counts a failure. Returns `true` if there were too many: then a guesser is told to wait. Right credentials are
    /// never counted, so nobody is refused because of others.
    pub(crate) fn is_one_too_many(&self) -> bool {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.0.elapsed() >= Duration::from_secs(RETRY_AFTER) {
            *failures = (Instant::now(), 0);
        }
        failures.1 = failures.1.saturating_add(1);
        failures.1 > MAX
    }
}
