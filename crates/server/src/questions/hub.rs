//! Broadcasts changes to open pages and to clients that watch: one look-out for all of them, and none while nobody watches.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use ringfence_records::approval::{Error, Id, Listener, State};
use ringfence_records::audit::{self, Mark};
use tokio::sync::watch;

use super::{MAX_PAST, Reach};
use crate::sources::Sources;

/// Maximum number of open pages, and of streams of clients with the same reach.
pub(crate) const MAX_VIEWERS: usize = 16;

/// Delay before a retry if the store could not be read.
const PAUSE: Duration = Duration::from_secs(1);

/// Revision counters, sent to pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Revisions {
    /// Incremented when an approval request is created or changes its state.
    pub(crate) approvals: u64,
    /// Pending approval requests.
    pub(crate) waiting: Vec<Id>,
    /// Incremented when a tool was used.
    pub(crate) runs: u64,
}

/// State of the sources at the last poll.
#[derive(Debug, PartialEq)]
struct SourceState {
    waiting: Vec<Id>,
    newest: Vec<(Id, State)>,
    log: Option<Mark>,
}

/// Somebody who watches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watcher {
    /// A page of the console.
    Page,
    /// A client of the API.
    Client(Reach),
}

impl Watcher {
    const fn reach(&self) -> &Reach {
        match self {
            Self::Page => &Reach::All,
            Self::Client(reach) => reach,
        }
    }
}

/// The number of viewers of each kind that has some.
type Viewers = BTreeMap<Watcher, usize>;

/// The broadcaster of changes.
#[derive(Debug)]
pub(crate) struct Hub {
    sources: Sources,
    viewers: watch::Sender<Viewers>,
    news: watch::Sender<Revisions>,
    /// Those that are registered as people who can be asked.
    heard: watch::Sender<BTreeSet<Reach>>,
}

/// An open page or stream, until dropped.
#[derive(Debug)]
pub(crate) struct Viewer {
    watcher: Watcher,
    viewers: watch::Sender<Viewers>,
    /// Changes to send to the viewer.
    pub(crate) news: watch::Receiver<Revisions>,
    heard: watch::Receiver<BTreeSet<Reach>>,
}

impl Viewer {
    /// Resolves once the viewer counts as a person who can be asked.
    pub(crate) async fn is_registered(&mut self) {
        let reach = self.watcher.reach();
        // An error means that the server ends.
        let _ = self.heard.wait_for(|heard| heard.contains(reach)).await;
    }

    /// Resolves when something has changed.
    pub(crate) async fn changed(&mut self) {
        if self.news.changed().await.is_err() {
            // The server ends, and the connection with it.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.viewers.send_modify(|viewers| {
            if let Some(count) = viewers.get_mut(&self.watcher) {
                *count = count.saturating_sub(1);
            }
            viewers.retain(|_, count| *count > 0);
        });
    }
}

impl Hub {
    pub(crate) fn new(sources: Sources) -> Self {
        Self {
            sources,
            viewers: watch::Sender::default(),
            news: watch::Sender::default(),
            heard: watch::Sender::default(),
        }
    }

    pub(crate) const fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Registers a viewer, unless there are too many of its kind.
    pub(crate) fn enter(&self, watcher: Watcher) -> Option<Viewer> {
        let entered = self.viewers.send_if_modified(|viewers| {
            let count = viewers.get(&watcher).copied().unwrap_or_default();
            let free = count < MAX_VIEWERS;
            if free {
                viewers.insert(watcher.clone(), count + 1);
            }
            free
        });
        entered.then(|| Viewer {
            watcher,
            viewers: self.viewers.clone(),
            news: self.news.subscribe(),
            heard: self.heard.subscribe(),
        })
    }

    /// Watches for changes while somebody does.
    pub(crate) async fn watch(&self) -> Infallible {
        let mut viewers = self.viewers.subscribe();
        loop {
            // Cannot fail: `self` holds the sender.
            let _ = viewers.wait_for(|viewers| !viewers.is_empty()).await;
            tokio::select! {
                () = self.keep_registered(&mut viewers) => {}
                never = self.look_out() => match never {},
            }
        }
    }

    /// Keeps listeners registered for all viewers, until the last has gone: each is a person who can be asked.
    async fn keep_registered(&self, viewers: &mut watch::Receiver<Viewers>) {
        let mut listeners: BTreeMap<Reach, Listener> = BTreeMap::new();
        loop {
            let wanted: BTreeSet<Reach> = {
                let viewers = viewers.borrow_and_update();
                viewers.keys().map(|watcher| watcher.reach().clone()).collect()
            };
            self.register(&mut listeners, &wanted).await;
            self.heard.send_replace(listeners.keys().cloned().collect());
            if wanted.is_empty() {
                return;
            }
            // A store that could not be written is tried again.
            let timeout = match listeners.len() == wanted.len() {
                true => Duration::MAX,
                false => PAUSE,
            };
            // Cannot fail: `self` holds the sender.
            if let Ok(Err(_)) = tokio::time::timeout(timeout, viewers.changed()).await {
                return;
            }
        }
    }

    /// Registers the listeners that are missing, and removes the others.
    async fn register(&self, listeners: &mut BTreeMap<Reach, Listener>, wanted: &BTreeSet<Reach>) {
        let service = &self.sources.approvals;
        let gone: Vec<Reach> = listeners
            .keys()
            .filter(|reach| !wanted.contains(reach))
            .cloned()
            .collect();
        let gone: Vec<Listener> = gone.iter().filter_map(|reach| listeners.remove(reach)).collect();
        // Before they leave: whoever is told of a listener finds it.
        self.heard.send_replace(listeners.keys().cloned().collect());
        for listener in gone {
            // If this fails, the end of the server removes the listener.
            let _ = service.leave(listener).await;
        }
        for reach in wanted {
            // If this fails, nobody is asked in vain.
            if !listeners.contains_key(reach)
                && let Ok(listener) = service.listen(None, reach.audience()).await
            {
                listeners.insert(reach.clone(), listener);
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

    async fn look(&self) -> Result<SourceState, Error> {
        let service = &self.sources.approvals;
        let waiting = service.waiting().await?;
        let newest = service.newest(MAX_PAST).await?;
        Ok(SourceState {
            waiting: waiting.into_iter().map(|request| request.id).collect(),
            newest: newest
                .into_iter()
                .map(|request| (request.id, request.state))
                .collect(),
            log: audit::mark(&self.sources.audit),
        })
    }

    fn send(&self, before: Option<&SourceState>, now: &SourceState) {
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
