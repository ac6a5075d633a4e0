//! Why sessions ended, for those who ask for them later.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use ringfence_policy::{Outcome, Timeout};

use super::Key;

/// How many endings are remembered.
const MAX_REMEMBERED: usize = 256;

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Reason {
    /// Nobody used it.
    Idle(Duration),
    /// It was there for as long as it may be.
    Old(Duration),
    TimedOut,
    Memory,
    Disk,
    Cancelled,
    Exited(i32),
    Signalled(i32),
    /// What it said on its control channel was no answer.
    Broken,
    /// Its launcher has gone.
    Lost,
    /// It was idle, and another scope had fewer than its share.
    Displaced,
    /// Somebody wanted that, or the engine ends.
    Removed,
}

impl Reason {
    /// Why a session ended that ended with an evaluation.
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

    /// Why a session ended whose process had this status, if anybody knows.
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

/// The last sessions that ended otherwise than by somebody's wish.
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

    /// Why the last session of this name ended, told once.
    pub(super) fn take(&mut self, key: &Key) -> Option<Reason> {
        let index = self.0.iter().position(|(other, _)| other == key)?;
        self.0.remove(index).map(|(_, reason)| reason)
    }
}
