//! Limits concurrent calls: some run, some are queued, the rest are refused at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of running calls.
pub(super) const RUNNING: usize = 16;

/// Maximum number of queued calls.
const WAITING: usize = 112;

const SEATS: u32 = (RUNNING + WAITING) as u32;

/// Maximum size of the arguments of all calls together, in KiB as received.
const HELD_KIB: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Calls {
    seats: Arc<Semaphore>,
    held: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// An accepted call, running or queued.
#[derive(Debug)]
pub(super) struct Seat {
    turns: Arc<Semaphore>,
    _seat: OwnedSemaphorePermit,
    _held: OwnedSemaphorePermit,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self {
            seats: Arc::new(Semaphore::new(SEATS as usize)),
            held: Arc::new(Semaphore::new(HELD_KIB)),
            turns: Arc::new(Semaphore::new(RUNNING)),
        }
    }

    /// Accepts a call with a message of `length` bytes, if there is capacity.
    pub(super) fn enter(&self, length: usize) -> Option<Seat> {
        let kib = u32::try_from(length / 1024 + 1).ok()?;
        Some(Seat {
            turns: Arc::clone(&self.turns),
            _seat: Arc::clone(&self.seats).try_acquire_owned().ok()?,
            _held: Arc::clone(&self.held).try_acquire_many_owned(kib).ok()?,
        })
    }

    /// Waits until no call is left.
    pub(super) async fn finished(&self) {
        // The semaphore is never closed.
        let _ = self.seats.acquire_many(SEATS).await;
    }
}

impl Seat {
    /// Waits to run, in the order of calls. Dropping the permit lets the next one run.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_fit_is_refused_until_something_ends() {
        let calls = Calls::new();
        let mut seats: Vec<_> = (0..SEATS).map(|_| calls.enter(100).unwrap()).collect();
        assert!(calls.enter(100).is_none());
        seats.pop();
        assert!(calls.enter(100).is_some());
        drop(seats);
        let large = calls.enter(HELD_KIB / 2 * 1024).unwrap();
        assert!(calls.enter(HELD_KIB / 2 * 1024).is_none());
        assert!(calls.enter(1024).is_some());
        drop(large);
        calls.finished().await;
    }

    #[tokio::test]
    async fn turns_are_fewer_than_seats() {
        let calls = Calls::new();
        let seats: Vec<_> = (0..=RUNNING).map(|_| calls.enter(1).unwrap()).collect();
        let mut turns = Vec::new();
        for seat in &seats[..RUNNING] {
            turns.push(seat.turn().await.unwrap());
        }
        let last = seats[RUNNING].turn();
        tokio::pin!(last);
        tokio::select! {
            biased;
            _ = &mut last => panic!("one too many"),
            () = std::future::ready(()) => {}
        }
        turns.pop();
        assert!(last.await.is_some());
    }
}
