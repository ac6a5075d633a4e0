//! Events of the sandboxes of an owner.

use std::sync::Arc;

use ringfence_policy::Scope;

use super::{Registry, Sandboxes};
use crate::error::Error;
use crate::events::{LifeEvent, LifeEvents};
use crate::id::SandboxId;
use crate::lock::lock;

impl Sandboxes {
    /// Returns the events of one sandbox of a scope, by its id or name, or of all, from now on.
    ///
    /// # Errors
    /// If the scope has no such sandbox.
    pub fn events(&self, scope: &Scope, name: Option<&str>) -> Result<LifeEvents, Error> {
        // Before the look at it: its end must not come between.
        let mut events = LifeEvents::new(scope, Arc::clone(&self.state));
        if let Some(name) = name {
            events.only_of(self.get(scope, name)?.id().clone());
        }
        Ok(events)
    }

    pub(crate) fn emit(&self, scope: &Scope, event: LifeEvent) {
        lock(&self.state).readers.send(scope, event);
    }
}

impl Registry {
    /// Returns the reason of the end of a sandbox, if it is remembered, or another one if it is not there.
    pub(crate) fn end_of(&self, scope: &Scope, id: &SandboxId) -> Option<String> {
        if self.all.contains_key(id) {
            return None;
        }
        let found = self.ended.find(scope, id.as_str());
        Some(found.map_or_else(
            || "its reason is no longer kept".to_owned(),
            |end| end.why.clone(),
        ))
    }
}
