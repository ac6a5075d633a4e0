//! Sessions: Python interpreters that keep their state between evaluations.
//!
//! Each is a guest in a cell of its own, owned by a task that runs its evaluations one at a time and ends it
//! when its idle time or lifetime is over. A scope does not see the sessions of others.

mod ending;
mod error;
mod evaluation;
mod forking;
mod info;
mod interpreter;
mod live;
mod messages;
mod task;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_policy::{ExecutionResult, Language, Limits, Request, Scope, SessionId, Timeout};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

pub use error::Error;
pub use info::SessionInfo;

use super::{Fence, Local};
use ending::{Endings, Reason};
use interpreter::Interpreter;
pub(super) use interpreter::Origin as SessionOrigin;
pub(super) use live::Work;
use live::{Called, Live, Unborn};
use task::SessionTask;

/// Limits of sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionSettings {
    /// Maximum number of sessions of all scopes.
    pub max: usize,
    /// Idle time after which a session is ended.
    pub idle: Timeout,
    /// Age at which a session is ended, once no evaluation runs.
    pub lifetime: Timeout,
}

/// Session names are unique within a scope.
type Key = (Scope, SessionId);

/// The sessions of a backend.
#[derive(Debug)]
pub(super) struct Sessions {
    settings: SessionSettings,
    book: Mutex<Registry>,
    keepers: Mutex<JoinSet<()>>,
}

/// The registry of sessions.
#[derive(Debug, Default)]
struct Registry {
    live: HashMap<Key, Arc<Live>>,
    endings: Endings,
    closed: bool,
}

/// The result of looking up a session.
enum Found {
    Live(Arc<Live>),
    /// Newly registered; it awaits its interpreter.
    New(Unborn),
}

impl Sessions {
    pub(super) fn new(settings: SessionSettings) -> Self {
        Self {
            settings,
            book: Mutex::default(),
            keepers: Mutex::default(),
        }
    }

    /// Returns the session of this name, registering a new one if there is none.
    fn find_or_make(self: &Arc<Self>, key: &Key, gate: &Arc<Semaphore>) -> Result<Found, Error> {
        let mut book = self.book();
        match book.live.get(key) {
            Some(live) => Ok(Found::Live(Arc::clone(live))),
            None => self.make(&mut book, key, gate).map(Found::New),
        }
    }

    /// Registers a new session and starts its task.
    fn make(
        self: &Arc<Self>,
        book: &mut Registry,
        key: &Key,
        gate: &Arc<Semaphore>,
    ) -> Result<Unborn, Error> {
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
            sessions: Arc::clone(self),
            gate: Arc::clone(gate),
        };
        let mut keepers = self.keepers();
        while keepers.try_join_next().is_some() {}
        keepers.spawn(keeper.keep(born));
        Ok(Unborn { live, birth })
    }

    fn find(&self, key: &Key) -> Result<Arc<Live>, Error> {
        let live = self.book().live.get(key).cloned();
        live.ok_or_else(|| Error::Unknown(key.1.clone()))
    }

    /// Ends all sessions, and waits for that.
    pub(super) async fn close(&self) {
        let live: Vec<_> = {
            let mut book = self.book();
            book.closed = true;
            book.live.values().cloned().collect()
        };
        for live in live {
            live.stop();
        }
        let mut keepers = std::mem::take(&mut *self.keepers());
        while keepers.join_next().await.is_some() {}
    }

    fn book(&self) -> MutexGuard<'_, Registry> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keepers(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registry {
    /// Evicts the longest-idle session of the scope with the most, if `scope` has fewer than its share of
    /// `max`. Returns `true` if it did.
    fn make_room(&mut self, scope: &Scope, max: usize) -> bool {
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

impl Local {
    /// Evaluates the request's code in the session of this name, creating it if there is none.
    pub(super) async fn evaluate(
        &self,
        id: &SessionId,
        mut work: Work,
    ) -> Result<ExecutionResult, super::Error> {
        check(&work.request, work.fence)?;
        let key = (work.request.scope.clone(), id.clone());
        loop {
            let live = match self.sessions.find_or_make(&key, &self.gate)? {
                Found::Live(live) => live,
                Found::New(unborn) => self.bear(unborn, &work.request, work.fence).await?,
            };
            match live.evaluate(work).await {
                Called::Done(result) => return result,
                Called::Back(back) => work = back,
                Called::NotBegun(work) if work.is_cancelled() => return Err(Error::Cancelled(key.1).into()),
                Called::NotBegun(_) => return Err(Error::Busy(key.1).into()),
                Called::Lost => return Err(Error::Closing.into()),
            }
        }
    }

    /// Creates a session before its first use.
    ///
    /// # Errors
    /// If the name is taken, there are too many, or the interpreter cannot be started.
    pub async fn new_session(
        &self,
        (scope, id): (&Scope, &SessionId),
        limits: Limits,
        fence: Fence,
    ) -> Result<(), super::Error> {
        let request = Request {
            limits,
            scope: scope.clone(),
            session: Some(id.clone()),
            ..Request::new(Language::Python, "")
        };
        check(&request, fence)?;
        let key = (scope.clone(), id.clone());
        let unborn = {
            let mut book = self.sessions.book();
            self.sessions.make(&mut book, &key, &self.gate)?
        };
        self.bear(unborn, &request, fence).await.map(drop)
    }

    /// Forks a session into a cell of its own, once no evaluation runs.
    ///
    /// # Errors
    /// If there is no such session, the new name is taken, there are too many, or it cannot be forked.
    pub async fn fork_session(
        &self,
        scope: &Scope,
        from: &SessionId,
        to: &SessionId,
    ) -> Result<(), super::Error> {
        let original = self.sessions.find(&(scope.clone(), from.clone()))?;
        let key = (scope.clone(), to.clone());
        let unborn = {
            let mut book = self.sessions.book();
            self.sessions.make(&mut book, &key, &self.gate)?
        };
        match original.fork(unborn).await {
            Called::Done(result) => result,
            Called::NotBegun(_) => Err(Error::Busy(from.clone()).into()),
            Called::Back(_) | Called::Lost => Err(Error::Unknown(from.clone()).into()),
        }
    }

    /// Returns the sessions of a scope, sorted by name.
    pub fn sessions(&self, scope: &Scope) -> Vec<SessionInfo> {
        let book = self.sessions.book();
        let own = book.live.iter().filter(|((owner, _), _)| owner == scope);
        let mut found: Vec<_> = own.map(|((_, id), live)| live.info(id)).collect();
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found
    }

    /// Ends a session, evaluating or not, and waits for that. Its forks live on.
    ///
    /// # Errors
    /// If the scope has no session of this name.
    pub async fn remove_session(&self, scope: &Scope, id: &SessionId) -> Result<(), super::Error> {
        let live = self.sessions.find(&(scope.clone(), id.clone()))?;
        live.stop();
        live.gone().await;
        Ok(())
    }

    /// Starts a session's interpreter.
    async fn bear(&self, unborn: Unborn, request: &Request, fence: Fence) -> Result<Arc<Live>, super::Error> {
        let served = self
            .lanes
            .serve(request, fence, &self.settings, &self.groups)
            .await?;
        // A per-process limit on processor time must cover the session's lifetime.
        let held = Request {
            code: String::new(),
            limits: Limits {
                timeout: self.settings.sessions.lifetime,
                ..request.limits
            },
            ..request.clone()
        };
        let (guest, origin) = match served.session(&held, &self.settings).await {
            Ok(started) => started,
            Err(error) => {
                self.retire(served, None, None);
                return Err(error);
            }
        };
        let groups = guest.group.as_ref().and(self.groups.get());
        let interpreter = Interpreter {
            cgroup: groups.map(|groups| groups.version().to_owned()),
            guest,
            served,
            origin,
            made_for: held,
            fence,
        };
        Ok(unborn.bear(interpreter).await)
    }
}

fn check(request: &Request, fence: Fence) -> Result<(), Error> {
    if request.language != Language::Python {
        return Err(Error::Language(request.language));
    }
    if fence.is_none() {
        return Err(Error::Unfenced);
    }
    Ok(())
}

/// Returns the deadline of a request.
fn deadline(request: &Request, since: Instant) -> Instant {
    since + request.limits.timeout.as_duration()
}
