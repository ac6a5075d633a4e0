//! A backend that keeps the packages of sessions as long as these live: the run that named them ends before.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_exec::backend::{self, Backend, Fingerprint, Reason, Running, Unavailable};
use ringfence_exec::local::{Connection, Local};
use ringfence_exec::runner::RunSpec;
use ringfence_packages::{Checkout, Digest, Store};
use ringfence_policy::{Language, PACKAGES, Scope, SessionId, Target};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Returns `backend` with packages of sessions, which are those of `local`.
pub fn kept_for_sessions(backend: Arc<dyn Backend>, local: Arc<Local>, store: Store) -> Arc<dyn Backend> {
    Arc::new(SessionBackend {
        backend,
        local,
        store,
        kept: Arc::default(),
        keepers: Mutex::default(),
    })
}

#[derive(Debug)]
struct SessionBackend {
    backend: Arc<dyn Backend>,
    local: Arc<Local>,
    store: Store,
    kept: Arc<Kept>,
    /// One task for each set of packages of each session.
    keepers: Mutex<JoinSet<()>>,
}

/// The packages of sessions.
#[derive(Debug, Default)]
struct Kept(Mutex<BTreeMap<Use, Entry>>);

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

impl Kept {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Use, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps packages until the session has ended and no evaluation could make it again.
async fn keep(kept: Arc<Kept>, local: Arc<Local>, used: Use, mut evaluations: watch::Receiver<usize>) {
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

impl SessionBackend {
    /// Keeps the packages of an evaluation in a session; `None` if it has none of the store.
    fn begin(&self, spec: &RunSpec) -> Result<Option<Evaluating>, backend::Error> {
        let request = &spec.request;
        let mut mounts = request.mounts.iter();
        let mount = mounts.find(|mount| mount.guest() == Path::new(PACKAGES));
        let (Some(session), Some(mount), Target::Local) = (&request.session, mount, &spec.target) else {
            return Ok(None);
        };
        let Some(python) = self.local.fingerprint(Language::Python) else {
            return Ok(None);
        };
        let opened = self.store.open_directory(&mount.host, &python);
        let opened = opened.map_err(|error| {
            let error = ringfence_packages::Error::from(error);
            backend::Error {
                reason: Reason::Unavailable,
                message: error.to_string(),
                hint: error.hint().into(),
            }
        })?;
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

impl Backend for SessionBackend {
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
