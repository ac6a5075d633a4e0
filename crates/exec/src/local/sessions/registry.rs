//! The registry of sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Scope;

use super::ending::{Endings, Key, Reason};
use super::live::Live;

/// A shared registry.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedRegistry(Arc<Mutex<Registry>>);

impl SharedRegistry {
    pub(super) fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registry of sessions.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) live: HashMap<Key, Arc<Live>>,
    pub(super) endings: Endings,
    pub(super) closed: bool,
}

impl Registry {
    /// Evicts the longest-idle session of the scope with the most, if `scope` has fewer than its share of
    /// `max`. Returns `true` if it did.
    pub(super) fn make_room(&mut self, scope: &Scope, max: usize) -> bool {
        let mut counts: HashMap<&Scope, usize> = HashMap::from([(scope, 0)]);
        for (owner, _) in self.live.keys() {
            *counts.entry(owner).or_default() += 1;
        }
        let own = counts[scope];
        let share = max / counts.len();
        let idle = self.live.iter().filter_map(|(key, live)| {
            let since = live.idle_since()?;
            let count = counts[&key.0];
            (own < share && count > share).then_some((count, std::cmp::Reverse(since), key))
        });
        let Some((_, _, key)) = idle.max_by_key(|(count, since, _)| (*count, *since)) else {
            return false;
        };
        let key = key.clone();
        if let Some(live) = self.live.remove(&key) {
            live.stop();
        }
        self.endings.remember(&key, Reason::Displaced);
        true
    }
}
