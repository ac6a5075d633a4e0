//! The sandboxes of a server.

mod check;
mod ended;
mod events;
mod expiry;
mod images;
mod pages;
mod reserved;
mod snapshots;
mod unclaimed;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use ringfence_container::Containers;
use ringfence_exec::local::{Fence, Local};
use ringfence_images::Confine;
use ringfence_packages::{DefaultPackages, Digest, Ecosystem};
use ringfence_policy::{Bytes, Cidr, EgressPolicy, HostPattern, Scope};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cell::ConnectedCell;
use super::error::Error;
use super::events::{EXPIRED, LifeEvent, LifeEventType, REMOVED, Readers};
use super::id::SandboxId;
use super::image::ImageStore;
use super::kept_output::KeptCounters;
use super::key_hosts::KeyHosts;
use super::lock::lock;
use super::meter::{Consumption, ConsumptionByOwner};
use super::packages::SandboxPackages;
use super::place::{Place, open_container};
use super::sandbox::Sandbox;
use super::snapshots::SnapshotStore;
use super::spec::{NewCopies, NewSandbox, OnExpiry, Runtime, SandboxInfo, SandboxState};
pub(crate) use check::check_hosts;
use check::{check, check_base};
use ended::EndedSandboxes;
pub use ended::SandboxEnd;
use expiry::{LIFETIME, expiry, final_expiry};
pub use pages::{ListPosition, SandboxPage};
use reserved::{Reserved, Unpublished};
pub use unclaimed::Unclaimed;

/// Maximum number of copies that one fork makes.
const MAX_FORKS: usize = 16;

/// The end of a place, as a reason.
type Ending = Pin<Box<dyn Future<Output = String> + Send>>;

/// The sandboxes of a server, each with an owner.
#[derive(Debug)]
pub struct Sandboxes {
    local: Arc<Local>,
    containers: Option<Arc<Containers>>,
    /// Fence that every sandbox must have.
    fence: Fence,
    state: Arc<Mutex<Registry>>,
    keepers: Mutex<JoinSet<()>>,
    pub(crate) store: SnapshotStore,
    packages: Option<ringfence_packages::Store>,
    default_packages: Option<Arc<DefaultPackages>>,
    images: Option<Arc<ImageStore>>,
    private_networks: Vec<Cidr>,
    key_hosts: KeyHosts,
}

#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Sandboxes that run; `None` for one that is being created.
    all: BTreeMap<SandboxId, Entry>,
    ended: EndedSandboxes,
    /// Consumption of ended sandboxes since the last query.
    consumed: ConsumptionByOwner,
    pub(crate) readers: Readers,
    kept_output: KeptCounters,
}

#[derive(Debug)]
struct Entry {
    scope: Scope,
    name: Option<String>,
    runtime: Runtime,
    is_box: bool,
    /// `None` while it is being created.
    sandbox: Option<Arc<Sandbox>>,
    /// Set to end it, to the reason.
    stop: watch::Sender<Option<&'static str>>,
}

impl Sandboxes {
    /// Creates a registry whose sandboxes have at least this fence.
    pub fn new(local: Arc<Local>, fence: Fence, store: SnapshotStore) -> Self {
        Self {
            local,
            containers: None,
            fence,
            state: Arc::default(),
            keepers: Mutex::default(),
            store,
            packages: None,
            default_packages: None,
            images: None,
            private_networks: Vec::new(),
            key_hosts: KeyHosts::default(),
        }
    }

    /// Opens address ranges that are not public to allowed hosts.
    #[must_use]
    pub fn with_private_networks(self, private_networks: Vec<Cidr>) -> Self {
        Self {
            private_networks,
            ..self
        }
    }

    /// Returns the policy of a sandbox to which the server's user opens these hosts.
    pub fn opened_by_user(&self, allowed: Vec<HostPattern>) -> EgressPolicy {
        EgressPolicy {
            allowed,
            private_networks: self.private_networks.clone(),
        }
    }

    /// Opens hosts to sandboxes of API keys.
    #[must_use]
    pub fn with_key_hosts(self, key_hosts: KeyHosts) -> Self {
        Self { key_hosts, ..self }
    }

    /// Returns the hosts that sandboxes of API keys may reach.
    pub const fn key_hosts(&self) -> &KeyHosts {
        &self.key_hosts
    }

    /// Lets sandboxes be containers.
    #[must_use]
    pub fn with_containers(self, containers: Arc<Containers>) -> Self {
        Self {
            containers: Some(containers),
            ..self
        }
    }

    /// Lets sandboxes have packages of this store, and gives these to those that can have them.
    #[must_use]
    pub fn with_packages(
        self,
        packages: ringfence_packages::Store,
        default_packages: Option<Arc<DefaultPackages>>,
    ) -> Self {
        Self {
            packages: Some(packages),
            default_packages,
            ..self
        }
    }

    /// Lets sandboxes have the images in a state directory. `confine` is for threads that unpack layers.
    #[must_use]
    pub fn with_images(self, state: PathBuf, confine: Confine) -> Self {
        Self {
            images: Some(Arc::new(ImageStore { state, confine })),
            ..self
        }
    }

    /// Returns kept packages by their keys, for [`NewSandbox::packages`].
    ///
    /// # Errors
    /// If there are none such, they are for another interpreter than that of the sandboxes, or two sets are for the same.
    pub fn packages(&self, keys: &[Digest]) -> Result<SandboxPackages, Error> {
        let unusable = |why: &dyn std::fmt::Display| Error::Invalid(format!("`packages`: {why}"));
        let mut packages = SandboxPackages::default();
        packages.are_named = !keys.is_empty();
        for key in keys {
            let Some(store) = &self.packages else {
                return Err(unusable(&"sandboxes have none here"));
            };
            let opened = store.open(key, |ecosystem| self.local.fingerprint(ecosystem.language()));
            let opened = opened.map_err(|error| unusable(&error))?;
            packages.add(opened.ok_or_else(|| unusable(&"none are kept under this key"))?)?;
        }
        Ok(packages)
    }

    /// Gives a new sandbox the packages of the configuration, unless it has others, or interpreters of its own.
    async fn add_default_packages(&self, scope: &Scope, new: &mut NewSandbox) -> Result<(), Error> {
        let Some(defaults) = &self.default_packages else {
            return Ok(());
        };
        if new.runtime != Runtime::Local || new.image.is_some() {
            new.packages.leave_out_defaults();
            return Ok(());
        }
        if new.packages.of(Ecosystem::Python).is_some() {
            new.packages.compare(defaults);
            return Ok(());
        }
        let provided = defaults.provide(scope, self.fence).await;
        new.packages
            .add(provided.map_err(|error| Error::Packages(Box::new(error)))?)
    }

    /// Creates a sandbox.
    ///
    /// # Errors
    /// If the name is taken, there are too many, the runtime cannot make it, or it has no room for its snapshot.
    pub async fn create(&self, scope: &Scope, mut new: NewSandbox) -> Result<Arc<Sandbox>, Error> {
        let Some(snapshot) = &new.snapshot else {
            return Ok(self.make(scope, new).await?.publish());
        };
        let mut reader = self.store.read(scope, snapshot)?;
        let needed = Bytes(reader.info.disk_limit);
        if new.limits.disk < needed {
            return Err(Error::Invalid(format!(
                "the snapshot needs a `disk` of at least {needed}, and not {}",
                new.limits.disk
            )));
        }
        check_base(&reader.info, &new)?;
        if let (None, Some(image)) = (&new.image, &reader.info.image) {
            new.image = Some(self.image_of(image).await?);
        }
        let unpublished = self.make(scope, new).await?;
        unpublished.sandbox.fill(&mut reader).await?;
        Ok(unpublished.publish())
    }

    /// Copies a sandbox's files into new ones with its limits, lifetime, environment, metadata and network, but with
    /// another name, if any.
    /// Processes and interpreters are not copied. All are made, or none.
    ///
    /// # Errors
    /// If there is no such sandbox, it is paused, there are too many, or its files are more than a copy may be.
    pub async fn fork(
        &self,
        scope: &Scope,
        name: &str,
        copies: NewCopies,
    ) -> Result<Vec<Arc<Sandbox>>, Error> {
        let NewCopies {
            count,
            name: new_name,
            most,
        } = copies;
        if new_name.is_some() && count != 1 {
            return Err(Error::Invalid(
                "`name` is for one copy: leave it out, or set `count` to 1".to_owned(),
            ));
        }
        if !(1..=MAX_FORKS).contains(&count) {
            return Err(Error::Invalid(format!(
                "`count` must be from 1 to {MAX_FORKS}, got {count}"
            )));
        }
        let source = self.get(scope, name)?;
        source.check_running()?;
        let new = NewSandbox {
            name: new_name,
            most,
            snapshot: None,
            egress: lock(&source.egress).clone(),
            ..source.request().clone()
        };
        let mut made = Vec::new();
        for _ in 0..count {
            made.push(self.make(scope, new.clone()).await?);
        }
        let others: Vec<&Sandbox> = made.iter().map(|unpublished| &*unpublished.sandbox).collect();
        source.copy_into(&others).await?;
        let made: Vec<_> = made.into_iter().map(Unpublished::publish).collect();
        let event = LifeEvent {
            copies: made.iter().map(|sandbox| sandbox.id().clone()).collect(),
            ..LifeEvent::new(LifeEventType::Forked, &source)
        };
        self.emit(scope, event);
        Ok(made)
    }

    /// Creates a sandbox that cannot be found before it is published.
    async fn make(&self, scope: &Scope, mut new: NewSandbox) -> Result<Unpublished<'_>, Error> {
        let lifetime = new.timeout.unwrap_or(LIFETIME);
        let expires = expiry(lifetime)?;
        check(&new)?;
        let id = SandboxId::random().map_err(|error| Error::Broken(error.to_string()))?;
        let mut reserved = Reserved::new(&self.state, scope, id, &new)?;
        self.add_default_packages(scope, &mut new).await?;
        let (place, end) = self.open(scope, &new).await?;
        if new.on_expiry == OnExpiry::Pause
            && let Err(error) = place.freezer().check()
        {
            place.close().await;
            return Err(error);
        }
        let kept = lock(&self.state).kept_output.of(scope);
        let sandbox = Arc::new(Sandbox::new(reserved.id.clone(), new, place, expires, kept));
        let stopped = reserved.keep();
        let keeper = keep(
            Arc::clone(&sandbox),
            end,
            stopped,
            Arc::clone(&self.state),
            scope.clone(),
        );
        {
            let mut keepers = lock(&self.keepers);
            while keepers.try_join_next().is_some() {}
            keepers.spawn(keeper);
        }
        sandbox.preload_packages().await;
        Ok(Unpublished { reserved, sandbox })
    }

    /// Opens the place of a sandbox. The second part, which must be driven, resolves at its end, to the reason.
    async fn open(&self, scope: &Scope, new: &NewSandbox) -> Result<(Place, Ending), Error> {
        let Some(engine) = new.runtime.engine() else {
            let (cell, driver) = ConnectedCell::open(&self.local, self.fence, scope, new).await?;
            let end = async move { driver.await.to_string() };
            return Ok((Place::Cell(Box::new(cell)), Box::pin(end)));
        };
        let containers = self.containers.as_ref().ok_or(Error::NotSupported {
            runtime: new.runtime,
            what: "be made by this server",
        })?;
        let container = open_container(containers, engine, self.fence, scope, new).await?;
        let end = container.end();
        Ok((Place::Container(Box::new(container)), Box::pin(end)))
    }

    /// Returns the sandboxes of a scope that have this metadata, the oldest first.
    pub fn list(&self, scope: &Scope, metadata: &BTreeMap<String, String>) -> Vec<SandboxInfo> {
        let own = self.select(Some(scope), metadata);
        own.iter().map(|(_, sandbox)| sandbox.info()).collect()
    }

    fn select(
        &self,
        scope: Option<&Scope>,
        metadata: &BTreeMap<String, String>,
    ) -> Vec<(Scope, Arc<Sandbox>)> {
        let mut found: Vec<(Scope, Arc<Sandbox>)> = lock(&self.state)
            .all
            .values()
            .filter(|entry| scope.is_none_or(|scope| entry.scope == *scope))
            .filter_map(|entry| Some((entry.scope.clone(), entry.sandbox.clone()?)))
            .filter(|(_, sandbox)| {
                metadata
                    .iter()
                    .all(|(key, value)| sandbox.request().metadata.get(key) == Some(value))
            })
            .collect();
        found.sort_by_cached_key(|(_, sandbox)| ListPosition::of(sandbox));
        found
    }

    /// Returns the number of sandboxes of a scope, with those that are being created.
    pub fn count(&self, scope: &Scope) -> usize {
        lock(&self.state).count(scope)
    }

    /// Returns the states of all owners' sandboxes.
    pub fn states(&self) -> Vec<SandboxState> {
        let state = lock(&self.state);
        let sandboxes = state.all.values().filter_map(|entry| entry.sandbox.as_ref());
        sandboxes.map(|sandbox| sandbox.state()).collect()
    }

    /// Returns the usage of all sandboxes since the last call, including ended ones, but without running
    /// containers.
    pub fn consumed(&self) -> ConsumptionByOwner {
        let mut state = lock(&self.state);
        let mut consumed = std::mem::take(&mut state.consumed);
        for entry in state.all.values() {
            if let Some(sandbox) = &entry.sandbox
                && entry.runtime.engine().is_none()
            {
                *consumed.entry(entry.scope.clone()).or_default() += sandbox.consumed();
            }
        }
        consumed
    }

    /// Queries the usage of running containers since the last call from their engines, one after the other.
    pub async fn consumed_in_containers(&self, mut add: impl FnMut(&Scope, Consumption)) {
        let containers: Vec<(Scope, Arc<Sandbox>)> = lock(&self.state)
            .all
            .values()
            .filter(|entry| entry.runtime.engine().is_some())
            .filter_map(|entry| Some((entry.scope.clone(), entry.sandbox.clone()?)))
            .collect();
        for (scope, sandbox) in containers {
            add(&scope, sandbox.consumed_in_container().await);
        }
    }

    /// Returns a sandbox by its id or name.
    ///
    /// # Errors
    /// If the scope has none, or it has ended.
    pub fn get(&self, scope: &Scope, name: &str) -> Result<Arc<Sandbox>, Error> {
        let state = lock(&self.state);
        if let Some((_, entry)) = state.find(scope, name)
            && let Some(sandbox) = &entry.sandbox
        {
            return Ok(Arc::clone(sandbox));
        }
        Err(state.missing(scope, name))
    }

    /// Ends a sandbox with everything in it, and waits for that.
    ///
    /// # Errors
    /// If there is none.
    pub async fn remove(&self, scope: &Scope, name: &str) -> Result<(), Error> {
        self.stop(scope, name)?.closed().await;
        Ok(())
    }

    /// Like [`Sandboxes::remove`], without waiting.
    ///
    /// # Errors
    /// If there is none.
    pub fn end(&self, scope: &Scope, name: &str) -> Result<(), Error> {
        self.stop(scope, name).map(drop)
    }

    fn stop(&self, scope: &Scope, name: &str) -> Result<watch::Sender<Option<&'static str>>, Error> {
        let stop = {
            let state = lock(&self.state);
            let found = state.find(scope, name);
            let found = found.filter(|(_, entry)| entry.sandbox.is_some());
            let (_, entry) = found.ok_or_else(|| state.missing(scope, name))?;
            entry.stop.clone()
        };
        stop.send_replace(Some(REMOVED));
        Ok(stop)
    }

    /// Ends the sandboxes and sessions of a scope, including those that are being created, and removes its
    /// snapshots.
    ///
    /// # Errors
    /// If files of a snapshot cannot be removed. Later snapshots are then kept.
    pub async fn clear(&self, scope: &Scope) -> Result<(), Error> {
        let stops: Vec<_> = lock(&self.state)
            .all
            .values()
            .filter(|entry| entry.scope == *scope)
            .map(|entry| entry.stop.clone())
            .collect();
        for stop in &stops {
            stop.send_replace(Some("its owner was removed"));
        }
        for stop in stops {
            stop.closed().await;
        }
        for session in self.local.sessions(scope) {
            // An error means that it has ended meanwhile.
            drop(self.local.remove_session(scope, &session.id).await);
        }
        // The next owner of this name was never told of them.
        lock(&self.state).ended.forget(scope);
        self.store.clear(scope)
    }

    /// Ends all sandboxes, and waits for that.
    pub async fn close(&self) {
        for entry in lock(&self.state).all.values() {
            entry.stop.send_replace(Some("the server was stopped"));
        }
        let mut keepers = std::mem::take(&mut *lock(&self.keepers));
        while keepers.join_next().await.is_some() {}
        lock(&self.state).readers.close();
    }
}

/// Keeps a sandbox until it expires, is stopped or its place ends; then closes it.
async fn keep(
    sandbox: Arc<Sandbox>,
    end: Ending,
    mut stopped: watch::Receiver<Option<&'static str>>,
    state: Arc<Mutex<Registry>>,
    scope: Scope,
) {
    // In a task of its own: its processes are served while this one waits for their end.
    let mut carrying = JoinSet::new();
    carrying.spawn(end);
    let why = tokio::select! {
        lost = carrying.join_next() => match lost {
            Some(Ok(why)) => why,
            _ => "its driver has failed".to_owned(),
        },
        why = stopped.wait_for(Option::is_some) => why.ok().and_then(|why| *why).unwrap_or("it was dropped").to_owned(),
        () = final_expiry(&sandbox, &scope, &state) => EXPIRED.to_owned(),
    };
    lock(&state).forget(&sandbox, why);
    sandbox.end_processes();
    // While it can still be measured.
    let used = sandbox.consumed_in_container().await;
    if let Some(place) = sandbox.take_place() {
        place.close().await;
    }
    *lock(&state).consumed.entry(scope).or_default() += used;
    // Only now: whoever waits for the end waits for this to be closed.
    drop(stopped);
}

impl Registry {
    fn count(&self, scope: &Scope) -> usize {
        self.all.values().filter(|entry| entry.scope == *scope).count()
    }

    fn find(&self, scope: &Scope, name: &str) -> Option<(&SandboxId, &Entry)> {
        let mut all = self.all.iter();
        all.find(|(id, entry)| {
            entry.scope == *scope && (id.as_str() == name || entry.name.as_deref() == Some(name))
        })
    }

    fn missing(&self, scope: &Scope, name: &str) -> Error {
        let sandbox = name.chars().take(80).collect();
        match self.ended.find(scope, name) {
            Some(end) => Error::Gone {
                sandbox,
                end: end.clone(),
            },
            None => Error::Unknown(sandbox),
        }
    }

    fn forget(&mut self, sandbox: &Sandbox, why: String) {
        if let Some(entry) = self.all.remove(sandbox.id()) {
            // One that was never complete was never there for its owner.
            if entry.sandbox.is_none() {
                return;
            }
            let event = LifeEvent::end(sandbox.id().clone(), entry.name.clone(), &why);
            self.readers.send(&entry.scope, event);
            self.ended.remember(
                entry.scope,
                sandbox.id().clone(),
                entry.name,
                SandboxEnd::now(why),
            );
        }
    }
}
