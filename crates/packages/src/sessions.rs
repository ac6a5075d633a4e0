//! A backend that holds the packages of sessions while they live, longer than the call that named the
//! packages.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_exec::backend::{self, Backend, Fingerprint, Running, Unavailable};
use ringfence_exec::local::{Connection, Fence, Local};
use ringfence_exec::runner::RunSpec;
use ringfence_policy::{Language, PACKAGES, Request, Scope, SessionId, Target};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::default::{DefaultPackages, has_defaults};
use crate::digest::Digest;
use crate::error::{Error, StoreError};
use crate::store::{Checkout, Store};

/// A backend whose sessions keep the packages that they were created with: those that were named, else those of the
/// configuration.
#[derive(Debug)]
pub struct SessionPackages {
    backend: Arc<dyn Backend>,
    local: Arc<Local>,
    store: Store,
    defaults: Option<Arc<DefaultPackages>>,
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
    checkout: Arc<Checkout>,
    /// Set if the session was created with them because nobody named others.
    by_default: bool,
    evaluations: watch::Sender<usize>,
}

/// An evaluation in a session with the packages of the configuration.
#[derive(Debug)]
struct DefaultEvaluation {
    spec: RunSpec,
    used: Use,
    checkout: Arc<Checkout>,
    _evaluating: Evaluating,
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
    pub fn new(
        backend: Arc<dyn Backend>,
        local: Arc<Local>,
        store: Store,
        defaults: Option<Arc<DefaultPackages>>,
    ) -> Self {
        Self {
            backend,
            local,
            store,
            defaults,
            kept: Arc::default(),
            keepers: Mutex::default(),
        }
    }

    /// Returns the packages of the configuration, if it has any.
    pub fn defaults(&self) -> Option<Arc<DefaultPackages>> {
        self.defaults.clone()
    }

    /// Creates a session with the packages that are kept under a key, or without one with those of the configuration.
    ///
    /// # Errors
    /// If none are kept under this key, they are for another interpreter than that of sessions, or the session cannot be made.
    pub async fn new_session(
        &self,
        id: &SessionId,
        mut request: Request,
        fence: Fence,
        key: Option<&Digest>,
    ) -> Result<(), backend::Error> {
        let checkout = match (key, &self.defaults) {
            (Some(key), _) => Some(self.kept_under(key)?),
            (None, Some(defaults)) => {
                let providing = defaults.provide(&request.scope, fence);
                Some(providing.await.map_err(Error::into_refusal)?)
            }
            (None, None) => None,
        };
        let making = checkout.map(|checkout| {
            checkout.add_to(&mut request.mounts, &mut request.env);
            self.keep(Arc::new(checkout), &request.scope, id)
        });
        let made = self.local.new_session(id, &request, fence).await;
        made.map_err(|error| backend::Error::from(&error))?;
        if let (None, Some((used, ..))) = (key, &making) {
            self.set_by_default(used);
        }
        Ok(())
    }

    /// Forks a session, whose copy has its packages.
    ///
    /// # Errors
    /// As for [`Local::fork_session`].
    pub async fn fork_session(
        &self,
        scope: &Scope,
        from: &SessionId,
        to: &SessionId,
    ) -> Result<(), backend::Error> {
        let of_original: Vec<(Arc<Checkout>, bool)> = {
            let all = self.kept.lock();
            let own = all
                .iter()
                .filter(|(used, _)| used.scope == *scope && used.session == *from);
            own.map(|(_, entry)| (Arc::clone(&entry.checkout), entry.by_default))
                .collect()
        };
        let kept = of_original.into_iter().map(|(checkout, by_default)| {
            let (used, _, evaluating) = self.keep(checkout, scope, to);
            (used, by_default, evaluating)
        });
        let kept: Vec<_> = kept.collect();
        let forked = self.local.fork_session(scope, from, to).await;
        forked.map_err(|error| backend::Error::from(&error))?;
        for (used, ..) in kept.iter().filter(|(_, by_default, _)| *by_default) {
            self.set_by_default(used);
        }
        Ok(())
    }

    fn kept_under(&self, key: &Digest) -> Result<Checkout, backend::Error> {
        let opened = self.store.open(key, |_| self.local.fingerprint(Language::Python));
        let opened = opened.map_err(|error| Error::from(error).into_refusal())?;
        opened.ok_or_else(|| Error::from(StoreError::Gone).into_refusal())
    }

    fn lives(&self, scope: &Scope, session: &SessionId) -> bool {
        let all = self.local.sessions(scope);
        all.iter().any(|info| info.id == *session)
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
        let opened = opened.map_err(|error| Error::from(error).into_refusal())?;
        Ok(opened.map(|checkout| self.keep(Arc::new(checkout), &request.scope, session).2))
    }

    /// Returns an evaluation whose session has, or gets, the packages of the configuration. A session that was created with
    /// others, or none, keeps these.
    async fn with_defaults(&self, spec: &RunSpec) -> Result<Option<DefaultEvaluation>, backend::Error> {
        let (Some(session), Some(defaults)) = (&spec.request.session, &self.defaults) else {
            return Ok(None);
        };
        let scope = &spec.request.scope;
        // With the mount the session also gets them if it ends before this evaluation begins, and is created again.
        if let Some((used, checkout, evaluating)) = self.kept_by_default(scope, session) {
            let mut spec = spec.clone();
            checkout.add_to(&mut spec.request.mounts, &mut spec.request.env);
            return Ok(Some(DefaultEvaluation {
                spec,
                used,
                checkout,
                _evaluating: evaluating,
            }));
        }
        if self.lives(scope, session) {
            return Ok(None);
        }
        let added = defaults.add(spec).await.map_err(Error::into_refusal)?;
        Ok(added.map(|(spec, checkout)| {
            let (used, checkout, evaluating) = self.keep(Arc::new(checkout), scope, session);
            DefaultEvaluation {
                spec,
                used,
                checkout,
                _evaluating: evaluating,
            }
        }))
    }

    /// Returns the packages of the configuration that a session was created with.
    fn kept_by_default(
        &self,
        scope: &Scope,
        session: &SessionId,
    ) -> Option<(Use, Arc<Checkout>, Evaluating)> {
        let all = self.kept.lock();
        let (used, entry) = all
            .iter()
            .find(|(used, entry)| entry.by_default && used.scope == *scope && used.session == *session)?;
        let evaluating = Evaluating::begin(&entry.evaluations);
        Some((used.clone(), Arc::clone(&entry.checkout), evaluating))
    }

    fn set_by_default(&self, used: &Use) {
        if let Some(entry) = self.kept.lock().get_mut(used) {
            entry.by_default = true;
        }
    }

    fn keep(
        &self,
        checkout: Arc<Checkout>,
        scope: &Scope,
        session: &SessionId,
    ) -> (Use, Arc<Checkout>, Evaluating) {
        let used = Use {
            scope: scope.clone(),
            session: session.clone(),
            key: checkout.key.clone(),
        };
        let mut all = self.kept.lock();
        if let Some(entry) = all.get(&used) {
            let evaluating = Evaluating::begin(&entry.evaluations);
            return (used, Arc::clone(&entry.checkout), evaluating);
        }
        let entry = Entry {
            checkout: Arc::clone(&checkout),
            by_default: false,
            evaluations: watch::Sender::new(0),
        };
        let evaluating = Evaluating::begin(&entry.evaluations);
        let keeper = keep(
            Arc::clone(&self.kept),
            Arc::clone(&self.local),
            used.clone(),
            entry.evaluations.subscribe(),
        );
        all.insert(used.clone(), entry);
        drop(all);
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        while keepers.try_join_next().is_some() {}
        keepers.spawn(keeper);
        (used, checkout, evaluating)
    }
}

impl Backend for SessionPackages {
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
        Box::pin(async move {
            let evaluating = self.begin(spec)?;
            if evaluating.is_some() || !has_defaults(spec) {
                return self.backend.run(spec, connection).await;
            }
            let Some(evaluation) = self.with_defaults(spec).await? else {
                return self.backend.run(spec, connection).await;
            };
            let mut result = self.backend.run(&evaluation.spec, connection).await?;
            // It was evaluated with this mount, so the session has it.
            self.set_by_default(&evaluation.used);
            evaluation.checkout.describe(&mut result);
            Ok(result)
        })
    }

    fn unavailable<'a>(&'a self, target: &'a Target) -> Unavailable<'a> {
        self.backend.unavailable(target)
    }

    fn fingerprint(&self, spec: &RunSpec) -> Option<Fingerprint> {
        self.backend.fingerprint(spec)
    }
}
