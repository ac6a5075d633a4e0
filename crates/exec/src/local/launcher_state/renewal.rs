//! Decides when a zygote is replaced.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Idle time of a launcher before its zygote is replaced.
const REST: std::time::Duration = std::time::Duration::from_secs(1);

/// A fork counter that signals when a zygote is due for replacement.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    pub(super) forks: AtomicU64,
    pub(super) after: AtomicU64,
    pub(super) due: Notify,
    /// Number of guests that have run a program.
    pub(super) uses: AtomicU64,
    pub(super) used: Notify,
    /// Signalled when no zygote will be started any more.
    pub(super) given_up: Notify,
}

impl Renewal {
    /// Counts a guest that gets a program, which can learn all state that its zygote's workers share.
    pub(super) fn note_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.used.notify_one();
    }

    /// Resolves after an idle period that follows the use of guests, so that replacing the zygote delays no
    /// run.
    pub(super) async fn rested(&self) {
        self.used.notified().await;
        let mut uses = None;
        while uses != Some(self.uses.load(Ordering::Relaxed)) {
            uses = Some(self.uses.load(Ordering::Relaxed));
            tokio::time::sleep(REST).await;
        }
    }

    pub(super) fn count(&self) {
        let after = self.after.load(Ordering::Relaxed);
        if after > 0 && self.forks.fetch_add(1, Ordering::Relaxed) + 1 >= after {
            self.forks.store(0, Ordering::Relaxed);
            self.due.notify_one();
        }
    }
}
