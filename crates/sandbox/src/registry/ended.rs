//! Sandboxes that have ended, remembered for a while.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use ringfence_policy::Scope;
use ringfence_policy::timestamp::rfc3339;

use crate::events::LifeEventType;
use crate::id::SandboxId;

/// Ends that are remembered of one owner.
const MOST: usize = 256;
/// Owners whose ends are remembered.
const MAX_OWNERS: usize = 256;
/// Time for which an end is remembered.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// The end of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxEnd {
    pub(crate) why: String,
    time: SystemTime,
}

impl SandboxEnd {
    /// Creates the end of a sandbox that ends now.
    pub(crate) fn now(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            time: SystemTime::now(),
        }
    }

    /// Returns the type of its event.
    pub(crate) fn kind(&self) -> LifeEventType {
        LifeEventType::of_end(&self.why)
    }
}

impl fmt::Display for SandboxEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = rfc3339(self.time);
        match self.kind() {
            LifeEventType::Expired => write!(f, "expired at {time}"),
            LifeEventType::Removed => write!(f, "was removed at {time}"),
            _ => write!(f, "ended at {time}: {}", self.why),
        }
    }
}

/// The last sandboxes of each owner that have ended, the newest last.
#[derive(Debug, Default)]
pub(super) struct EndedSandboxes(BTreeMap<Scope, VecDeque<Ended>>);

#[derive(Debug)]
struct Ended {
    id: SandboxId,
    name: Option<String>,
    end: SandboxEnd,
    /// By the clock that nobody sets.
    at: Instant,
}

impl EndedSandboxes {
    pub(super) fn remember(&mut self, scope: Scope, id: SandboxId, name: Option<String>, end: SandboxEnd) {
        self.sweep();
        if !self.0.contains_key(&scope) && self.0.len() >= MAX_OWNERS {
            let newest = |ended: &VecDeque<Ended>| ended.back().map(|ended| ended.at);
            let oldest = self.0.iter().min_by_key(|(_, ended)| newest(ended));
            if let Some(oldest) = oldest.map(|(scope, _)| scope.clone()) {
                self.0.remove(&oldest);
            }
        }
        let own = self.0.entry(scope).or_default();
        own.push_back(Ended {
            id,
            name,
            end,
            at: Instant::now(),
        });
        while own.len() > MOST {
            own.pop_front();
        }
    }

    /// Returns the end of the owner's last sandbox with this id or name.
    pub(super) fn find(&self, scope: &Scope, name: &str) -> Option<&SandboxEnd> {
        let is_it = |ended: &&Ended| {
            is_fresh(ended) && (ended.id.as_str() == name || ended.name.as_deref() == Some(name))
        };
        self.0
            .get(scope)?
            .iter()
            .rev()
            .find(is_it)
            .map(|ended| &ended.end)
    }

    /// Forgets the sandboxes of an owner.
    pub(super) fn forget(&mut self, scope: &Scope) {
        self.0.remove(scope);
    }

    fn sweep(&mut self) {
        self.0.retain(|_, ended| {
            while ended.front().is_some_and(|oldest| !is_fresh(&oldest)) {
                ended.pop_front();
            }
            !ended.is_empty()
        });
    }
}

fn is_fresh(ended: &&Ended) -> bool {
    ended.at.elapsed() < REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{EXPIRED, REMOVED};

    #[test]
    fn the_last_ends_of_each_owner_are_remembered_for_an_hour() {
        let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let mut ended = EndedSandboxes::default();
        let id = || SandboxId::random().unwrap();
        let first = id();
        ended.remember(
            ann.clone(),
            first.clone(),
            Some("lab".to_owned()),
            SandboxEnd::now(EXPIRED),
        );
        for name in ["lab", first.as_str()] {
            let end = ended.find(&ann, name).unwrap().to_string();
            assert!(end.starts_with("expired at 20"), "{end}");
            assert_eq!(ended.find(&bob, name), None);
        }
        // The newest of the name.
        ended.remember(
            ann.clone(),
            id(),
            Some("lab".to_owned()),
            SandboxEnd::now(REMOVED),
        );
        assert_eq!(ended.find(&ann, "lab").unwrap().why, REMOVED);
        for _ in 0..MOST - 1 {
            ended.remember(ann.clone(), id(), None, SandboxEnd::now("its init died"));
        }
        assert_eq!(ended.find(&ann, first.as_str()), None);
        let oldest = ended.0.get_mut(&ann).unwrap().front_mut().unwrap();
        assert_eq!(oldest.name.as_deref(), Some("lab"));
        oldest.at -= REMEMBERED;
        assert_eq!(ended.find(&ann, "lab"), None);
        for owner in 0..=MAX_OWNERS {
            let owner = format!("user-{owner}").parse().unwrap();
            ended.remember(owner, id(), None, SandboxEnd::now(REMOVED));
        }
        assert_eq!(ended.0.len(), MAX_OWNERS);
        assert!(!ended.0.contains_key(&ann), "the oldest gives way");
        ended.forget(&"user-9".parse().unwrap());
        assert_eq!(ended.0.len(), MAX_OWNERS - 1);
    }
}
