//! Work that would hold up the thread that serves all.

use tokio::sync::Semaphore;

use super::error::ApiError;

/// Threads that may block, for one kind of work. Work beyond their number waits.
pub(super) struct BlockingThreads(Semaphore);

impl BlockingThreads {
    pub(super) const fn new(most: usize) -> Self {
        Self(Semaphore::const_new(most))
    }

    /// Runs `work` on a thread, to its end even if the client leaves.
    pub(super) async fn run<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        // Never closed.
        let turn = self.0.acquire().await.map_err(|_| ApiError::panicked())?;
        let working = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        working.await.map_err(|_| ApiError::panicked())
    }
}
