//! Work under way, which a server that is told to end waits for.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::watch;

use super::error::ApiError;
use super::state::Api;
use super::stream;

/// Counts the work under way and, once the server drains, lets no more begin.
#[derive(Debug)]
pub(super) struct Drain(watch::Sender<Progress>);

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    at_work: usize,
    is_draining: bool,
}

/// Work under way: a run, a call of a tool, a process, piece of code or content of files that its client waits for, or the build of a
/// template. It ends on drop.
#[derive(Debug)]
pub(crate) struct Work(watch::Sender<Progress>);

impl Default for Drain {
    fn default() -> Self {
        Self(watch::Sender::new(Progress::default()))
    }
}

impl Drain {
    /// Begins work.
    ///
    /// # Errors
    /// If the server drains.
    pub(super) fn begin(&self) -> Result<Work, ApiError> {
        let has_begun = self.0.send_if_modified(|state| {
            if !state.is_draining {
                state.at_work += 1;
            }
            !state.is_draining
        });
        match has_begun {
            true => Ok(Work(self.0.clone())),
            false => Err(ApiError::draining()),
        }
    }

    /// Returns `true` once no more work may begin.
    pub(super) fn is_draining(&self) -> bool {
        self.0.borrow().is_draining
    }

    /// Lets no more work begin. Returns the number of pieces under way.
    pub(super) fn start(&self) -> usize {
        self.0.send_modify(|state| state.is_draining = true);
        self.0.borrow().at_work
    }

    /// Waits until no work is under way.
    pub(super) async fn idle(&self) {
        // An error is impossible: the sender is here.
        let _ = self.0.subscribe().wait_for(|state| state.at_work == 0).await;
    }
}

/// Answers a request whose work is under way until its answer is sent.
pub(super) async fn until_sent(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    match api.drain.begin() {
        Ok(work) => stream::holding(next.run(request).await, work),
        Err(error) => error.into_response(),
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.at_work -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_drain_refuses_new_work_and_ends_with_the_last_piece_of_the_old() {
        let drain = Drain::default();
        let (one, other) = (drain.begin().unwrap(), drain.begin().unwrap());
        assert_eq!(drain.start(), 2);
        assert!(drain.is_draining());
        assert_eq!(drain.begin().unwrap_err().retry_after(), Some(1));
        drop(one);
        assert!(drain.idle().now_or_never().is_none());
        drop(other);
        assert!(drain.idle().now_or_never().is_some());
    }
}
