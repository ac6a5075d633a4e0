//! The meter of a sandbox: its usage since the last reading.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Instant;

use ringfence_policy::Scope;

/// Total usage of sandboxes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Consumption {
    /// Processor time.
    pub cpu_seconds: f64,
    /// Memory in use times its duration: the mean of two readings, for the time between them.
    pub memory_byte_seconds: f64,
    /// Bytes that were sent to hosts and received from them.
    pub egress_bytes: u64,
}

/// Total usage of sandboxes, by owner.
pub type ConsumptionByOwner = BTreeMap<Scope, Consumption>;

impl AddAssign for Consumption {
    fn add_assign(&mut self, more: Self) {
        self.cpu_seconds += more.cpu_seconds;
        self.memory_byte_seconds += more.memory_byte_seconds;
        self.egress_bytes = self.egress_bytes.saturating_add(more.egress_bytes);
    }
}

/// The last reading of a sandbox.
#[derive(Debug)]
pub(crate) struct Meter {
    at: Instant,
    cpu_seconds: f64,
    memory_bytes: u64,
    egress_bytes: u64,
}

impl Meter {
    /// Creates the meter of a sandbox that has used nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            at: Instant::now(),
            cpu_seconds: 0.0,
            memory_bytes: 0,
            egress_bytes: 0,
        }
    }

    /// Returns the bytes to and from hosts since the last reading.
    pub(crate) fn read_egress(&mut self, now: u64) -> u64 {
        let before = std::mem::replace(&mut self.egress_bytes, now);
        now.saturating_sub(before)
    }

    /// Returns the usage since the last reading. A figure that is missing this time is left for the next
    /// reading.
    pub(crate) fn read(&mut self, cpu_seconds: Option<f64>, memory_bytes: Option<u64>) -> Consumption {
        let mut used = Consumption::default();
        if let Some(now) = cpu_seconds {
            used.cpu_seconds = (now - self.cpu_seconds).max(0.0);
            self.cpu_seconds = self.cpu_seconds.max(now);
        }
        if let Some(now) = memory_bytes {
            let mean = (self.memory_bytes as f64 + now as f64) / 2.0;
            used.memory_byte_seconds = mean * self.at.elapsed().as_secs_f64();
            self.memory_bytes = now;
            self.at = Instant::now();
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nothing_is_counted_twice_and_nothing_is_lost() {
        let mut meter = Meter::new();
        meter.at = Instant::now() - Duration::from_secs(10);
        let used = meter.read(Some(1.5), Some(200));
        assert!((used.cpu_seconds - 1.5).abs() < 1e-9);
        assert!((1000.0..1100.0).contains(&used.memory_byte_seconds), "{used:?}");
        assert_eq!(meter.read(None, None), Consumption::default());
        // A counter that began anew is not negative use.
        assert!(meter.read(Some(1.0), None).cpu_seconds.abs() < 1e-9);
        assert!((meter.read(Some(2.0), None).cpu_seconds - 0.5).abs() < 1e-9);
    }
}
