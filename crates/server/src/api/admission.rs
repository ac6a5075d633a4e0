//! Admission of calls: a key has a share of the slots and a queue, and the queues take turns.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::error::ApiError;
use super::keys::Grant;

/// Maximum number of calls of a key that wait. With those at work it has fewer than a listener has connections.
const MAX_QUEUED: usize = 32;

/// Maximum time that a call waits.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Decides which calls of keys are at work and which wait. The server's own user is not among them, and has slots that
/// keys do not take.
#[derive(Debug)]
pub struct Admission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Maximum number of concurrent calls of all keys.
    slots: usize,
    /// Maximum number of concurrent calls of a key.
    share: usize,
    /// Maximum number of waiting calls of a key.
    queue: usize,
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    at_work: usize,
    /// Clients with a call at work or in a queue.
    clients: HashMap<String, Client>,
    /// Clients with a queue; the first is next.
    order: VecDeque<String>,
    next: u64,
    refused_full: u64,
    refused_late: u64,
}

#[derive(Debug, Default)]
struct Client {
    at_work: usize,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    since: Instant,
    turn: oneshot::Sender<()>,
}

/// A slot, freed on drop. Calls of the server's own user have none.
#[derive(Debug)]
pub(super) struct Turn {
    _slot: Option<Slot>,
}

/// A slot that is taken.
#[derive(Debug)]
struct Slot {
    shared: Arc<Shared>,
    client: String,
}

/// A place in a queue, left on drop.
struct Place {
    shared: Arc<Shared>,
    client: String,
    id: u64,
    turn: oneshot::Receiver<()>,
    /// Set once its slot has an owner of its own.
    is_left: bool,
}

/// Bounds of a call's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// In length and time.
    Bounded,
    /// None: others bound the calls that wait.
    Unbounded,
}

/// Figures of the queues.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AdmissionFigures {
    pub(crate) at_work: usize,
    pub(crate) waiting: usize,
    /// Age of the call that has waited for the longest time.
    pub(crate) oldest: Duration,
    /// Calls that were refused because their queue was full, and because their turn did not come in time.
    pub(crate) refused_full: u64,
    pub(crate) refused_late: u64,
}

impl Limits {
    /// One in eight of the runs that the server has at a time are for its own user, and one in four of the others for another
    /// key than one that uses all it can.
    fn of_runs(runs: usize) -> Self {
        let slots = (runs - runs / 8).max(1);
        Self {
            slots,
            share: (slots - slots.div_ceil(4)).max(1),
            queue: MAX_QUEUED,
            patience: TIMEOUT,
        }
    }
}

impl Admission {
    /// Creates the admission to so many runs at a time.
    pub fn of_runs(runs: usize) -> Self {
        Self::with(Limits::of_runs(runs))
    }

    fn with(limits: Limits) -> Self {
        Self(Arc::new(Shared {
            limits,
            state: Mutex::default(),
        }))
    }

    /// Waits for a slot, if the client's queue has room.
    pub(super) async fn enter(&self, grant: &Grant) -> Result<Turn, ApiError> {
        match grant.is_owner() {
            true => Ok(Turn { _slot: None }),
            false => Shared::enter(&self.0, grant.allowance.account.as_str(), Wait::Bounded).await,
        }
    }

    /// Waits for a slot for a program of a batch, of which one waits at a time: its place is that of the batch.
    pub(super) async fn enter_from_batch(&self, grant: &Grant) -> Result<Turn, ApiError> {
        match grant.is_owner() {
            true => Ok(Turn { _slot: None }),
            false => Shared::enter(&self.0, grant.allowance.account.as_str(), Wait::Unbounded).await,
        }
    }

    pub(super) fn figures(&self) -> AdmissionFigures {
        let state = self.0.lock();
        let queues = state.clients.values().map(|client| &client.queue);
        let oldest = queues.clone().filter_map(|queue| queue.front()?.since.into());
        AdmissionFigures {
            at_work: state.at_work,
            waiting: queues.map(VecDeque::len).sum(),
            oldest: oldest.min().map(|since| since.elapsed()).unwrap_or_default(),
            refused_full: state.refused_full,
            refused_late: state.refused_late,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn enter(self: &Arc<Self>, client: &str, wait: Wait) -> Result<Turn, ApiError> {
        let mut place = self.join(client, wait)?;
        let got = match wait {
            Wait::Bounded => tokio::time::timeout(self.limits.patience, &mut place.turn).await,
            Wait::Unbounded => Ok((&mut place.turn).await),
        };
        match got {
            // A sender is dropped with its waiter, which leaves the queue with its place.
            Ok(_) => Ok(Turn {
                _slot: Some(place.into_slot()),
            }),
            Err(_) => {
                self.lock().refused_late += 1;
                Err(self.late())
            }
        }
    }

    /// Takes a place in a client's queue, from which it is called at once if there is a slot.
    fn join(self: &Arc<Self>, client: &str, wait: Wait) -> Result<Place, ApiError> {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        let own = state.clients.entry(client.to_owned()).or_default();
        let length = own.queue.len();
        if wait == Wait::Bounded && length >= self.limits.queue {
            let oldest = own.queue.front().map(|waiter| waiter.since.elapsed());
            state.refused_full += 1;
            return Err(self.full(length, oldest.unwrap_or_default()));
        }
        let (sender, turn) = oneshot::channel();
        own.queue.push_back(Waiter {
            id,
            since: Instant::now(),
            turn: sender,
        });
        if length == 0 {
            state.order.push_back(client.to_owned());
        }
        state.call(self.limits);
        Ok(Place {
            shared: Arc::clone(self),
            client: client.to_owned(),
            id,
            turn,
            is_left: false,
        })
    }

    fn full(&self, waiting: usize, oldest: Duration) -> ApiError {
        let Limits { slots, share, .. } = self.limits;
        ApiError::busy_for(
            format!(
                "the queue of the key is full: {waiting} of its calls wait, the first for {} s; at most {share} of a key and \
                 {slots} of all keys are at work",
                oldest.as_secs()
            ),
            oldest,
        )
    }

    fn late(&self) -> ApiError {
        let Limits {
            slots,
            share,
            patience,
            ..
        } = self.limits;
        ApiError::busy_for(
            format!(
                "the call had no turn within {} s; at most {share} of a key and {slots} of all keys are at work",
                patience.as_secs()
            ),
            patience,
        )
    }
}

impl State {
    /// Calls those who wait to the free slots, one of each client in turn.
    fn call(&mut self, limits: Limits) {
        let mut passed_over = 0;
        while self.at_work < limits.slots && passed_over < self.order.len() {
            let Some(name) = self.order.pop_front() else {
                return;
            };
            let Some(client) = self.clients.get_mut(&name) else {
                continue;
            };
            passed_over += 1;
            if client.at_work < limits.share
                && let Some(waiter) = client.queue.pop_front()
            {
                passed_over = 0;
                // One whose place is gone is passed over.
                if waiter.turn.send(()).is_ok() {
                    client.at_work += 1;
                    self.at_work += 1;
                }
            }
            if !client.queue.is_empty() {
                self.order.push_back(name);
            }
        }
    }

    /// Frees a slot of a client.
    fn free(&mut self, name: &str) {
        if let Some(client) = self.clients.get_mut(name) {
            client.at_work -= 1;
            self.at_work -= 1;
        }
        self.forget(name);
    }

    /// Removes a waiter. Returns `false` if it was called before.
    fn leave(&mut self, name: &str, id: u64) -> bool {
        let Some(client) = self.clients.get_mut(name) else {
            return false;
        };
        let Some(at) = client.queue.iter().position(|waiter| waiter.id == id) else {
            return false;
        };
        client.queue.remove(at);
        if client.queue.is_empty() {
            self.order.retain(|waiting| waiting != name);
        }
        self.forget(name);
        true
    }

    /// Forgets a client without calls.
    fn forget(&mut self, name: &str) {
        let is_gone = |client: &Client| client.at_work == 0 && client.queue.is_empty();
        if self.clients.get(name).is_some_and(is_gone) {
            self.clients.remove(name);
        }
    }
}

impl Place {
    /// Turns the place of a call that was called into its slot.
    fn into_slot(mut self) -> Slot {
        self.is_left = true;
        Slot {
            shared: Arc::clone(&self.shared),
            client: std::mem::take(&mut self.client),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let mut state = self.shared.lock();
        if !state.leave(&self.client, self.id) {
            state.free(&self.client);
        }
        state.call(self.shared.limits);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.free(&self.client);
        state.call(self.shared.limits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(slots: usize, share: usize, patience: Duration) -> Admission {
        Admission::with(Limits {
            slots,
            share,
            queue: 3,
            patience,
        })
    }

    fn join(admission: &Admission, client: &str) -> Place {
        Shared::join(&admission.0, client, Wait::Bounded).unwrap()
    }

    fn is_called(place: &mut Place) -> bool {
        place.turn.try_recv().is_ok()
    }

    fn called(places: &mut [Place]) -> usize {
        places
            .iter_mut()
            .filter_map(|place| is_called(place).then_some(()))
            .count()
    }

    #[test]
    fn there_are_slots_for_another_key_and_for_the_servers_user() {
        for (runs, slots, share) in [
            (1, 1, 1),
            (2, 2, 1),
            (4, 4, 3),
            (8, 7, 5),
            (16, 14, 10),
            (64, 56, 42),
        ] {
            let limits = Limits::of_runs(runs);
            assert_eq!((limits.slots, limits.share), (slots, share), "{runs}");
        }
    }

    #[test]
    fn a_key_that_floods_fills_its_share_and_its_queue_and_nothing_else() {
        let admission = admission(4, 3, TIMEOUT);
        let mut flood: Vec<Place> = (0..6).map(|_| join(&admission, "one")).collect();
        assert_eq!(called(&mut flood), 3);
        let Err(refused) = Shared::join(&admission.0, "one", Wait::Bounded) else {
            panic!("one too many");
        };
        assert!(
            refused
                .message()
                .starts_with("the queue of the key is full: 3 of"),
            "{refused:?}"
        );
        // The batch of a key waits with its programs, and is bounded by its connection.
        let batch = Shared::join(&admission.0, "one", Wait::Unbounded).unwrap();
        let mut other = join(&admission, "other");
        assert!(is_called(&mut other));
        let figures = admission.figures();
        assert_eq!((figures.at_work, figures.waiting), (4, 4));
        assert_eq!((figures.refused_full, figures.refused_late), (1, 0));
        drop((flood, batch, other));
        let figures = admission.figures();
        assert_eq!(
            (figures.at_work, figures.waiting, figures.oldest),
            (0, 0, Duration::ZERO)
        );
        let state = admission.0.lock();
        assert!(state.clients.is_empty() && state.order.is_empty());
    }

    #[test]
    fn queues_take_turns_however_long_they_are() {
        let admission = admission(1, 1, TIMEOUT);
        let names = ["one", "one", "one", "one", "two", "two", "three"];
        let mut places: Vec<(usize, Place)> = names
            .iter()
            .map(|name| join(&admission, name))
            .enumerate()
            .collect();
        let mut order = Vec::new();
        while !places.is_empty() {
            let mut at_work = places
                .iter_mut()
                .filter_map(|(at, place)| is_called(place).then_some(*at));
            let (first, more) = (at_work.next().unwrap(), at_work.next());
            assert_eq!(more, None);
            order.push(names[first]);
            places.retain(|(at, _)| *at != first);
        }
        assert_eq!(order, ["one", "one", "two", "three", "one", "two", "one"]);
    }

    #[test]
    fn one_at_its_share_is_passed_over() {
        let admission = admission(3, 2, TIMEOUT);
        let mut one: Vec<Place> = (0..3).map(|_| join(&admission, "one")).collect();
        let mut two: Vec<Place> = (0..2).map(|_| join(&admission, "two")).collect();
        assert_eq!((called(&mut one), called(&mut two)), (2, 1));
        // A slot of the other key is free, and the first in the queue may not have it.
        drop(two.remove(0));
        assert_eq!((called(&mut one), called(&mut two)), (0, 1));
        drop(one.remove(0));
        assert_eq!(called(&mut one), 1);
    }

    #[tokio::test]
    async fn a_call_without_a_turn_in_time_is_refused_and_leaves_the_queue() {
        let admission = admission(1, 1, Duration::ZERO);
        let slot = Shared::enter(&admission.0, "one", Wait::Bounded).await.unwrap();
        let refused = Shared::enter(&admission.0, "two", Wait::Bounded)
            .await
            .unwrap_err();
        assert!(
            refused.message().starts_with("the call had no turn within 0 s"),
            "{refused:?}"
        );
        let figures = admission.figures();
        assert_eq!((figures.waiting, figures.refused_late), (0, 1));
        drop(slot);
        let again = Shared::enter(&admission.0, "two", Wait::Bounded).await.unwrap();
        drop(again);
        assert_eq!(admission.figures().at_work, 0);
    }

    #[tokio::test]
    async fn the_servers_user_waits_for_no_key() {
        let admission = admission(1, 1, TIMEOUT);
        let _slot = Shared::enter(&admission.0, "one", Wait::Bounded).await.unwrap();
        let owner = Grant::of_owner();
        let turns = (
            admission.enter(&owner).await,
            admission.enter_from_batch(&owner).await,
        );
        assert!(turns.0.is_ok() && turns.1.is_ok());
        assert_eq!(admission.figures().at_work, 1);
    }

    #[test]
    fn a_slot_whose_call_has_gone_is_the_next_ones() {
        let admission = admission(1, 1, TIMEOUT);
        let first = join(&admission, "one");
        let gone = join(&admission, "one");
        let mut next = join(&admission, "two");
        drop(gone);
        // Called, and not told of it yet.
        drop(first);
        assert!(is_called(&mut next));
    }
}
