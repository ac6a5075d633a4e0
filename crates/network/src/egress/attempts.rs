//! Records egress attempts.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_policy::{EgressAttempt, EgressFacts, Host, Refusal};
use tokio::net::TcpStream;

use super::connection::{ByteCount, Connection};

/// Limit of recorded attempts per call or run; further ones are only counted.
const MAX_KEPT: usize = 200;

/// Length limit of a malformed target in the log.
const MAX_SHOWN: usize = 100;

/// An attempt to reach a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The requested host and port; a malformed target is escaped and truncated.
    pub target: String,
    /// The address that was denied or connected to, if any. For the audit log, not for the guest.
    pub address: Option<IpAddr>,
    pub verdict: Verdict,
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The connection was made.
    Connected,
    /// The policy denied it, and nothing was sent.
    Refused(Refusal),
    /// The name resolves to no address.
    NotFound,
    /// The address did not accept the connection.
    Unreachable,
    /// The deadline was reached.
    TimedOut,
    /// The connection was made, and nothing was sent: the guest's first bytes were not for this host.
    Closed(String),
    /// The request names no valid host.
    Malformed(String),
}

/// The attempts of one call or run, in order, and the bytes of their connections.
#[derive(Debug, Default)]
pub struct AttemptLog {
    entries: Mutex<Entries>,
    bytes: ByteCount,
}

#[derive(Debug, Default)]
struct Entries {
    kept: Vec<Attempt>,
    left_off: usize,
}

impl AttemptLog {
    /// Returns the recorded attempts: the first two hundred.
    pub fn attempts(&self) -> Vec<Attempt> {
        self.entries().kept.clone()
    }

    /// Returns the number of further attempts.
    pub fn left_off(&self) -> usize {
        self.entries().left_off
    }

    /// Returns the number of bytes that were sent to hosts and received from them so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(super) fn counted(&self, stream: TcpStream) -> Connection {
        Connection::new(stream, self.bytes.clone())
    }

    /// Returns the attempts as reported in results, without addresses.
    pub fn facts(&self) -> EgressFacts {
        let entries = self.entries();
        EgressFacts {
            attempts: entries.kept.iter().map(Attempt::fact).collect(),
            left_off: entries.left_off as u64,
            bytes: self.bytes(),
        }
    }

    pub(super) fn record(&self, host: &Host, port: u16, address: Option<IpAddr>, verdict: Verdict) {
        self.push(|| Attempt {
            target: format!("{host}:{port}"),
            address,
            verdict,
        });
    }

    /// Records a malformed target with the reason.
    pub(super) fn malformed(&self, target: &str, why: &dyn fmt::Display) {
        self.push(|| Attempt {
            target: target
                .chars()
                .take(MAX_SHOWN)
                .flat_map(char::escape_debug)
                .collect(),
            address: None,
            verdict: Verdict::Malformed(why.to_string()),
        });
    }

    fn push(&self, attempt: impl FnOnce() -> Attempt) {
        let mut entries = self.entries();
        if entries.kept.len() == MAX_KEPT {
            entries.left_off = entries.left_off.saturating_add(1);
        } else {
            entries.kept.push(attempt());
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt {
    fn fact(&self) -> EgressAttempt {
        let (verdict, reason) = match &self.verdict {
            Verdict::Connected => ("connected", None),
            Verdict::Refused(refusal) => ("refused", Some(refusal.to_string())),
            Verdict::NotFound => ("not_found", None),
            Verdict::Unreachable => ("unreachable", None),
            Verdict::TimedOut => ("timed_out", None),
            Verdict::Closed(why) => ("closed", Some(why.clone())),
            Verdict::Malformed(why) => ("malformed", Some(why.clone())),
        };
        EgressAttempt {
            target: self.target.clone(),
            verdict: verdict.to_owned(),
            reason,
        }
    }

    /// Formats the attempt with its address, for the audit log.
    pub fn with_address(&self) -> String {
        match self.address {
            Some(address) => format!("{self} ({address})"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.target, self.verdict)
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
            Self::Closed(why) => write!(f, "closed: {why}"),
            Self::Malformed(why) => write!(f, "malformed: {why}"),
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
