//! Reasons for the end of sessions, reported to the next caller of the name.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use ringfence_policy::{Outcome, Scope, SessionId, Timeout};

/// Session names are unique within a scope.
pub(in super::super) type Key = (Scope, SessionId);

/// Maximum number of remembered reasons.
const MAX_REMEMBERED: usize = 256;

/// Cause of a session's end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reason {
    /// Idle timeout.
    Idle(Duration),
    /// End of the session's lifetime.
    Old(Duration),
    TimedOut,
    Memory,
    Disk,
    Cancelled,
    Exited(i32),
    Signalled(i32),
    /// The session violated the protocol of its control channel.
    Broken,
    /// The launcher died.
    Lost,
    /// The session was idle, and evicted for a scope that had fewer sessions than its share.
    Displaced,
    /// Removed by request, or at the server's shutdown.
    Removed,
}

impl Reason {
    /// Returns the reason for a session that ended with an evaluation.
    pub(super) fn of(outcome: Outcome, exit_code: i32) -> Self {
        match outcome {
            Outcome::TimedOut => Self::TimedOut,
            Outcome::MemoryExceeded => Self::Memory,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Signalled => Self::Signalled(-exit_code),
            Outcome::Exited => Self::Exited(exit_code),
            Outcome::Blocked | Outcome::Unknown => Self::Lost,
        }
    }

    /// Returns the reason for a session whose process exited with this status, if known.
    pub(super) fn of_status(status: Option<i32>) -> Self {
        match status {
            None => Self::Lost,
            Some(status @ ..0) => Self::Signalled(-status),
            Some(status) => Self::Exited(status),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |duration: &Duration| Timeout::try_from(duration.as_secs_f64()).map(|time| time.to_string());
        match self {
            Self::Idle(limit) => write!(f, "it was not used for {}", shown(limit).unwrap_or_default()),
            Self::Old(limit) => write!(
                f,
                "it was as old as a session may be ({})",
                shown(limit).unwrap_or_default()
            ),
            Self::TimedOut => f.write_str("an evaluation timed out"),
            Self::Memory => f.write_str("it exceeded its memory limit"),
            Self::Disk => f.write_str("it exceeded its disk limit"),
            Self::Cancelled => f.write_str("an evaluation was cancelled"),
            Self::Exited(status) => write!(f, "its process ended with status {status}"),
            Self::Signalled(signal) => write!(f, "signal {signal} killed its process"),
            Self::Broken => f.write_str("it broke its control channel"),
            Self::Lost => f.write_str("the executor broke"),
            Self::Displaced => f.write_str("another user needed its place"),
            Self::Removed => f.write_str("it was removed"),
        }
    }
}

/// The last sessions that ended without a request to remove them.
#[derive(Debug, Default)]
pub(super) struct Endings(VecDeque<(Key, Reason)>);

impl Endings {
    pub(super) fn remember(&mut self, key: &Key, reason: Reason) {
        self.0.retain(|(other, _)| other != key);
        if reason == Reason::Removed {
            return;
        }
        self.0.push_back((key.clone(), reason));
        if self.0.len() > MAX_REMEMBERED {
            self.0.pop_front();
        }
    }

    /// Takes the reason for the end of the last session of this name.
    pub(super) fn take(&mut self, key: &Key) -> Option<Reason> {
        let index = self.0.iter().position(|(other, _)| other == key)?;
        self.0.remove(index).map(|(_, reason)| reason)
    }
}
