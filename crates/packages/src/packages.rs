//! Provides environments for requirements: one that is kept, or a new installation.

use std::sync::Arc;
use std::time::SystemTime;

use ringfence_exec::backend::Fingerprint;
use ringfence_exec::local::Fence;
use ringfence_exec::runner::Runner;
use ringfence_exec::supervise::cancellation;
use ringfence_policy::{Cidr, Scope};
use tokio::sync::{Mutex, MutexGuard, watch};

use crate::digest::Digest;
use crate::ecosystem::Ecosystem;
use crate::error::{Error, InstallError, StoreError};
use crate::index::{Access, Index, Indexes};
use crate::install::Installation;
use crate::requirement::Requirement;
use crate::store::{Checkout, Publication, Staging, Store};
use crate::tree::Tree;

/// Provides environments of packages. Clones install one at a time.
#[derive(Debug, Clone)]
pub struct Packages {
    store: Store,
    indexes: Indexes,
    /// Address ranges that the user opened to programs.
    private_networks: Vec<Cidr>,
    /// Held by the task that installs, so that those which wait take no thread each.
    turn: Arc<Mutex<()>>,
}

/// Packages for a run.
#[derive(Debug, Clone, Copy)]
pub struct Needs<'a> {
    /// Ecosystem of the requirements.
    pub ecosystem: Ecosystem,
    pub requirements: &'a [Requirement],
    pub scope: &'a Scope,
    pub fence: Fence,
}

impl Packages {
    pub fn new(store: Store, indexes: Indexes, private_networks: Vec<Cidr>) -> Self {
        Self {
            store,
            indexes,
            private_networks,
            turn: Arc::default(),
        }
    }

    pub const fn index_of(&self, ecosystem: Ecosystem) -> &Index {
        self.indexes.of(ecosystem)
    }

    /// Returns an environment with the packages: a stored one, or a new one that `runner` installs. If the
    /// index cannot be reached, an outdated one is returned with a warning. `announce` is called before an
    /// installation.
    ///
    /// `runner` must not check imports, since it runs Ringfence's own program.
    ///
    /// # Errors
    /// If the packages cannot be installed or kept.
    pub async fn provide(
        &self,
        needs: Needs<'_>,
        runner: &Runner,
        announce: impl FnOnce(),
        cancelled: Option<watch::Receiver<bool>>,
    ) -> Result<Checkout, Error> {
        let installation = self.installation(needs);
        let interpreter = runner.backend().fingerprint(&installation.spec());
        let interpreter = interpreter.ok_or(Error::NoInterpreter(needs.ecosystem))?;
        let origin = origin(installation.index, &interpreter, needs.scope)?;
        let request = request(&origin, needs.requirements);
        if let Some(kept) = self.store.recent(&request, SystemTime::now())? {
            return Ok(kept);
        }
        announce();
        let (_turn, staging) = tokio::select! {
            begun = self.begin() => begun?,
            () = cancellation(cancelled.clone()) => return Err(InstallError::Cancelled.into()),
        };
        // Another process may have installed the same meanwhile.
        if let Some(kept) = self.store.recent(&request, SystemTime::now())? {
            return Ok(kept);
        }
        let (staging, tree) = match installation.run(staging, runner, cancelled).await {
            Err(Error::Install(why @ InstallError::Unreachable { .. })) => {
                let old = self.store.any(&request)?;
                let warning = format!("the packages were chosen more than a week ago; now {why}");
                return old.map(|old| old.with_warning(warning)).ok_or(why.into());
            }
            installed => installed?,
        };
        let publication = Publication {
            request,
            key: Digest::of([origin.as_str().as_bytes(), tree.digest.as_str().as_bytes()]),
            ecosystem: needs.ecosystem,
            interpreter,
        };
        self.publish(staging, tree, publication).await
    }

    /// Waits until no other installation runs.
    async fn begin(&self) -> Result<(MutexGuard<'_, ()>, Staging), Error> {
        let turn = self.turn.lock().await;
        let store = self.store.clone();
        let staging = tokio::task::spawn_blocking(move || store.begin()).await;
        Ok((turn, staging.map_err(StoreError::Panicked)??))
    }

    async fn publish(
        &self,
        staging: Staging,
        tree: Tree,
        publication: Publication,
    ) -> Result<Checkout, Error> {
        let store = self.store.clone();
        let publishing = move || store.publish(staging, &tree, &publication, SystemTime::now());
        let published = tokio::task::spawn_blocking(publishing).await;
        Ok(published.map_err(StoreError::Panicked)??)
    }

    fn installation<'a>(&'a self, needs: Needs<'a>) -> Installation<'a> {
        Installation {
            index: self.index_of(needs.ecosystem),
            private_networks: &self.private_networks,
            requirements: needs.requirements,
            scope: needs.scope,
            fence: needs.fence,
        }
    }
}

/// Digests the origin of an environment: interpreter, machine, index and, unless the index is public, the scope.
fn origin(index: &Index, interpreter: &Fingerprint, scope: &Scope) -> Result<Digest, Error> {
    let ecosystem = index.ecosystem();
    let interpreter = serde_json::to_vec(interpreter).map_err(|_| Error::NoInterpreter(ecosystem))?;
    let owner = match index.access() {
        Access::Public => "",
        Access::Private => scope.as_str(),
    };
    Ok(Digest::of([
        ecosystem.facts().layout.as_bytes(),
        std::env::consts::ARCH.as_bytes(),
        interpreter.as_slice(),
        index.to_string().as_bytes(),
        owner.as_bytes(),
    ]))
}

/// Digests a request for packages, independent of their order and spelling.
fn request(origin: &Digest, requirements: &[Requirement]) -> Digest {
    let mut requirements: Vec<String> = requirements.iter().map(ToString::to_string).collect();
    requirements.sort();
    let requirements = requirements.iter().map(String::as_bytes);
    Digest::of(std::iter::once(origin.as_str().as_bytes()).chain(requirements))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirement::parse_list;

    #[test]
    fn a_request_is_the_same_in_every_spelling() {
        let of = |text: &str, origin: &str| {
            request(
                &Digest::of([origin.as_bytes()]),
                &parse_list(Ecosystem::Python, text).unwrap(),
            )
        };
        assert_eq!(of("a,b==1", "x"), of("B == 1, A", "x"));
        assert_ne!(of("a", "x"), of("a", "y"));
        assert_ne!(of("a", "x"), of("a==1", "x"));
    }
}
