//! What was tried on the way out.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_policy::{Host, Refusal};

/// How many attempts are kept of one call or run; the rest is only counted.
const MAX_KEPT: usize = 200;

/// One attempt to reach a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The host that was asked for.
    pub host: Host,
    /// The port that was asked for.
    pub port: u16,
    /// The address that was refused or connected to, if it came to that. For the audit, and not for the guest.
    pub address: Option<IpAddr>,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There was a connection.
    Connected,
    /// The policy did not allow it, and nothing was sent.
    Refused(Refusal),
    /// The name has no address.
    NotFound,
    /// The address did not take the connection.
    Unreachable,
    /// The time was over.
    TimedOut,
}

/// The attempts of one call or run, in their order.
#[derive(Debug, Default)]
pub struct AttemptLog {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    kept: Vec<Attempt>,
    left_off: usize,
}

impl AttemptLog {
    /// The attempts that were kept: the first two hundred.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.entries().kept.clone()
    }

    /// How many more there were.
    pub fn left_off(&self) -> usize {
        self.entries().left_off
    }

    pub(super) fn record(&self, host: &Host, port: u16, address: Option<IpAddr>, verdict: Verdict) {
        let mut entries = self.entries();
        if entries.kept.len() == MAX_KEPT {
            entries.left_off = entries.left_off.saturating_add(1);
            return;
        }
        entries.kept.push(Attempt {
            host: host.clone(),
            port,
            address,
            verdict,
        });
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt {
    /// The attempt with the address that it came to, for the audit log.
    pub fn with_address(&self) -> String {
        match self.address {
            Some(address) => format!("{self} ({address})"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} {}", self.host, self.port, self.verdict)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("connected"),
            Self::Refused(refusal) => write!(f, "refused: {refusal}"),
            Self::NotFound => f.write_str("not found"),
            Self::Unreachable => f.write_str("unreachable"),
            Self::TimedOut => f.write_str("timed out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_first_and_counts_the_rest() {
        let log = AttemptLog::default();
        let host: Host = "a.test".parse().unwrap();
        for port in 1..=300 {
            log.record(&host, port, None, Verdict::NotFound);
        }
        let kept = log.attempts();
        assert_eq!((kept.len(), log.left_off()), (200, 100));
        assert_eq!(kept.last().unwrap().to_string(), "a.test:200 not found");
    }
}
