//! Limits connections: at the limit, one that has not authenticated is evicted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Notify;

/// Slots of all connections, oldest first.
#[derive(Debug)]
pub(super) struct ConnectionSlots {
    most: usize,
    taken: Mutex<Vec<Weak<ConnectionSlot>>>,
}

/// The slot of a connection, freed on drop.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlot {
    /// Set once a request had valid credentials.
    is_known: AtomicBool,
    evicted: Notify,
}

impl ConnectionSlots {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            taken: Mutex::new(Vec::new()),
        }
    }

    /// Returns a slot for a new connection. Any page in a browser can open connections and send nothing
    /// useful, so at the limit the oldest unauthenticated connection is evicted. `None` if all are
    /// authenticated.
    pub(super) fn enter(&self) -> Option<Arc<ConnectionSlot>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|place| place.strong_count() > 0);
        if taken.len() >= self.most {
            let unknown = |place: &Weak<ConnectionSlot>| {
                place
                    .upgrade()
                    .filter(|place| !place.is_known.load(Ordering::Relaxed))
            };
            let (at, place) = taken
                .iter()
                .enumerate()
                .find_map(|(at, place)| Some((at, unknown(place)?)))?;
            place.evict();
            taken.remove(at);
        }
        let place = Arc::new(ConnectionSlot::default());
        taken.push(Arc::downgrade(&place));
        Some(place)
    }
}

impl ConnectionSlot {
    /// Marks the connection as authenticated.
    pub(super) fn know(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Closes the connection, whatever happens on it.
    pub(crate) fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Resolves when the connection is evicted.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_oldest_without_credentials_makes_room() {
        let places = ConnectionSlots::new(3);
        let mut taken: Vec<_> = (0..3).map(|_| places.enter().unwrap()).collect();
        taken[0].know();
        let fourth = places.enter().unwrap();
        taken[1].evicted().await;
        fourth.know();
        taken[2].know();
        assert!(places.enter().is_none());
        taken.remove(0);
        assert!(places.enter().is_some());
    }
}
