//! Supervision of a run: the interruptions that end it early, and the outcome that follows.
//!
//! Every backend awaits [`RunLimits::reached`] beside its own streams, kills the program when it resolves, and passes
//! the end to [`ProgramExit::outcome`]. Our init in a container kills at the deadline by itself.

use std::time::Duration;

use ringfence_policy::Outcome;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Time for a killed program to be reported as ended. After that, its executor counts as faulty.
pub const KILL_TIMEOUT: Duration = Duration::from_secs(6);
/// Time for the caller to read the rest of the output after the program has ended.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Exit code of a run with an unknown outcome: that of an internal failure of Ringfence, never success.
const UNKNOWN_STATUS: i32 = 125;
/// Status of a program that SIGKILL ended.
pub const KILLED: i32 = -9;

/// A supervisor's reason to kill a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    TimedOut,
    Cancelled,
    DiskFull,
    /// The program's side violated the protocol of its channel.
    ProtocolViolation,
}

/// The limits that a supervisor enforces itself.
#[derive(Debug)]
pub struct RunLimits<C, D> {
    pub deadline: Instant,
    /// Resolves when the run is cancelled.
    pub cancellation: C,
    /// Resolves when a directory on the host exceeds the disk limit.
    pub disk_limit_exceeded: D,
}

impl<C: Future<Output = ()>, D: Future<Output = ()>> RunLimits<C, D> {
    /// Resolves when the program must be killed. Of several reasons at once, the first of [`Interruption`] counts.
    pub async fn reached(self) -> Interruption {
        tokio::select! {
            biased;
            () = sleep_until(self.deadline) => Interruption::TimedOut,
            () = self.cancellation => Interruption::Cancelled,
            () = self.disk_limit_exceeded => Interruption::DiskFull,
        }
    }
}

/// Resolves when the caller cancels.
pub async fn cancellation(cancelled: Option<watch::Receiver<bool>>) {
    match cancelled {
        // An error means that the caller has gone, which also cancels the request.
        Some(mut cancelled) => drop(cancelled.wait_for(|cancelled| *cancelled).await),
        None => std::future::pending().await,
    }
}

/// The end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramExit {
    /// Exit status, or a negative signal; `None` if unknown.
    pub status: Option<i32>,
    /// Set if the kernel killed one of its processes for lack of memory.
    pub out_of_memory: bool,
    pub interruption: Option<Interruption>,
}

impl ProgramExit {
    /// Returns the outcome and exit code of a result. A program that ended otherwise than by the supervisor's kill
    /// was not interrupted; one of unknown status was, if the supervisor tried.
    pub fn outcome(self) -> (Outcome, i32) {
        use Interruption::{Cancelled, DiskFull, ProtocolViolation, TimedOut};
        match (self.status, self.interruption) {
            (Some(KILLED) | None, Some(TimedOut)) => (Outcome::TimedOut, -1),
            (Some(KILLED) | None, Some(Cancelled)) => (Outcome::Cancelled, KILLED),
            (_, Some(ProtocolViolation)) | (None, None) => (Outcome::Unknown, UNKNOWN_STATUS),
            (Some(KILLED), _) if self.out_of_memory => (Outcome::MemoryExceeded, KILLED),
            (None, Some(DiskFull)) => (Outcome::Signalled, KILLED),
            (Some(status @ ..0), _) => (Outcome::Signalled, status),
            (Some(status), _) => (Outcome::Exited, status),
        }
    }
}

/// Decodes an exit status in which a fatal signal is 128 plus its number, as in shells.
pub fn from_shell(status: i64) -> i32 {
    match i32::try_from(status) {
        Ok(status @ 129..=192) => 128 - status,
        Ok(status) => status,
        Err(_) => UNKNOWN_STATUS,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn an_interruption_counts_if_it_killed_the_program() {
        use Interruption::{Cancelled, DiskFull, ProtocolViolation, TimedOut};
        let check = |status, out_of_memory, interruption, expected| {
            let exit = ProgramExit {
                status,
                out_of_memory,
                interruption,
            };
            assert_eq!(exit.outcome(), expected, "{exit:?}");
        };
        check(Some(0), false, None, (Outcome::Exited, 0));
        check(Some(255), true, None, (Outcome::Exited, 255));
        check(Some(-11), false, None, (Outcome::Signalled, -11));
        check(Some(-9), false, None, (Outcome::Signalled, -9));
        check(Some(-9), true, None, (Outcome::MemoryExceeded, -9));
        check(None, true, None, (Outcome::Unknown, 125));
        for (interruption, killed) in [
            (TimedOut, (Outcome::TimedOut, -1)),
            (Cancelled, (Outcome::Cancelled, -9)),
            (DiskFull, (Outcome::Signalled, -9)),
        ] {
            check(Some(-9), false, Some(interruption), killed);
            check(None, false, Some(interruption), killed);
            check(Some(0), true, Some(interruption), (Outcome::Exited, 0));
            check(Some(-15), true, Some(interruption), (Outcome::Signalled, -15));
        }
        check(Some(-9), true, Some(TimedOut), (Outcome::TimedOut, -1));
        check(Some(-9), true, Some(Cancelled), (Outcome::Cancelled, -9));
        check(Some(-9), true, Some(DiskFull), (Outcome::MemoryExceeded, -9));
        for status in [None, Some(0), Some(-9)] {
            check(status, true, Some(ProtocolViolation), (Outcome::Unknown, 125));
        }
    }

    #[test]
    fn a_shell_adds_128_to_a_signal() {
        let check = |status, expected| assert_eq!(from_shell(status), expected, "{status}");
        check(0, 0);
        check(128, 128);
        check(137, -9);
        check(139, -11);
        check(193, 193);
        check(255, 255);
        check(1 << 40, 125);
    }

    #[tokio::test]
    async fn of_several_reasons_the_first_counts() {
        // The timer counts in milliseconds.
        let passed = Instant::now() - Duration::from_secs(1);
        let later = passed + Duration::from_secs(3600);
        let all = RunLimits {
            deadline: passed,
            cancellation: ready(()),
            disk_limit_exceeded: ready(()),
        };
        assert_eq!(all.reached().await, Interruption::TimedOut);
        let two = RunLimits {
            deadline: later,
            cancellation: ready(()),
            disk_limit_exceeded: ready(()),
        };
        assert_eq!(two.reached().await, Interruption::Cancelled);
        let one = RunLimits {
            deadline: later,
            cancellation: pending(),
            disk_limit_exceeded: ready(()),
        };
        assert_eq!(one.reached().await, Interruption::DiskFull);
    }

    #[tokio::test]
    async fn a_caller_that_is_gone_has_cancelled() {
        let (sender, receiver) = watch::channel(false);
        drop(sender);
        cancellation(Some(receiver)).await;
    }
}
