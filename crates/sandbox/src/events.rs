//! Events in the lives of sandboxes, for each owner.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use ringfence_policy::Scope;
use ringfence_policy::timestamp::rfc3339;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::id::SandboxId;
use super::lock::lock;
use super::registry::Registry;
use super::sandbox::Sandbox;

/// Events that a slow reader can be behind. It loses older ones.
const BEHIND: usize = 256;

/// The end of a sandbox at its expiry, as a reason.
pub(crate) const EXPIRED: &str = "it has expired";
/// The end of a sandbox that its owner removed, as a reason.
pub(crate) const REMOVED: &str = "it was removed";

/// The type of a [`LifeEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LifeEventType {
    Created,
    Paused,
    Resumed,
    /// The time of its expiry was set anew.
    ExpiryChanged,
    /// Others were made with its files.
    Forked,
    /// Its files were kept as a snapshot.
    SnapshotCreated,
    /// It ended at its expiry.
    Expired,
    /// Its owner ended it.
    Removed,
    /// It ended for another reason.
    Ended,
}

/// An event in the life of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LifeEvent {
    #[serde(rename = "type")]
    pub kind: LifeEventType,
    /// Time of the event.
    pub time: String,
    /// Id of the sandbox.
    pub sandbox: SandboxId,
    /// Name of the sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Cause of an end, or of a pause that nobody asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of its expiry from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Ids of the sandboxes that were made with its files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<SandboxId>,
    /// Id of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

impl LifeEventType {
    /// Returns the type of an end, by its reason.
    pub(crate) fn of_end(why: &str) -> Self {
        match why {
            EXPIRED => Self::Expired,
            REMOVED => Self::Removed,
            _ => Self::Ended,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::ExpiryChanged => "expiry_changed",
            Self::Forked => "forked",
            Self::SnapshotCreated => "snapshot_created",
            Self::Expired => "expired",
            Self::Removed => "removed",
            Self::Ended => "ended",
        }
    }
}

impl LifeEvent {
    /// Creates an event of now.
    pub(crate) fn new(kind: LifeEventType, sandbox: &Sandbox) -> Self {
        Self::of(
            kind,
            sandbox.id().clone(),
            sandbox.request().name.as_ref().map(ToString::to_string),
        )
    }

    fn of(kind: LifeEventType, sandbox: SandboxId, name: Option<String>) -> Self {
        Self {
            kind,
            time: rfc3339(SystemTime::now()),
            sandbox,
            name,
            reason: None,
            expires_at: None,
            copies: Vec::new(),
            snapshot: None,
        }
    }

    /// Creates the last event of a sandbox.
    pub(crate) fn end(sandbox: SandboxId, name: Option<String>, why: &str) -> Self {
        Self::of(LifeEventType::of_end(why), sandbox, name).because(why)
    }

    pub(crate) fn because(self, reason: &str) -> Self {
        let reason = Some(reason.to_owned());
        Self { reason, ..self }
    }

    pub(crate) fn until(self, expiry: SystemTime) -> Self {
        let expires_at = Some(rfc3339(expiry));
        Self { expires_at, ..self }
    }

    const fn is_end(&self) -> bool {
        matches!(
            self.kind,
            LifeEventType::Expired | LifeEventType::Removed | LifeEventType::Ended
        )
    }
}

/// The readers of each owner's events.
#[derive(Debug, Default)]
pub(crate) struct Readers(BTreeMap<Scope, broadcast::Sender<LifeEvent>>);

impl Readers {
    pub(crate) fn send(&mut self, scope: &Scope, event: LifeEvent) {
        // An error means that nobody reads any more.
        if let Some(sender) = self.0.get(scope)
            && sender.send(event).is_err()
        {
            self.0.remove(scope);
        }
    }

    fn subscribe(&mut self, scope: &Scope) -> broadcast::Receiver<LifeEvent> {
        // Those whose readers have gone, and that had no event since.
        self.0.retain(|_, sender| sender.receiver_count() > 0);
        let new = || broadcast::Sender::new(BEHIND);
        self.0.entry(scope.clone()).or_insert_with(new).subscribe()
    }

    /// Ends all streams of events.
    pub(crate) fn close(&mut self) {
        self.0.clear();
    }
}

/// A stream of an owner's events, from its creation on.
#[derive(Debug)]
pub struct LifeEvents {
    events: broadcast::Receiver<LifeEvent>,
    /// The only sandbox of which there are events; `None` for all.
    only: Option<SandboxId>,
    scope: Scope,
    state: Arc<Mutex<Registry>>,
    has_lost: bool,
    /// Set at the end of the only sandbox.
    is_over: bool,
}

/// A part of a stream of events.
#[derive(Debug, PartialEq, Eq)]
pub enum LifeItem {
    Event(Box<LifeEvent>),
    /// Number of events, of all the owner's sandboxes, that came before the reader had read as many as are kept.
    Lost(u64),
}

impl LifeEvents {
    /// Creates a stream of the events of all sandboxes of a scope.
    pub(crate) fn new(scope: &Scope, state: Arc<Mutex<Registry>>) -> Self {
        let events = lock(&state).readers.subscribe(scope);
        Self {
            events,
            only: None,
            scope: scope.clone(),
            state,
            has_lost: false,
            is_over: false,
        }
    }

    pub(crate) fn only_of(&mut self, sandbox: SandboxId) {
        self.only = Some(sandbox);
    }

    /// Returns the only sandbox of which there are events.
    pub const fn only(&self) -> Option<&SandboxId> {
        self.only.as_ref()
    }

    /// Returns the next event; `None` at the end of the only sandbox, or of the server. Cancel safe.
    pub async fn next(&mut self) -> Option<LifeItem> {
        while !self.is_over {
            if self.has_lost
                && self.events.is_empty()
                && let Some(end) = self.missed_end()
            {
                return Some(end);
            }
            match self.events.recv().await {
                Ok(event) if self.only.as_ref().is_none_or(|only| *only == event.sandbox) => {
                    self.is_over = self.only.is_some() && event.is_end();
                    return Some(LifeItem::Event(Box::new(event)));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => {
                    self.has_lost = true;
                    return Some(LifeItem::Lost(count));
                }
                Err(RecvError::Closed) => return None,
            }
        }
        None
    }

    /// Returns the end of the only sandbox if its event was lost.
    fn missed_end(&mut self) -> Option<LifeItem> {
        let only = self.only.clone()?;
        let why = lock(&self.state).end_of(&self.scope, &only)?;
        self.is_over = true;
        Some(LifeItem::Event(Box::new(LifeEvent::end(only, None, &why))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_learns_that_events_were_lost_and_never_another_owners() {
        let (own, other): (Scope, Scope) = (Scope::local(), "bob".parse().unwrap());
        let state = Arc::<Mutex<Registry>>::default();
        let mut events = LifeEvents::new(&own, Arc::clone(&state));
        let id = || SandboxId::random().unwrap();
        let send = |scope: &Scope, event| lock(&state).readers.send(scope, event);
        for _ in 0..BEHIND + 44 {
            send(&own, LifeEvent::of(LifeEventType::Resumed, id(), None));
            send(&other, LifeEvent::of(LifeEventType::Paused, id(), None));
        }
        assert_eq!(events.next().await, Some(LifeItem::Lost(44)));
        for _ in 0..BEHIND {
            let Some(LifeItem::Event(event)) = events.next().await else {
                panic!("no event")
            };
            assert_eq!(event.kind, LifeEventType::Resumed);
        }
        // The end of the only sandbox is never lost.
        let gone = id();
        events.only_of(gone.clone());
        send(&own, LifeEvent::end(gone.clone(), None, REMOVED));
        for _ in 0..BEHIND {
            send(&own, LifeEvent::of(LifeEventType::Resumed, id(), None));
        }
        assert_eq!(events.next().await, Some(LifeItem::Lost(1)));
        let Some(LifeItem::Event(end)) = events.next().await else {
            panic!("no end")
        };
        assert_eq!((end.kind, end.sandbox), (LifeEventType::Ended, gone));
        assert_eq!(events.next().await, None);
        lock(&state).readers.close();
    }
}
