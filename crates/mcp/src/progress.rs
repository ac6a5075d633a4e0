//! Sends progress notifications of a call.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_exec::local::Chunk;
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::sync::mpsc;

/// Interval of notifications, also before the first.
const EVERY: Duration = Duration::from_millis(500);

/// Maximum output in a notification, in bytes.
const MAX_TOLD: usize = 2048;

/// Sends the elapsed time or recent output to `peer` at intervals, until it disconnects.
pub(super) async fn send(peer: &Peer<RoleServer>, token: ProgressToken, since: Instant, recent: &Recent) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick resolves immediately.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let elapsed = since.elapsed().as_secs_f64();
        let message = recent
            .take()
            .or_else(|| recent.waiting())
            .unwrap_or_else(|| format!("running for {elapsed:.1} s"));
        let told = ProgressNotificationParam::new(token.clone(), elapsed).with_message(message);
        if peer.notify_progress(told).await.is_err() {
            return;
        }
    }
}

/// The tail of the output since the last notification, and the question that a call waits for.
#[derive(Debug, Default)]
pub(super) struct Recent {
    printed: Mutex<OutputTail>,
    waiting: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct OutputTail {
    bytes: Vec<u8>,
    cut: bool,
}

impl Recent {
    /// Collects output until the channel is closed.
    pub(super) async fn receive(&self, mut output: mpsc::Receiver<Chunk>) {
        while let Some(chunk) = output.recv().await {
            self.push(&chunk.bytes);
        }
    }

    /// Sets the question that the call waits for.
    pub(super) fn wait(&self, question: Option<String>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = question;
    }

    fn waiting(&self) -> Option<String> {
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn push(&self, bytes: &[u8]) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed.bytes.extend_from_slice(bytes);
        let over = printed.bytes.len().saturating_sub(MAX_TOLD);
        printed.bytes.drain(..over);
        printed.cut |= over > 0;
    }

    fn take(&self) -> Option<String> {
        let OutputTail { bytes, cut } =
            std::mem::take(&mut *self.printed.lock().unwrap_or_else(PoisonError::into_inner));
        let mark = if cut { "… " } else { "" };
        (!bytes.is_empty()).then(|| format!("{mark}{}", String::from_utf8_lossy(&bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_recent_output_is_told_once() {
        let recent = Recent::default();
        assert_eq!(recent.take(), None);
        recent.push(b"one\n");
        recent.push(b"two\n");
        assert_eq!(recent.take().unwrap(), "one\ntwo\n");
        assert_eq!(recent.take(), None);
        for _ in 0..100 {
            recent.push(&[b'x'; 1000]);
        }
        assert!(recent.printed.lock().unwrap().bytes.capacity() < 10 * MAX_TOLD);
        assert_eq!(recent.take().unwrap(), format!("… {}", "x".repeat(MAX_TOLD)));
    }
}
