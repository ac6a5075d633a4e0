//! Plans a pool: idle instances for the last checkouts, until they expire.
#![forbid(unsafe_code)]

pub mod filled;

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Settings of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolSettings {
    /// Capacity under low load; 0 disables the pool.
    pub size: usize,
    /// Maximum capacity. It grows up to this when checkouts are faster than starts.
    pub max_size: usize,
    /// Number of idle instances that a checkout reserves for the next ones with its key.
    pub per_checkout: usize,
    /// Age at which a checkout expires, with its idle instances. `None`: never.
    pub expiry: Option<Duration>,
}

/// A pool of idle instances `T`, each for a checkout with its key `K`.
///
/// It is synchronous and starts nothing: its owner carries out each [`Plan`].
#[derive(Debug)]
pub struct Pool<K, T> {
    settings: PoolSettings,
    /// Current capacity, including the instance being started.
    capacity: usize,
    /// Reservations of the last checkouts, oldest first; never more than the capacity.
    reserved: VecDeque<Reserved<K>>,
    /// Oldest first.
    idle: VecDeque<Idle<K, T>>,
    starting: Option<K>,
}

/// A place for an idle instance.
#[derive(Debug)]
struct Reserved<K> {
    key: K,
    since: Instant,
}

/// An idle instance.
#[derive(Debug)]
struct Idle<K, T> {
    key: K,
    instance: T,
}

/// The next steps for the pool's owner.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan<K, T> {
    /// Instances to end.
    pub surplus: Vec<T>,
    /// Key of an instance to start; the owner reports with [`Pool::started`] or [`Pool::failed`].
    pub start: Option<K>,
    /// Time of the next planning, if nothing happens before.
    pub again: Option<Instant>,
}

impl<K: Clone + PartialEq, T> Pool<K, T> {
    /// Creates an empty pool.
    pub const fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            capacity: settings.size,
            reserved: VecDeque::new(),
            idle: VecDeque::new(),
            starting: None,
        }
    }

    /// Records a checkout, and returns the oldest usable instance with its key, if any. Unusable ones become
    /// surplus.
    pub fn take(&mut self, key: &K, now: Instant, mut usable: impl FnMut(&mut T) -> bool) -> Option<T> {
        // A closed pool may still receive an instance that was being started.
        if self.capacity == 0 {
            return None;
        }
        let found = self
            .idle
            .iter_mut()
            .position(|idle| idle.key == *key && usable(&mut idle.instance));
        // A miss with a recorded key: checkouts came faster than starts.
        let missed = found.is_none() && self.reserved.iter().any(|reserved| reserved.key == *key);
        if missed && self.reserved.len() == self.capacity && self.capacity < self.settings.max_size {
            self.capacity += 1;
        }
        self.reserve(key, now);
        found
            .and_then(|place| self.idle.remove(place))
            .map(|idle| idle.instance)
    }

    /// Returns an instance to the pool.
    pub fn put_back(&mut self, key: K, instance: T) {
        self.idle.push_back(Idle { key, instance });
    }

    /// Reserves idle instances with a key, as a checkout does.
    pub fn reserve(&mut self, key: &K, since: Instant) {
        for _ in 0..self.settings.per_checkout.min(self.capacity) {
            if self.reserved.len() == self.capacity {
                self.reserved.pop_front();
            }
            let key = key.clone();
            self.reserved.push_back(Reserved { key, since });
        }
    }

    /// Computes the next steps; `usable` filters instances that have died.
    pub fn plan(&mut self, now: Instant, usable: impl FnMut(&mut T) -> bool) -> Plan<K, T> {
        let expiry = self.settings.expiry;
        self.reserved
            .retain(|reserved| expires(reserved, expiry).is_none_or(|end| now < end));
        self.capacity = self.settings.size.max(self.reserved.len());
        let mut wanted: Vec<K> = self.reserved.iter().map(|one| one.key.clone()).collect();
        if let Some(place) = self.starting.as_ref().and_then(|key| position(&wanted, key)) {
            wanted.swap_remove(place);
        }
        let surplus = self.remove_surplus(&mut wanted, usable);
        let start = match self.starting {
            // Newest checkout first.
            None => wanted.pop(),
            Some(_) => None,
        };
        if start.is_some() {
            self.starting.clone_from(&start);
        }
        Plan {
            surplus,
            start,
            again: self.reserved.front().and_then(|oldest| expires(oldest, expiry)),
        }
    }

    /// Removes the keys of idle instances from `wanted`, and returns the instances that are unusable or not
    /// wanted.
    fn remove_surplus(&mut self, wanted: &mut Vec<K>, mut usable: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let mut surplus = Vec::new();
        for mut idle in std::mem::take(&mut self.idle) {
            let is_usable = usable(&mut idle.instance);
            if is_usable && let Some(place) = position(wanted, &idle.key) {
                wanted.remove(place);
                self.idle.push_back(idle);
            } else {
                surplus.push(idle.instance);
            }
        }
        surplus
    }

    /// Adds the started instance.
    pub fn started(&mut self, instance: T) {
        if let Some(key) = self.starting.take() {
            self.idle.push_back(Idle { key, instance });
        }
    }

    /// Records that the start failed; it is not retried before the next checkout.
    pub fn failed(&mut self) {
        if let Some(key) = self.starting.take() {
            self.reserved.retain(|reserved| reserved.key != key);
        }
    }

    /// Returns the number of idle instances.
    pub fn len(&self) -> usize {
        self.idle.len()
    }

    /// Returns `true` if no instance is idle.
    pub fn is_empty(&self) -> bool {
        self.idle.is_empty()
    }

    /// Drains the pool, and disables it.
    pub fn close(&mut self) -> Vec<T> {
        (self.settings.size, self.settings.max_size, self.capacity) = (0, 0, 0);
        self.reserved.clear();
        self.idle.drain(..).map(|idle| idle.instance).collect()
    }
}

fn expires<K>(reserved: &Reserved<K>, expiry: Option<Duration>) -> Option<Instant> {
    expiry.map(|expiry| reserved.since + expiry)
}

fn position<K: PartialEq>(all: &[K], key: &K) -> Option<usize> {
    all.iter().rposition(|of| of == key)
}

#[cfg(test)]
mod tests;
