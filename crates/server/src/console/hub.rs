//! Broadcasts changes to open pages: one watcher for all of them, and none while no page is open.

use std::convert::Infallible;
use std::time::Duration;

use ringfence_records::approval::{Error, Id, State};
use ringfence_records::audit::{self, Mark};
use tokio::sync::watch;

use super::Sources;
use super::approvals::MAX_SHOWN;

/// Maximum number of open pages.
pub(super) const MAX_VIEWERS: usize = 16;

/// Delay before a retry if the store could not be read.
const PAUSE: Duration = Duration::from_secs(1);

/// Revision counters, sent to pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Revisions {
    /// Incremented when an approval request is created or changes its state.
    pub(super) approvals: u64,
    /// Pending approval requests.
    pub(super) waiting: Vec<Id>,
    /// Incremented when a tool was used.
    pub(super) runs: u64,
}

/// State of the sources at the last poll.
#[derive(Debug, PartialEq)]
struct Seen {
    waiting: Vec<Id>,
    newest: Vec<(Id, State)>,
    log: Option<Mark>,
}

/// The watcher of changes.
#[derive(Debug)]
pub(super) struct Hub {
    sources: Sources,
    viewers: watch::Sender<usize>,
    news: watch::Sender<Revisions>,
}

/// An open page, until dropped.
#[derive(Debug)]
pub(super) struct Viewer {
    viewers: watch::Sender<usize>,
    /// Changes to send to the page.
    pub(super) news: watch::Receiver<Revisions>,
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.viewers.send_modify(|count| *count = count.saturating_sub(1));
    }
}

impl Hub {
    pub(super) fn new(sources: Sources) -> Self {
        Self {
            sources,
            viewers: watch::Sender::new(0),
            news: watch::Sender::default(),
        }
    }

    /// Registers a page, unless there are too many.
    pub(super) fn enter(&self) -> Option<Viewer> {
        let entered = self.viewers.send_if_modified(|count| {
            let free = *count < MAX_VIEWERS;
            *count += usize::from(free);
            free
        });
        entered.then(|| Viewer {
            viewers: self.viewers.clone(),
            news: self.news.subscribe(),
        })
    }

    /// Watches for changes while a page is open.
    pub(super) async fn watch(&self) -> Infallible {
        let mut viewers = self.viewers.subscribe();
        loop {
            // Cannot fail: `self` holds the sender.
            let _ = viewers.wait_for(|count| *count > 0).await;
            // An open page is a person who can be asked.
            let listener = self.sources.approvals.listen(None, None).await;
            let last_has_gone = viewers.wait_for(|count| *count == 0);
            tokio::select! {
                _ = last_has_gone => {}
                never = self.look_out() => match never {},
            }
            if let Ok(listener) = listener {
                // If this fails, the end of the server removes the listener.
                let _ = self.sources.approvals.leave(listener).await;
            }
        }
    }

    async fn look_out(&self) -> Infallible {
        let mut changes = self.sources.approvals.changes();
        let mut seen = None;
        loop {
            let looked = match changes.next().await {
                Ok(()) => self.look().await,
                Err(error) => Err(error),
            };
            match looked {
                Ok(now) => {
                    self.send(seen.as_ref(), &now);
                    seen = Some(now);
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    async fn look(&self) -> Result<Seen, Error> {
        let service = &self.sources.approvals;
        let waiting = service.waiting().await?;
        let newest = service.newest(MAX_SHOWN).await?;
        Ok(Seen {
            waiting: waiting.into_iter().map(|request| request.id).collect(),
            newest: newest
                .into_iter()
                .map(|request| (request.id, request.state))
                .collect(),
            log: audit::mark(&self.sources.audit),
        })
    }

    fn send(&self, before: Option<&Seen>, now: &Seen) {
        // A page that opened before the first poll may have seen an older state.
        let asked =
            before.is_none_or(|before| (&before.waiting, &before.newest) != (&now.waiting, &now.newest));
        let used = before.is_none_or(|before| before.log != now.log);
        if asked || used {
            self.news.send_modify(|news| {
                news.approvals += u64::from(asked);
                news.runs += u64::from(used);
                news.waiting.clone_from(&now.waiting);
            });
        }
    }
}
