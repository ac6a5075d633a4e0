//! Sessions: Python interpreters that keep their state from one evaluation to the next.
//!
//! Each is a guest in a cell of its own, with a keeper: a task that owns it, has it evaluate one piece of code after the
//! other, and ends it when it has been idle, or there, for too long. Scopes do not see each other's.

mod ending;
mod error;
mod evaluation;
mod info;
mod interpreter;
mod keeper;
mod live;
mod words;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_policy::{ExecutionResult, Language, Limits, Network, Request, Scope, SessionId, Timeout};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub use error::Error;
pub use info::SessionInfo;

use super::{Fence, Local, clear_up};
use ending::Endings;
use interpreter::Interpreter;
use keeper::Keeper;
use live::Live;
pub(super) use live::Work;

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

/// A session that has a name and a keeper, and waits for its interpreter. Dropped, it ends.
struct Unborn {
    live: Arc<Live>,
    birth: oneshot::Sender<Interpreter>,
}

impl Sessions {
    pub(super) fn new(settings: SessionSettings) -> Self {
        Self {
            settings,
            book: Mutex::default(),
            keepers: Mutex::default(),
        }
    }

    fn find(&self, key: &Key) -> Option<Arc<Live>> {
        self.book().live.get(key).cloned()
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

impl Local {
    /// Evaluates the request's code in the session of this name, which is made if there is none.
    pub(super) async fn evaluate(
        &self,
        id: &SessionId,
        mut work: Box<Work>,
    ) -> Result<ExecutionResult, super::Error> {
        check(&work.request, work.fence)?;
        let key = (work.request.scope.clone(), id.clone());
        loop {
            let live = match self.sessions.find(&key) {
                Some(live) => live,
                None => {
                    let unborn = self.reserve(&key, None)?;
                    self.bear(unborn, &work.request, work.fence).await?
                }
            };
            match live.evaluate(work).await {
                Ok(result) => return result,
                // It ended before its turn came.
                Err(back) => work = back,
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
            code: String::new(),
            name: String::new(),
            language: Language::Python,
            args: Vec::new(),
            env: Vec::new(),
            limits,
            network: Network::None,
            mounts: Vec::new(),
            workspace: None,
            working_directory: None,
            scope: scope.clone(),
            session: Some(id.clone()),
        };
        check(&request, fence)?;
        let unborn = self.reserve(&(scope.clone(), id.clone()), Some(id))?;
        self.bear(unborn, &request, fence).await.map(drop)
    }

    /// The sessions of a scope, by name.
    pub fn sessions(&self, scope: &Scope) -> Vec<SessionInfo> {
        let book = self.sessions.book();
        let own = book.live.iter().filter(|((owner, _), _)| owner == scope);
        let mut found: Vec<_> = own.map(|((_, id), live)| live.info(id)).collect();
        found.sort_by(|one, other| one.id.cmp(&other.id));
        found
    }

    /// Ends a session, evaluating or not, and waits until nothing of it is left.
    ///
    /// # Errors
    /// If there is none of this name in the scope.
    pub async fn remove_session(&self, scope: &Scope, id: &SessionId) -> Result<(), super::Error> {
        let live = self.sessions.find(&(scope.clone(), id.clone()));
        let live = live.ok_or_else(|| Error::Unknown(id.clone()))?;
        live.stop();
        live.gone().await;
        Ok(())
    }

    /// A name and a keeper for a new session. `taken` is the name to complain of if there is one already, which is
    /// otherwise somebody's who was faster, and is used.
    fn reserve(&self, key: &Key, new: Option<&SessionId>) -> Result<Unborn, Error> {
        let sessions = &self.sessions;
        let mut book = sessions.book();
        if book.closed {
            return Err(Error::Closing);
        }
        if let (Some(id), true) = (new, book.live.contains_key(key)) {
            return Err(Error::Taken(id.clone()));
        }
        if book.live.len() >= sessions.settings.max {
            return Err(Error::TooMany(sessions.settings.max));
        }
        let (live, calls) = Live::new(book.endings.take(key));
        let live = Arc::new(live);
        book.live.insert(key.clone(), Arc::clone(&live));
        let (birth, born) = oneshot::channel();
        let keeper = Keeper {
            key: key.clone(),
            live: Arc::clone(&live),
            calls,
            sessions: Arc::clone(sessions),
            gate: Arc::clone(&self.gate),
        };
        let mut keepers = sessions.keepers();
        while keepers.try_join_next().is_some() {}
        keepers.spawn(keeper.keep(born));
        Ok(Unborn { live, birth })
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
        let (guest, warm) = match served.session(&held, &self.settings).await {
            Ok(started) => started,
            Err(error) => {
                self.retire(served, None);
                return Err(error);
            }
        };
        let groups = guest.group.as_ref().and(self.groups.get());
        let interpreter = Interpreter {
            cgroup: groups.map(|groups| groups.version().to_owned()),
            guest,
            served,
            warm,
            made_for: held,
            fence,
        };
        let Unborn { live, birth } = unborn;
        if let Err(interpreter) = birth.send(interpreter) {
            clear_up(interpreter.served, Some(interpreter.guest)).await;
        }
        Ok(live)
    }
}

fn check(request: &Request, fence: Fence) -> Result<(), Error> {
    if request.language != Language::Python {
        return Err(Error::Language(request.language));
    }
    if fence == Fence::Unfenced {
        return Err(Error::Unfenced);
    }
    Ok(())
}

/// When a request's own time is up.
fn deadline(request: &Request, since: Instant) -> Instant {
    since + request.limits.timeout.as_duration()
}
