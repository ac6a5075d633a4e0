//! New sandboxes whose clients do not know them yet.

use std::sync::Arc;

use ringfence_policy::Scope;

use super::Sandboxes;
use crate::sandbox::Sandbox;

/// A sandbox that is there, and that its client is not told of before more is done. Dropping this ends it: the client has gone, or what
/// was to be done has failed, so that nobody would use the sandbox before it expires.
#[derive(Debug)]
pub struct Unclaimed {
    sandboxes: Arc<Sandboxes>,
    scope: Scope,
    /// `None` once it is its client's.
    sandbox: Option<Arc<Sandbox>>,
}

impl Unclaimed {
    pub fn new(sandboxes: &Arc<Sandboxes>, scope: &Scope, sandbox: &Arc<Sandbox>) -> Self {
        Self {
            sandboxes: Arc::clone(sandboxes),
            scope: scope.clone(),
            sandbox: Some(Arc::clone(sandbox)),
        }
    }

    /// Leaves the sandbox to its client.
    pub fn keep(mut self) {
        self.sandbox = None;
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            // It may have ended by itself.
            let _ = self.sandboxes.end(&self.scope, sandbox.id().as_str());
        }
    }
}
