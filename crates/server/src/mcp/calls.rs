//! How many calls there may be: some run, some wait their turn, the rest are refused at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that run at once.
pub(super) const RUNNING: usize = 16;

/// Calls that wait for those.
const WAITING: usize = 112;

const SEATS: u32 = (RUNNING + WAITING) as u32;

/// What the arguments of all of them may have together, in KiB as they came.
const HELD_KIB: usize = 64 * 1024;

/// The calls of one connection.
#[derive(Debug)]
pub(super) struct Calls {
    seats: Arc<Semaphore>,
    held: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// A call that was taken on, running or not.
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

    /// Takes a call on whose message was `length` bytes long, if there is room.
    pub(super) fn enter(&self, length: usize) -> Option<Seat> {
        let kib = u32::try_from(length / 1024 + 1).ok()?;
        Some(Seat {
            turns: Arc::clone(&self.turns),
            _seat: Arc::clone(&self.seats).try_acquire_owned().ok()?,
            _held: Arc::clone(&self.held).try_acquire_many_owned(kib).ok()?,
        })
    }

    /// Waits until there is no call any more.
    pub(super) async fn finished(&self) {
        // The semaphore is never closed.
        let _ = self.seats.acquire_many(SEATS).await;
    }
}

impl Seat {
    /// Waits for its turn, which lasts until the permit is dropped. Turns come in the order of the calls.
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
