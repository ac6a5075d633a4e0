//! The sandboxes of a server as E2B's clients know them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_policy::Scope;
use ringfence_sandbox::{Sandbox, SandboxState, Sandboxes};

use crate::client::Client;
use crate::error::Error;
use crate::ingress::Visitors;
use crate::known::{Known, Opened, Settings, Shared};
use crate::templates::registry::Templates;
use crate::token::Token;

/// The sandboxes of a server, with what E2B's clients know of each.
#[derive(Debug)]
pub struct Service {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) templates: Templates,
    known: Mutex<BTreeMap<String, Entry>>,
}

/// A sandbox that some of its owner's clients know.
#[derive(Debug)]
pub(crate) struct Entry {
    scope: Scope,
    pub(crate) shared: Arc<Shared>,
    /// The first is the one that made it, unless its key has ended.
    pub(crate) clients: Vec<Arc<Known>>,
}

impl Service {
    /// Creates the service of these sandboxes, whose clients may build templates on these images.
    pub fn new(sandboxes: Arc<Sandboxes>, template_images: Vec<String>) -> Self {
        Self {
            sandboxes,
            templates: Templates::new(template_images),
            known: Mutex::default(),
        }
    }

    /// Forgets the tokens of sandboxes of this client's owner that were made for other clients whose keys have ended.
    pub fn forget_ended(&self, client: &Client, has_ended: impl Fn(&str) -> bool) {
        for entry in self
            .known()
            .values_mut()
            .filter(|entry| entry.scope == client.scope)
        {
            entry
                .clients
                .retain(|known| known.client.name == client.name || !has_ended(&known.client.name));
        }
    }

    /// Forgets what an owner's clients know and build. Its sandboxes and snapshots are removed by others.
    pub fn clear(&self, scope: &Scope) {
        self.known().retain(|_, entry| entry.scope != *scope);
        self.templates.clear(scope);
    }

    /// Returns a sandbox that runs or may be woken, as the client knows it whose credential is right, or else as the first one does.
    pub(crate) fn open(&self, id: &str, is_right: impl Fn(&Known) -> bool) -> Result<Opened, Error> {
        let known = self.known().get(id).and_then(|entry| {
            let right = entry.clients.iter().find(|known| is_right(known));
            right.or(entry.clients.first()).cloned()
        });
        let known = known.ok_or_else(|| Error::gone(id))?;
        let sandbox = self.by_id(&known.client.scope, id).ok_or_else(|| {
            self.known().remove(id);
            Error::gone(id)
        })?;
        // To E2B's clients a paused sandbox is none until somebody connects, or may wake it.
        let Settings {
            ingress, auto_resume, ..
        } = &known.shared.settings;
        // One without its processes is resumed by those alone who know that.
        let may_wake = || {
            *auto_resume
                && !sandbox.is_emptied()
                && (is_right(&known) || ingress.visitors == Visitors::Anyone)
        };
        if sandbox.state() == SandboxState::Paused && !may_wake() {
            return Err(Error::gone(id));
        }
        Ok(Opened {
            sandboxes: Arc::clone(&self.sandboxes),
            sandbox,
            known,
        })
    }

    /// Returns the sandbox with this id, if it has not ended. Another one may have got the id as its name since.
    fn by_id(&self, scope: &Scope, id: &str) -> Option<Arc<Sandbox>> {
        let found = self.sandboxes.get(scope, id).ok();
        found.filter(|sandbox| sandbox.id().as_str() == id)
    }

    /// Returns what a client knows of a sandbox, with new tokens if it has not asked before.
    pub(crate) fn know(
        &self,
        client: &Client,
        sandbox: &Sandbox,
        settings: Settings,
    ) -> Result<Arc<Known>, Error> {
        let token = || Token::random().ok_or_else(|| Error::internal("no random bytes".to_owned()));
        let mut all = self.known();
        if !all.contains_key(sandbox.id().as_str()) {
            all.retain(|id, entry| self.by_id(&entry.scope, id).is_some());
        }
        let entry = all.entry(sandbox.id().to_string()).or_insert_with(|| Entry {
            scope: client.scope.clone(),
            shared: Arc::new(Shared {
                settings,
                ..Shared::default()
            }),
            clients: Vec::new(),
        });
        let of_client = |known: &&Arc<Known>| known.client.name == client.name;
        if let Some(known) = entry.clients.iter().find(of_client) {
            return Ok(Arc::clone(known));
        }
        let known = Arc::new(Known {
            client: client.clone(),
            shared: Arc::clone(&entry.shared),
            token: token()?,
            traffic_token: token()?,
        });
        entry.clients.push(Arc::clone(&known));
        Ok(known)
    }

    /// Returns the template of a sandbox.
    pub(crate) fn template_of(&self, id: &str) -> String {
        let settings = self.known().get(id).map(|entry| entry.shared.settings.clone());
        settings.unwrap_or_default().template
    }

    pub(crate) fn forget(&self, id: &str) {
        self.known().remove(id);
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
