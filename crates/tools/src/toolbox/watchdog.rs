//! Watchdog for tools that ignore their deadline: a hung container engine or launcher.

use std::time::{Duration, Instant};

use ringfence_exec::supervise::cancellation;
use tokio::sync::watch;

use super::{ErrorKind, ToolError};

/// Grace period of a tool after its deadline.
const GRACE: Duration = Duration::from_secs(10);

/// Awaits a tool that enforces its own deadline, and fails if it has not ended [`GRACE`] after that or after
/// cancellation.
pub(super) async fn awaited<T>(
    tool: &str,
    deadline: Instant,
    cancelled: Option<watch::Receiver<bool>>,
    running: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    let overdue = async {
        tokio::select! {
            () = tokio::time::sleep_until(deadline.into()) => {}
            () = cancellation(cancelled) => {}
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        done = running => done,
        () = overdue => Err(ToolError::new(
            ErrorKind::Internal,
            format!("`{tool}` has not ended though its time was up; nothing is known of what it ran"),
            "see whether the server still answers, or has more to do than it can; start it again",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    fn deadline() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_by_itself_is_given_up_and_not_called_a_success() {
        let error = awaited::<()>("x", deadline(), None, pending()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Internal);
        let (cancel, cancelled) = watch::channel(false);
        cancel.send_replace(true);
        let forever = Instant::now() + Duration::from_secs(u32::MAX.into());
        let error = awaited::<()>("x", forever, Some(cancelled), pending()).await;
        assert_eq!(error.unwrap_err().kind, ErrorKind::Internal);
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_a_little_late_is_told_as_it_was() {
        let late = async {
            tokio::time::sleep_until((deadline() + GRACE / 2).into()).await;
            Ok(1)
        };
        assert_eq!(awaited("x", deadline(), None, late).await, Ok(1));
        assert_eq!(awaited("x", Instant::now(), None, ready(Ok(2))).await, Ok(2));
    }
}
