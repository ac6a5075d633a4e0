//! The packages of programs, sessions and sandboxes that the operator chose for all of them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_exec::backend::{Backend, Fingerprint, Running, Unavailable};
use ringfence_exec::local::{Connection, Fence};
use ringfence_exec::runner::{RunSpec, Runner};
use ringfence_policy::{Language, Mount, Scope, Target};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::ecosystem::Ecosystem;
use crate::error::Error;
use crate::packages::{Needs, Packages};
use crate::requirement::Requirement;
use crate::store::Checkout;

/// Python packages for everything in the local fence that can have them.
#[derive(Debug)]
pub struct DefaultPackages {
    packages: Packages,
    runner: Arc<Runner>,
    requirements: Vec<Requirement>,
    /// Installations under way: the first call of a tool may not wait for one as long as it takes.
    installing: Mutex<JoinSet<()>>,
}

impl DefaultPackages {
    /// Creates packages that `runner` installs.
    pub fn new(packages: Packages, runner: Runner, requirements: Vec<Requirement>) -> Self {
        Self {
            packages,
            runner: Arc::new(runner),
            requirements,
            installing: Mutex::default(),
        }
    }

    /// Provides the packages. Dropping this does not cancel an installation.
    ///
    /// # Errors
    /// If they cannot be installed or kept.
    pub async fn provide(&self, scope: &Scope, fence: Fence) -> Result<Checkout, Error> {
        let (done, provided) = oneshot::channel();
        let (packages, runner) = (self.packages.clone(), Arc::clone(&self.runner));
        let (requirements, scope) = (self.requirements.clone(), scope.clone());
        let task = async move {
            let needs = Needs {
                ecosystem: Ecosystem::Python,
                requirements: &requirements,
                scope: &scope,
                fence,
            };
            // Nobody may wait any more.
            let _ = done.send(packages.provide(needs, &runner, || {}, None).await);
        };
        {
            let mut installing = self.installing.lock().unwrap_or_else(PoisonError::into_inner);
            while installing.try_join_next().is_some() {}
            installing.spawn(task);
        }
        provided.await.unwrap_or(Err(Error::Panicked))
    }

    /// Returns a copy of a specification with the packages; `None` if its program is of a kind that has none.
    ///
    /// # Errors
    /// If something else is mounted at their place, or they cannot be installed or kept.
    pub async fn add(&self, spec: &RunSpec) -> Result<Option<(RunSpec, Checkout)>, Error> {
        if !has_defaults(spec) {
            return Ok(None);
        }
        check_mounts(Ecosystem::Python, &spec.request.mounts)?;
        let checkout = self.provide(&spec.request.scope, spec.fence).await?;
        let mut spec = spec.clone();
        checkout.add_to(&mut spec.request.mounts, &mut spec.request.env);
        Ok(Some((spec, checkout)))
    }

    /// Returns those that an environment, which was chosen in their place, lacks.
    pub fn missing_in(&self, chosen: &Checkout) -> Vec<&str> {
        let is_there = |name: &str| chosen.packages.iter().any(|found| is_version_of(found, name));
        let names = self.requirements.iter().map(Requirement::name);
        names.filter(|name| !is_there(name)).collect()
    }
}

/// Returns `true` if `found`, such as `pandas==2.2.3`, is a version of the package with this name.
fn is_version_of(found: &str, name: &str) -> bool {
    found.split_once("==").is_some_and(|(found, _)| found == name)
}

/// Returns `true` for a program or a session that has the packages of the configuration: a Python in the fence of this machine. The
/// guide lists the others.
pub fn has_defaults(spec: &RunSpec) -> bool {
    spec.target == Target::Local
        && spec.request.language == Language::Python
        && spec.request.image.is_none()
        && !matches!(spec.fence, Fence::Unfenced | Fence::Host)
}

/// Rejects mounts that lie where the packages are.
///
/// # Errors
/// If one does.
pub fn check_mounts(ecosystem: Ecosystem, mounts: &[Mount]) -> Result<(), Error> {
    let place = Path::new(ecosystem.place());
    let overlaps = |mount: &&Mount| place.starts_with(mount.guest()) || mount.guest().starts_with(place);
    match mounts.iter().find(overlaps) {
        None => Ok(()),
        Some(mount) => Err(Error::Hidden {
            mount: Box::new(mount.clone()),
            place: ecosystem.place(),
        }),
    }
}

/// A backend whose programs have the packages of the configuration. Sessions are left to the backend that keeps them
/// ([`SessionPackages`](crate::SessionPackages)).
#[derive(Debug)]
pub struct BackendWithDefaults {
    backend: Arc<dyn Backend>,
    defaults: Arc<DefaultPackages>,
}

impl BackendWithDefaults {
    pub fn new(backend: Arc<dyn Backend>, defaults: Arc<DefaultPackages>) -> Self {
        Self { backend, defaults }
    }
}

impl Backend for BackendWithDefaults {
    fn run<'a>(&'a self, spec: &'a RunSpec, connection: Connection) -> Running<'a> {
        if spec.request.session.is_some() {
            return self.backend.run(spec, connection);
        }
        Box::pin(async move {
            let Some((spec, checkout)) = self.defaults.add(spec).await.map_err(Error::into_refusal)? else {
                return self.backend.run(spec, connection).await;
            };
            let mut result = self.backend.run(&spec, connection).await?;
            checkout.describe(&mut result);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_found_by_its_whole_name() {
        assert!(is_version_of("demo-base==1.0", "demo-base"));
        assert!(!is_version_of("demo-base==1.0", "demo"));
        assert!(!is_version_of("demo-base-more==1.0", "demo-base"));
    }
}
