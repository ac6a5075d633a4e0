//! The memory of output that is kept for late readers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use ringfence_policy::Scope;

/// Number of bytes of a process's output that are kept for a late reader. An attached reader that is slow blocks the process
/// before it misses output.
pub const KEPT: u64 = 1 << 20;
/// The same, once the sandboxes of one owner, or all, keep too much.
const SCARCE: u64 = 16 << 10;
/// Memory of a chunk beside its bytes.
pub(crate) const OVERHEAD: u64 = 80;
/// Number of bytes that the sandboxes of one owner keep, and all, before each process keeps less.
const MAX_OF_SCOPE: u64 = 64 << 20;
const MAX: u64 = 256 << 20;

/// Counters of the bytes that all sandboxes keep, by owner.
#[derive(Debug, Default)]
pub(crate) struct KeptCounters {
    owners: BTreeMap<Scope, Weak<AtomicU64>>,
    all: Arc<AtomicU64>,
}

/// The counters of one owner, and of all.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptOutput {
    own: Arc<AtomicU64>,
    all: Arc<AtomicU64>,
}

impl KeptCounters {
    /// Returns the counters for another sandbox of an owner.
    pub(crate) fn of(&mut self, owner: &Scope) -> KeptOutput {
        self.owners.retain(|_, own| own.strong_count() > 0);
        let known = self.owners.get(owner).and_then(Weak::upgrade);
        let own = known.unwrap_or_default();
        self.owners.insert(owner.clone(), Arc::downgrade(&own));
        KeptOutput {
            own,
            all: Arc::clone(&self.all),
        }
    }
}

impl KeptOutput {
    /// Returns the number of bytes that a process may keep.
    pub(crate) fn most(&self) -> u64 {
        let is_much = |counter: &AtomicU64, most| counter.load(Ordering::Relaxed) >= most;
        match is_much(&self.own, MAX_OF_SCOPE) || is_much(&self.all, MAX) {
            true => SCARCE,
            false => KEPT,
        }
    }

    /// Counts a chunk.
    pub(crate) fn add(&self, bytes: u64) {
        for counter in [&self.own, &self.all] {
            counter.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn take_back(&self, bytes: u64) {
        for counter in [&self.own, &self.all] {
            counter.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_keeps_much_keeps_less_and_others_do_not() {
        let mut counters = KeptCounters::default();
        let [one, other]: [Scope; 2] = ["one", "other"].map(|name| name.parse().unwrap());
        let (first, second) = (counters.of(&one), counters.of(&one));
        let others = counters.of(&other);
        first.add(MAX_OF_SCOPE);
        assert_eq!(
            (first.most(), second.most(), others.most()),
            (SCARCE, SCARCE, KEPT)
        );
        others.add(MAX - MAX_OF_SCOPE);
        second.take_back(1);
        assert_eq!((first.most(), others.most()), (KEPT, SCARCE));
        drop((first, second));
        assert_eq!(counters.of(&one).most(), KEPT);
    }
}
