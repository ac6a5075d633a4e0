//! The sessions of MCP over HTTP: bounded for each client and in all, and ended when nobody uses them or their key is
//! revoked.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::error::{ApiError, Reason};
use crate::api::key_uses::{KeyUse, KeyUses};
use crate::api::keys::Grant;
use crate::api::rights::Right;
use crate::api::tenant::Account;
use ringfence_http::random_hex;
use ringfence_mcp::session::{Session, SessionOwner};

/// The right that tools need on every path.
pub(super) const RIGHT: Right = Right::Tools;

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
    requests: usize,
    /// Open streams that belong to no request.
    streams: usize,
    /// Time at which the last of them ended.
    last: Instant,
}

/// A session in use: it does not expire.
#[derive(Debug)]
pub(super) struct InUse {
    open: Arc<OpenSession>,
    kind: Kind,
}

/// A kind of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    /// A stream that belongs to no request: clients open one and leave it open, so it shows nothing of a use.
    Stream,
}

/// Eviction order of sessions without a request: accounts with the most sessions first, then sessions without a stream,
/// then the least recently used.
type Idleness = (Reverse<usize>, usize, Instant);

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
            requests: 0,
            streams: 0,
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
    /// Adds a session. At a limit of the account its own session that makes room first ends; at that of all keys the first of
    /// any. Its client gets 404 at the next request, and begins a new one, as the protocol says.
    fn insert(&self, id: String, new: Arc<OpenSession>) -> Result<(), ApiError> {
        let mut all = self.lock();
        let mut of_account: HashMap<&Account, usize> = HashMap::new();
        for open in all.values() {
            *of_account.entry(&open.account).or_default() += 1;
        }
        let has_most = of_account
            .get(&new.account)
            .is_some_and(|own| *own >= MAX_OF_ACCOUNT);
        let of_keys = all.values().filter(|open| !open.is_owners).count();
        if has_most || (!new.is_owners && of_keys >= MAX_OF_KEYS) {
            let may_end = |open: &OpenSession| match has_most {
                true => open.account == new.account,
                false => !open.is_owners,
            };
            let first = all
                .iter()
                .filter(|(_, open)| may_end(open))
                .filter_map(|(id, open)| {
                    let share = of_account.get(&open.account).copied().unwrap_or_default();
                    Some((open.activity.idleness(share)?, id.clone()))
                })
                .min();
            let Some((_, first)) = first else {
                return Err(ApiError::new(
                    Reason::Busy,
                    "too many sessions of MCP are open, with a request under way in each",
                    "end one with DELETE /mcp, or ask again after `Retry-After`",
                ));
            };
            if let Some(first) = all.remove(&first) {
                first.stop.send_replace(true);
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
        (uses.requests == 0 && uses.streams == 0).then_some(uses.last)
    }

    /// Returns the session's eviction rank; `None` while it serves a request. `share` is the number of sessions of its account.
    fn idleness(&self, share: usize) -> Option<Idleness> {
        let uses = self.lock();
        (uses.requests == 0).then_some((Reverse(share), uses.streams.min(1), uses.last))
    }
}

impl Uses {
    fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Request => &mut self.requests,
            Kind::Stream => &mut self.streams,
        }
    }
}

impl InUse {
    fn of(open: Arc<OpenSession>) -> Self {
        open.activity.lock().requests += 1;
        Self {
            open,
            kind: Kind::Request,
        }
    }

    /// Turns it into the use of a stream that belongs to no request.
    pub(super) fn listening(mut self) -> Self {
        let mut uses = self.open.activity.lock();
        *uses.of(self.kind) -= 1;
        *uses.of(Kind::Stream) += 1;
        drop(uses);
        self.kind = Kind::Stream;
        self
    }

    pub(super) fn session(&self) -> &Session {
        &self.open.session
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut uses = self.open.activity.lock();
        *uses.of(self.kind) -= 1;
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
