//! Places of sandboxes that are being created: taken at once, found once they are complete.

use std::sync::{Arc, Mutex};

use ringfence_policy::Scope;
use tokio::sync::watch;

use super::{Entry, Registry};
use crate::error::Error;
use crate::events::{LifeEvent, LifeEventType};
use crate::id::SandboxId;
use crate::lock::lock;
use crate::sandbox::Sandbox;
use crate::spec::{NewSandbox, SandboxFence};

/// Sandboxes of a server at a time.
const MAX: usize = 1024;
/// Sandboxes of one owner at a time.
const MAX_OF_SCOPE: usize = 512;
/// Containers of one owner at a time: an engine takes much more for one than a cell takes.
const MAX_CONTAINERS_OF_SCOPE: usize = 64;
/// Sandboxes with the fence `box` of one owner at a time, but the server's own user: there are few ids for them.
const MAX_BOXES_OF_SCOPE: usize = 8;

/// A running sandbox that cannot be found yet. Dropping this ends it.
pub(super) struct Unpublished<'a> {
    pub(super) reserved: Reserved<'a>,
    pub(super) sandbox: Arc<Sandbox>,
}

impl Unpublished<'_> {
    pub(super) fn publish(mut self) -> Arc<Sandbox> {
        self.reserved.fill(&self.sandbox);
        self.sandbox
    }
}

/// A place in the registry for a sandbox that is being created.
pub(super) struct Reserved<'a> {
    state: &'a Mutex<Registry>,
    pub(super) id: SandboxId,
    stop: watch::Sender<Option<&'static str>>,
    stage: Stage,
}

/// The progress of a sandbox that is being created.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Reserved,
    /// The task of the sandbox runs.
    Kept,
    Published,
}

impl<'a> Reserved<'a> {
    pub(super) fn new(
        state: &'a Mutex<Registry>,
        scope: &Scope,
        id: SandboxId,
        new: &NewSandbox,
    ) -> Result<Self, Error> {
        let name = new.name.as_ref().map(ToString::to_string);
        let mut registry = lock(state);
        if let Some(name) = &name
            && registry.find(scope, name).is_some()
        {
            return Err(Error::Taken(name.clone()));
        }
        let own = registry.count(scope);
        if let Some(most) = new.most
            && own >= most
        {
            let ends_in = registry.next_expiry(scope);
            return Err(Error::Quota { most, ends_in });
        }
        let containers = registry
            .all
            .values()
            .filter(|entry| entry.scope == *scope && entry.runtime.engine().is_some())
            .count();
        if new.runtime.engine().is_some() && containers >= MAX_CONTAINERS_OF_SCOPE {
            return Err(Error::TooMany {
                what: "sandboxes in containers",
                most: MAX_CONTAINERS_OF_SCOPE,
            });
        }
        let is_box = new.fence() == Some(SandboxFence::Box);
        let boxes = registry
            .all
            .values()
            .filter(|entry| entry.scope == *scope && entry.is_box)
            .count();
        if is_box && *scope != Scope::local() && boxes >= MAX_BOXES_OF_SCOPE {
            return Err(Error::TooMany {
                what: "sandboxes with the fence `box`, such as those of templates,",
                most: MAX_BOXES_OF_SCOPE,
            });
        }
        if own >= MAX_OF_SCOPE {
            return Err(Error::TooMany {
                what: "sandboxes of a tenant",
                most: MAX_OF_SCOPE,
            });
        }
        if registry.all.len() >= MAX {
            return Err(Error::TooMany {
                what: "sandboxes of the server",
                most: MAX,
            });
        }
        let stop = watch::Sender::new(None);
        let entry = Entry {
            scope: scope.clone(),
            name,
            runtime: new.runtime,
            is_box,
            sandbox: None,
            stop: stop.clone(),
        };
        registry.all.insert(id.clone(), entry);
        drop(registry);
        Ok(Self {
            state,
            id,
            stop,
            stage: Stage::Reserved,
        })
    }

    /// Returns the receiver of the stop signal, for the task that owns the sandbox from now on.
    pub(super) fn keep(&mut self) -> watch::Receiver<Option<&'static str>> {
        self.stage = Stage::Kept;
        self.stop.subscribe()
    }

    /// Registers the sandbox, unless it has ended.
    fn fill(&mut self, sandbox: &Arc<Sandbox>) {
        self.stage = Stage::Published;
        let mut registry = lock(self.state);
        let Registry { all, readers, .. } = &mut *registry;
        if let Some(entry) = all.get_mut(&self.id) {
            entry.sandbox = Some(Arc::clone(sandbox));
            let event = LifeEvent::new(LifeEventType::Created, sandbox);
            readers.send(&entry.scope, event.until(*sandbox.expiry().borrow()));
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Reserved => drop(lock(self.state).all.remove(&self.id)),
            Stage::Kept => drop(self.stop.send_replace(Some("its files could not be copied"))),
            Stage::Published => {}
        }
    }
}
