//! Detects idle streams.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

/// A counter of transfers on a stream.
#[derive(Debug, Default)]
pub(super) struct Activity(AtomicU64);

impl Activity {
    fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Resolves once nothing was transferred for at least `patience`, and at most twice as long.
    pub(super) async fn ceases(&self, patience: Duration) {
        let mut seen = None;
        loop {
            let count = self.0.load(Ordering::Relaxed);
            if seen.replace(count) == Some(count) {
                return;
            }
            sleep(patience).await;
        }
    }
}

/// A stream with an activity counter.
#[derive(Debug)]
pub(super) struct Watched<S> {
    inner: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, activity: Arc<Activity>) -> Self {
        Self { inner, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        self.activity.note();
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write(context, bytes));
        self.activity.note();
        Poll::Ready(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_ends_and_bytes_go_on() {
        let (mut near, far) = tokio::io::duplex(16);
        let activity = Arc::new(Activity::default());
        let mut far = Watched::new(far, Arc::clone(&activity));
        let since = Instant::now();
        let patience = Duration::from_secs(10);
        let talk = async {
            for _ in 0..5 {
                tokio::time::advance(Duration::from_secs(6)).await;
                near.write_all(b"x").await.unwrap();
                far.read_exact(&mut [0]).await.unwrap();
            }
        };
        tokio::join!(talk, activity.ceases(patience));
        let passed = since.elapsed().as_secs();
        assert!((40..=50).contains(&passed), "{passed}");
    }
}
