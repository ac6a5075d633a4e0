//! The reused containers of both engines.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence_policy::Scope;
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::key::Key;
use super::place::ReusedContainer;
use super::registry::{Condition, Number, Registry};
use crate::error::Error;
use crate::run_error::RunError;
use crate::sandboxes::info::SandboxInfo;
use crate::spec::Name;

/// Limit of reused containers of a process.
const MOST: usize = 16;

/// The reused containers of both engines.
#[derive(Debug)]
pub(crate) struct ReusedContainers {
    shelf: Arc<Shelf>,
    reaper: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
pub(super) struct Shelf {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    book: Registry<Key, Arc<Slot>>,
    closed: bool,
}

/// A registry entry, whose container the first call creates.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) container: OnceCell<ReusedContainer>,
    pub(super) since: Instant,
}

/// A call's reservation in a container; released on drop.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) shelf: Arc<Shelf>,
    pub(super) number: Number,
    pub(super) slot: Arc<Slot>,
    /// Set if the call found the container dead.
    pub(super) found_dead: bool,
}

impl ReusedContainers {
    pub(crate) fn new() -> Self {
        let state = State {
            book: Registry::new(MOST),
            closed: false,
        };
        Self {
            shelf: Arc::new(Shelf {
                state: Mutex::new(state),
                changed: Notify::new(),
            }),
            reaper: Mutex::default(),
        }
    }

    /// Reserves a container for a call with this key.
    pub(super) fn seat(&self, key: Key) -> Result<Seat, RunError> {
        let mut state = self.shelf.state();
        if state.closed {
            return Err(Error::Closing.into());
        }
        let rule = key.rule();
        let now = Instant::now();
        let slot = || {
            Arc::new(Slot {
                container: OnceCell::new(),
                since: now,
            })
        };
        let taken = state.book.take(key, rule, now, slot);
        let taken = taken.map_err(|_| RunError::KeptFull(MOST))?;
        drop(state);
        drop(taken.evicted);
        self.reap();
        Ok(Seat {
            shelf: Arc::clone(&self.shelf),
            number: taken.number,
            slot: taken.what,
            found_dead: false,
        })
    }

    /// Starts the task that removes idle containers, if necessary.
    fn reap(&self) {
        let mut reaper = self.reaper.lock().unwrap_or_else(PoisonError::into_inner);
        if reaper.is_empty() {
            let shelf = Arc::clone(&self.shelf);
            reaper.spawn(async move { shelf.reap().await });
        }
    }

    /// Returns the live container of this name.
    pub(super) fn find(&self, scope: &Scope, name: &Name) -> Option<Arc<Slot>> {
        let is_it = |slot: &Slot| {
            let container = slot.container.get();
            container.is_some_and(|container| container.is_alive() && container.handle().name() == name)
        };
        let state = self.shelf.state();
        let mut own = state.book.iter().filter(|(key, ..)| key.scope == *scope);
        own.find_map(|(_, slot, ..)| is_it(slot).then(|| Arc::clone(slot)))
    }

    /// Lists the containers of a scope, or of all, each with its scope.
    pub(super) fn list(&self, scope: Option<&Scope>) -> Vec<(Scope, SandboxInfo)> {
        let (state, now) = (self.shelf.state(), Instant::now());
        let is_listed = |of: &Scope| scope.is_none_or(|scope| of == scope);
        let listed = state.book.iter().filter(|(key, ..)| is_listed(&key.scope));
        listed
            .filter_map(|(key, slot, calls, due)| {
                let container = slot.container.get().filter(|container| container.is_alive())?;
                let idle = Duration::from_millis(key.keep_alive.idle_ms);
                let info = SandboxInfo {
                    name: container.handle().name().as_str().to_owned(),
                    engine: key.engine,
                    template: format!("kept, {calls} call{}", if calls == 1 { "" } else { "s" }),
                    state: container.handle().life().state.to_string(),
                    age_seconds: now.saturating_duration_since(slot.since).as_secs_f64(),
                    left_seconds: due
                        .map_or(idle, |due| due.saturating_duration_since(now))
                        .as_secs_f64(),
                };
                Some((key.scope.clone(), info))
            })
            .collect()
    }

    /// Ends all containers with their processes. The shutdown of the supervisors waits for the removal.
    pub(crate) async fn close(&self) {
        let mut reaper = {
            let mut reaper = self.reaper.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *reaper)
        };
        reaper.shutdown().await;
        let slots = {
            let mut state = self.shelf.state();
            state.closed = true;
            state.book.clear()
        };
        for container in slots.iter().filter_map(|slot| slot.container.get()) {
            container.end().await;
        }
    }
}

impl Shelf {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn key(&self, number: Number) -> Option<Key> {
        self.state().book.key(number).cloned()
    }

    /// Removes idle containers when they are due. Never returns.
    async fn reap(&self) {
        loop {
            let due = self.state().book.next_due();
            let changed = self.changed.notified();
            match due {
                Some(due) => tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
            let overdue = self.state().book.overdue(Instant::now());
            drop(overdue);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let condition = match self.slot.container.get() {
            None => Condition::Unmade,
            Some(_) if self.found_dead => Condition::Dead,
            // A container that died during its call is found by the next one, which warns.
            Some(_) => Condition::Well,
        };
        let gone = self
            .shelf
            .state()
            .book
            .left(self.number, condition, Instant::now());
        drop(gone);
        self.shelf.changed.notify_one();
    }
}
