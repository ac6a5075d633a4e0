//! Sessions: Python interpreters that keep their state from one evaluation to the next.
//!
//! Each is a guest in a cell of its own, with a keeper: a task that owns it, has it evaluate one piece of code after the
//! other, and ends it when it has been idle, or there, for too long. Scopes do not see each other's.

mod ending;
mod error;
mod evaluation;
mod forking;
mod info;
mod interpreter;
mod keeper;
mod live;
mod words;

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
use keeper::Keeper;
pub(super) use live::Work;
use live::{Called, Live, Unborn};

/// How many sessions there may be, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionSettings {
    /// Sessions of all scopes at once.
    pub max: usize,
    /// A session that nobody has used for so long is ended.
    pub idle: Timeout,
    /// A session that is so old is ended, once it does not evaluate.
    pub lifetime: Timeout,
}

/// A session's name is its scope's own.
type Key = (Scope, SessionId);

/// The sessions of a backend.
#[derive(Debug)]
pub(super) struct Sessions {
    settings: SessionSettings,
    book: Mutex<Book>,
    keepers: Mutex<JoinSet<()>>,
}

/// Who is there, and who was.
#[derive(Debug, Default)]
struct Book {
    live: HashMap<Key, Arc<Live>>,
    endings: Endings,
    closed: bool,
}

/// A session that was looked for.
enum Found {
    Live(Arc<Live>),
    /// There was none; this one waits for its interpreter.
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

    /// The session of this name, else one that was not there.
    fn find_or_make(self: &Arc<Self>, key: &Key, gate: &Arc<Semaphore>) -> Result<Found, Error> {
        let mut book = self.book();
        match book.live.get(key) {
            Some(live) => Ok(Found::Live(Arc::clone(live))),
            None => self.make(&mut book, key, gate).map(Found::New),
        }
    }

    /// A name and a keeper for a session that has neither.
    fn make(self: &Arc<Self>, book: &mut Book, key: &Key, gate: &Arc<Semaphore>) -> Result<Unborn, Error> {
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
        let keeper = Keeper {
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

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keepers(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Ends the session that has been idle for longest of whoever has the most, if a scope has less than its share of `max`
    /// sessions; whether it did.
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
    /// Evaluates the request's code in the session of this name, which is made if there is none.
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
                Called::NotBegun(work) if work.is_taken_back() => return Err(Error::TakenBack(key.1).into()),
                Called::NotBegun(_) => return Err(Error::Busy(key.1).into()),
                Called::Lost => return Err(Error::Closing.into()),
            }
        }
    }

    /// Makes a session before its first use.
    ///
    /// # Errors
    /// If there is one of this name, or too many, or it cannot be started.
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

    /// Makes a copy of a session as it is, once it does not evaluate, in a cell of its own.
    ///
    /// # Errors
    /// If there is none of this name, or one of the copy's, or too many, or it cannot be copied.
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

    /// The sessions of a scope, by name.
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
    /// If there is none of this name in the scope.
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
        // Whoever counts processor time by process has to know how long this one may last.
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

/// When a request's own time is up.
fn deadline(request: &Request, since: Instant) -> Instant {
    since + request.limits.timeout.as_duration()
}
