//! Limits connections: at the limit, one that has not authenticated is evicted; a client has a share, and all clients together have one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

/// Slots of all connections.
#[derive(Debug)]
pub(crate) struct ConnectionSlots(Arc<Slots>);

#[derive(Debug)]
struct Slots {
    most: usize,
    /// Oldest first.
    taken: Mutex<Vec<Weak<ConnectionSlot>>>,
}

/// The slot of a connection, freed on drop.
#[derive(Debug)]
pub struct ConnectionSlot {
    slots: Arc<Slots>,
    peer: Mutex<Peer>,
    evicted: Notify,
}

/// The peer of a connection, by its last request with valid credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Peer {
    Unknown,
    /// The server's own user, at the console.
    Own,
    Client(String),
}

/// The connections of a client, of those that one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connections {
    Few,
    /// More than half: those that answer nothing should be closed. Clients that reach each sandbox by a name of its own keep one open for
    /// each, long after the sandbox.
    Many,
}

/// The limit of connections is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooManyConnections {
    /// The limit of one client.
    OfClient(usize),
    /// The limit of all clients together.
    OfAll(usize),
}

impl ConnectionSlots {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Slots {
            most,
            taken: Mutex::default(),
        }))
    }

    /// Returns a slot for a new connection. Any page in a browser can open connections and send nothing
    /// useful, so at the limit the oldest unauthenticated connection is evicted. `None` if all are
    /// authenticated.
    pub(crate) fn enter(&self) -> Option<Arc<ConnectionSlot>> {
        let mut taken = self.0.lock();
        taken.retain(|place| place.strong_count() > 0);
        if taken.len() >= self.0.most {
            let unknown =
                |place: &Weak<ConnectionSlot>| place.upgrade().filter(|place| *place.peer() == Peer::Unknown);
            let (at, place) = taken
                .iter()
                .enumerate()
                .find_map(|(at, place)| Some((at, unknown(place)?)))?;
            place.evict();
            taken.remove(at);
        }
        let place = Arc::new(ConnectionSlot {
            slots: Arc::clone(&self.0),
            peer: Mutex::new(Peer::Unknown),
            evicted: Notify::new(),
        });
        taken.push(Arc::downgrade(&place));
        Some(place)
    }
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<ConnectionSlot>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of connections that a client may have: others find the rest.
    const fn share(&self) -> usize {
        self.most - self.most / 4
    }

    /// Returns the number of connections that all clients together may have. The rest is for connections that have not
    /// authenticated yet, where none waits for long.
    const fn share_of_all(&self) -> usize {
        self.most - self.most / 8
    }
}

impl ConnectionSlot {
    fn peer(&self) -> MutexGuard<'_, Peer> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the connection as that of the server's own user.
    pub(crate) fn know(&self) {
        *self.peer() = Peer::Own;
    }

    /// Marks the connection as that of a client with valid credentials, unless the client has its share.
    pub fn belong_to(&self, client: &str) -> Result<Connections, TooManyConnections> {
        let is_its = |peer: &Peer| matches!(peer, Peer::Client(name) if name == client);
        let taken = self.slots.lock();
        let (mut count, mut all) = (0, 0);
        for place in taken.iter().filter_map(Weak::upgrade) {
            let peer = place.peer();
            count += usize::from(is_its(&peer));
            all += usize::from(matches!(&*peer, Peer::Client(_)));
        }
        let before = self.peer().clone();
        if !is_its(&before) {
            if count >= self.slots.share() {
                return Err(TooManyConnections::OfClient(count));
            }
            if all >= self.slots.share_of_all() && !matches!(before, Peer::Client(_)) {
                return Err(TooManyConnections::OfAll(all));
            }
            *self.peer() = Peer::Client(client.to_owned());
            count += 1;
        }
        match count > self.slots.share() / 2 {
            true => Ok(Connections::Many),
            false => Ok(Connections::Few),
        }
    }

    /// Removes the client of a request whose credentials are no longer valid, so that the connection can be
    /// evicted.
    pub fn forget_client(&self) {
        let mut peer = self.peer();
        if matches!(*peer, Peer::Client(_)) {
            *peer = Peer::Unknown;
        }
    }

    /// Closes the connection, even during a request.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Resolves when the connection is evicted.
    pub(crate) async fn evicted(&self) {
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
        fourth.belong_to("one").unwrap();
        taken[2].know();
        assert!(places.enter().is_none());
        taken.remove(0);
        assert!(places.enter().is_some());
    }

    #[test]
    fn a_client_leaves_connections_to_others() {
        let places = ConnectionSlots::new(4);
        let mut taken: Vec<_> = (0..4).map(|_| places.enter().unwrap()).collect();
        for place in &taken[..3] {
            place.belong_to("one").unwrap();
        }
        assert_eq!(taken[3].belong_to("one"), Err(TooManyConnections::OfClient(3)));
        // It makes room, or is another client's.
        assert!(places.enter().is_some());
        taken[3].belong_to("other").unwrap();
        taken[0].belong_to("one").unwrap();
        taken.remove(1);
        places.enter().unwrap().belong_to("one").unwrap();
    }

    #[test]
    fn clients_together_leave_connections_to_who_has_yet_to_authenticate() {
        let places = ConnectionSlots::new(8);
        let taken: Vec<_> = (0..8).map(|_| places.enter().unwrap()).collect();
        for (place, client) in taken.iter().zip(["a", "a", "b", "b", "c", "c", "d"]) {
            place.belong_to(client).unwrap();
        }
        assert_eq!(taken[7].belong_to("e"), Err(TooManyConnections::OfAll(7)));
        // A connection that is a client's already is not a further one.
        taken[0].belong_to("e").unwrap();
        assert!(places.enter().is_some(), "the last makes room");
        taken[7].know();
    }

    #[test]
    fn a_client_with_more_than_half_of_its_share_is_told() {
        let places = ConnectionSlots::new(8);
        let taken: Vec<_> = (0..4).map(|_| places.enter().unwrap()).collect();
        let belong = |at: usize| taken[at].belong_to("one").unwrap();
        for at in [0, 1, 1, 2] {
            assert_eq!(belong(at), Connections::Few);
        }
        assert_eq!([belong(3), belong(0)], [Connections::Many; 2]);
        assert_eq!(taken[3].belong_to("other"), Ok(Connections::Few));
        assert_eq!(belong(0), Connections::Few);
    }

    #[tokio::test]
    async fn a_connection_of_a_key_that_has_ended_makes_room() {
        let places = ConnectionSlots::new(1);
        let taken = places.enter().unwrap();
        taken.belong_to("one").unwrap();
        assert!(places.enter().is_none());
        taken.forget_client();
        assert!(places.enter().is_some());
        taken.evicted().await;
    }
}
