//! Sessions: Python interpreters that keep their state between evaluations.
//!
//! Each is a guest in a cell of its own, owned by a task that runs its evaluations one at a time and ends it
//! when its idle time or lifetime is over. A scope does not see the sessions of others.

mod ending;
mod evaluation;
mod evaluation_call;
mod forking;
mod info;
mod interpreter;
mod live;
pub mod messages;
mod registry;
mod results;
mod task;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Scope;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

pub(super) use ending::Key;
pub(super) use evaluation_call::EvaluationCall;
pub use info::SessionInfo;
pub(super) use interpreter::Interpreter;
pub(super) use live::{Called, Live, Unborn};
use registry::{Registry, SharedRegistry};
pub use results::RichResults;
use task::SessionTask;

use super::session_error::Error;
use super::settings::SessionSettings;

/// The sessions of a backend.
#[derive(Debug)]
pub(super) struct Sessions {
    settings: SessionSettings,
    registry: SharedRegistry,
    keepers: Mutex<JoinSet<()>>,
}

/// The result of looking up a session.
pub(super) enum SessionLookup {
    Live(Arc<Live>),
    /// Newly registered; it awaits its interpreter.
    New(Unborn),
}

impl Sessions {
    pub(super) fn new(settings: SessionSettings) -> Self {
        Self {
            settings,
            registry: SharedRegistry::default(),
            keepers: Mutex::default(),
        }
    }

    /// Returns the session of this name, registering a new one if there is none.
    pub(super) fn find_or_make(&self, key: &Key, gate: &Arc<Semaphore>) -> Result<SessionLookup, Error> {
        let mut book = self.registry.lock();
        match book.live.get(key) {
            Some(live) => Ok(SessionLookup::Live(Arc::clone(live))),
            None => self.make_in(&mut book, key, gate).map(SessionLookup::New),
        }
    }

    /// Registers a new session of this name.
    pub(super) fn make(&self, key: &Key, gate: &Arc<Semaphore>) -> Result<Unborn, Error> {
        self.make_in(&mut self.registry.lock(), key, gate)
    }

    /// Returns the sessions of a scope, sorted by name.
    pub(super) fn infos(&self, scope: &Scope) -> Vec<SessionInfo> {
        let registry = self.registry.lock();
        let own = registry.live.iter().filter(|((owner, _), _)| owner == scope);
        let mut found: Vec<_> = own.map(|((_, id), live)| live.info(id)).collect();
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found
    }

    /// Registers a new session and starts its task.
    fn make_in(&self, book: &mut Registry, key: &Key, gate: &Arc<Semaphore>) -> Result<Unborn, Error> {
        if book.closed {
            return Err(Error::Closing);
        }
        if book.live.contains_key(key) {
            return Err(Error::Taken(key.1.clone()));
        }
        if book.live.len() >= self.settings.max && !book.make_room(&key.0, self.settings.max) {
            return Err(Error::TooMany(self.settings.max));
        }
        let (live, calls) = Live::new(book.endings.take(key));
        let live = Arc::new(live);
        book.live.insert(key.clone(), Arc::clone(&live));
        let (birth, born) = oneshot::channel();
        let keeper = SessionTask {
            key: key.clone(),
            live: Arc::clone(&live),
            calls,
            registry: self.registry.clone(),
            settings: self.settings,
            gate: Arc::clone(gate),
        };
        let mut keepers = self.keepers();
        while keepers.try_join_next().is_some() {}
        keepers.spawn(keeper.keep(born));
        Ok(Unborn { live, birth })
    }

    pub(super) fn find(&self, key: &Key) -> Result<Arc<Live>, Error> {
        let live = self.registry.lock().live.get(key).cloned();
        live.ok_or_else(|| Error::Unknown(key.1.clone()))
    }

    /// Ends all sessions, and waits for that.
    pub(super) async fn close(&self) {
        let live: Vec<_> = {
            let mut book = self.registry.lock();
            book.closed = true;
            book.live.values().cloned().collect()
        };
        for live in live {
            live.stop();
        }
        let mut keepers = std::mem::take(&mut *self.keepers());
        while keepers.join_next().await.is_some() {}
    }

    fn keepers(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
