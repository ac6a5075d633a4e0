//! The sessions of MCP over HTTP: bounded for each client and in all, and ended when nobody uses them or their key is
//! revoked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::RIGHT;
use crate::api::error::{ApiError, Reason};
use crate::api::key_uses::{KeyUse, KeyUses};
use crate::api::keys::Grant;
use crate::api::tenant::Account;
use crate::http::random_hex;
use crate::mcp::session::{Session, SessionOwner};

/// Maximum number of sessions of one account.
const MAX_OF_ACCOUNT: usize = 16;

/// Maximum number of sessions of all keys. Those of the server's own user are not among them.
const MAX_OF_KEYS: usize = 128;

/// Lifetime of a session without a request or an open stream.
const MAX_IDLE: Duration = Duration::from_secs(30 * 60);

/// Digits of an id: 256 bits.
const ID_DIGITS: usize = 64;

/// All sessions, with their tasks.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: Arc<Open>,
    tasks: Mutex<JoinSet<()>>,
}

#[derive(Debug, Default)]
struct Open(Mutex<HashMap<String, Arc<OpenSession>>>);

/// An open session of a client.
#[derive(Debug)]
pub(super) struct OpenSession {
    session: Session,
    client: String,
    account: Account,
    is_owners: bool,
    activity: Arc<Activity>,
    stop: watch::Sender<bool>,
}

/// The uses of a session: requests and open streams.
#[derive(Debug)]
struct Activity(Mutex<Uses>);

#[derive(Debug)]
struct Uses {
    now: usize,
    last: Instant,
}

/// A session in use: it does not expire.
#[derive(Debug)]
pub(super) struct InUse {
    open: Arc<OpenSession>,
}

impl Sessions {
    /// Opens a session, and returns it with its id.
    pub(super) fn open(
        &self,
        grant: &Grant,
        owner: SessionOwner,
        keys: &KeyUses,
    ) -> Result<(String, InUse), ApiError> {
        let id = random_hex(ID_DIGITS).map_err(|error| {
            ApiError::new(
                Reason::Internal,
                format!("the kernel returns no random bytes: {error}"),
                "report this as a defect",
            )
        })?;
        let (stop, stopped) = watch::channel(false);
        let activity = Arc::new(Activity(Mutex::new(Uses {
            now: 0,
            last: Instant::now(),
        })));
        let key = keys.begin(&grant.client, RIGHT);
        let end = ended(stopped, Arc::clone(&activity), key);
        let (session, work) = Session::new(owner, end);
        let open = Arc::new(OpenSession {
            session,
            client: grant.client.clone(),
            account: grant.allowance.account.clone(),
            is_owners: grant.is_owner(),
            activity,
            stop,
        });
        self.open.insert(id.clone(), Arc::clone(&open))?;
        let (all, own) = (Arc::clone(&self.open), id.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            work.await;
            all.lock().remove(&own);
        });
        Ok((id, InUse::of(open)))
    }

    /// Returns a client's session. One of another client is as unknown as none.
    pub(super) fn find(&self, grant: &Grant, id: &str) -> Result<InUse, ApiError> {
        let all = self.open.lock();
        let found = all.get(id).filter(|open| open.client == grant.client);
        found.map(|open| InUse::of(Arc::clone(open))).ok_or_else(|| {
            ApiError::new(
                Reason::NotFound,
                "there is no session with this id, or it has ended",
                "begin a new one: POST `initialize` without `Mcp-Session-Id`",
            )
        })
    }

    /// Returns the number of open sessions.
    pub(crate) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Ends a client's session: its calls are cancelled, and its streams end.
    pub(super) fn end(&self, grant: &Grant, id: &str) -> Result<(), ApiError> {
        self.find(grant, id)?;
        if let Some(open) = self.open.lock().remove(id) {
            open.stop.send_replace(true);
        }
        Ok(())
    }

    /// Ends all sessions, and waits until their calls have ended.
    pub(crate) async fn close(&self) {
        for open in self.open.lock().values() {
            open.stop.send_replace(true);
        }
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}

impl Open {
    /// Adds a session. At a limit, the account's own that has not been used for the longest time makes room.
    fn insert(&self, id: String, new: Arc<OpenSession>) -> Result<(), ApiError> {
        let mut all = self.lock();
        let is_own = |open: &OpenSession| open.account == new.account;
        let own = all.values().filter(|open| is_own(open)).count();
        let of_keys = all.values().filter(|open| !open.is_owners).count();
        if own >= MAX_OF_ACCOUNT || (!new.is_owners && of_keys >= MAX_OF_KEYS) {
            let unused = all.iter().filter(|(_, open)| is_own(open));
            let oldest = unused
                .filter_map(|(id, open)| Some((open.activity.unused_since()?, id.clone())))
                .min();
            let Some((_, oldest)) = oldest else {
                return Err(ApiError::new(
                    Reason::Busy,
                    "too many sessions of MCP are open and in use",
                    "end one with DELETE /mcp, or ask again after `Retry-After`",
                ));
            };
            if let Some(oldest) = all.remove(&oldest) {
                oldest.stop.send_replace(true);
            }
        }
        all.insert(id, new);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<OpenSession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Activity {
    fn lock(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time of the last use; `None` during one.
    fn unused_since(&self) -> Option<Instant> {
        let uses = self.lock();
        (uses.now == 0).then_some(uses.last)
    }
}

impl InUse {
    fn of(open: Arc<OpenSession>) -> Self {
        open.activity.lock().now += 1;
        Self { open }
    }

    pub(super) fn session(&self) -> &Session {
        &self.open.session
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut uses = self.open.activity.lock();
        uses.now -= 1;
        uses.last = Instant::now();
    }
}

/// Resolves when a session is to end: somebody ended it, nobody uses it, or its key has lost the right.
async fn ended(mut stopped: watch::Receiver<bool>, activity: Arc<Activity>, key: KeyUse) {
    let unused = async {
        loop {
            let idle = activity.unused_since().map(|since| since.elapsed());
            match MAX_IDLE.checked_sub(idle.unwrap_or_default()) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    };
    tokio::select! {
        // An error means that nobody has the session any more.
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = unused => {}
        () = key.ended() => {}
    }
}
