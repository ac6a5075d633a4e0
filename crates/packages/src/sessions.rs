//! A backend that holds the packages of sessions while they live, longer than the call that named the
//! packages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_exec::backend::{self, Backend, Fingerprint, Reason, Running, Unavailable};
use ringfence_exec::local::{Connection, Fence, Local};
use ringfence_exec::runner::RunSpec;
use ringfence_policy::{Language, PACKAGES, Request, Scope, SessionId, Target};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::digest::Digest;
use crate::error::{Error, StoreError};
use crate::store::{Checkout, Store};

/// A backend whose sessions keep the packages that they were created with.
#[derive(Debug)]
pub struct SessionPackages {
    backend: Arc<dyn Backend>,
    local: Arc<Local>,
    store: Store,
    kept: Arc<SessionCheckouts>,
    /// One task for each set of packages of each session.
    keepers: Mutex<JoinSet<()>>,
}

/// The packages of sessions.
#[derive(Debug, Default)]
struct SessionCheckouts(Mutex<BTreeMap<Use, Entry>>);

/// A session with a set of packages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    scope: Scope,
    session: SessionId,
    key: Digest,
}

#[derive(Debug)]
struct Entry {
    _checkout: Checkout,
    evaluations: watch::Sender<usize>,
}

/// An evaluation with packages, which may be making its session.
#[derive(Debug)]
struct Evaluating(watch::Sender<usize>);

impl Evaluating {
    fn begin(evaluations: &watch::Sender<usize>) -> Self {
        evaluations.send_modify(|running| *running += 1);
        Self(evaluations.clone())
    }
}

impl Drop for Evaluating {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}

impl SessionCheckouts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Use, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps packages until the session has ended and no evaluation could make it again.
async fn keep(
    kept: Arc<SessionCheckouts>,
    local: Arc<Local>,
    used: Use,
    mut evaluations: watch::Receiver<usize>,
) {
    loop {
        // Its sender is in the entry.
        let _ = evaluations.wait_for(|running| *running == 0).await;
        local.session_ended(&used.scope, &used.session).await;
        let mut all = kept.lock();
        let lives = local
            .sessions(&used.scope)
            .iter()
            .any(|info| info.id == used.session);
        if *evaluations.borrow() == 0 && !lives {
            all.remove(&used);
            return;
        }
    }
}

impl SessionPackages {
    /// Creates one around `backend`, whose sessions are those of `local`.
    pub fn new(backend: Arc<dyn Backend>, local: Arc<Local>, store: Store) -> Self {
        Self {
            backend,
            local,
            store,
            kept: Arc::default(),
            keepers: Mutex::default(),
        }
    }

    /// Creates a session with kept packages.
    ///
    /// # Errors
    /// If none are kept under this key, they are for another interpreter than that of sessions, or the session cannot be made.
    pub async fn new_session(
        &self,
        id: &SessionId,
        mut request: Request,
        fence: Fence,
        key: &Digest,
    ) -> Result<(), backend::Error> {
        let opened = self.store.open(key, |_| self.local.fingerprint(Language::Python));
        let opened = opened.map_err(refused)?;
        let checkout = opened.ok_or_else(|| refused(StoreError::Gone))?;
        checkout.add_to(&mut request.mounts, &mut request.env);
        let _making = self.keep(checkout, &request.scope, id);
        let made = self.local.new_session(id, &request, fence).await;
        made.map_err(|error| backend::Error::from(&error))
    }

    /// Keeps the packages of an evaluation in a session; `None` if it has none of the store.
    fn begin(&self, spec: &RunSpec) -> Result<Option<Evaluating>, backend::Error> {
        let request = &spec.request;
        let mut mounts = request.mounts.iter();
        let mount = mounts.find(|mount| mount.guest() == Path::new(PACKAGES));
        let (Some(session), Some(mount), Target::Local) = (&request.session, mount, &spec.target) else {
            return Ok(None);
        };
        let opened = self
            .store
            .open_directory(&mount.host, |_| self.local.fingerprint(Language::Python));
        let opened = opened.map_err(refused)?;
        Ok(opened.map(|checkout| self.keep(checkout, &request.scope, session)))
    }

    fn keep(&self, checkout: Checkout, scope: &Scope, session: &SessionId) -> Evaluating {
        let used = Use {
            scope: scope.clone(),
            session: session.clone(),
            key: checkout.key.clone(),
        };
        let mut all = self.kept.lock();
        if let Some(entry) = all.get(&used) {
            return Evaluating::begin(&entry.evaluations);
        }
        let entry = Entry {
            _checkout: checkout,
            evaluations: watch::Sender::new(0),
        };
        let evaluating = Evaluating::begin(&entry.evaluations);
        let keeper = keep(
            Arc::clone(&self.kept),
            Arc::clone(&self.local),
            used.clone(),
            entry.evaluations.subscribe(),
        );
        all.insert(used, entry);
        drop(all);
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        while keepers.try_join_next().is_some() {}
        keepers.spawn(keeper);
        evaluating
    }
}

fn refused(error: impl Into<Error>) -> backend::Error {
    let error = error.into();
    backend::Error {
        reason: Reason::Unavailable,
        message: error.to_string(),
        hint: error.hint().into(),
    }
}

impl Backend for SessionPackages {
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
        Box::pin(async move {
            let _evaluating = self.begin(spec)?;
            self.backend.run(spec, connection).await
        })
    }

    fn unavailable<'a>(&'a self, target: &'a Target) -> Unavailable<'a> {
        self.backend.unavailable(target)
    }

    fn fingerprint(&self, spec: &RunSpec) -> Option<Fingerprint> {
        self.backend.fingerprint(spec)
    }
}
