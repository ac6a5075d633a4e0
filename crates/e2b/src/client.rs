//! Clients of the service.

use std::fmt;
use std::pin::Pin;

use ringfence_policy::Scope;

/// The holder of a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Owner of what it makes.
    pub scope: Scope,
    /// Name of the credential in records; no part of a secret.
    pub name: String,
    /// Domain below which it has reached the server and reaches sandboxes, with the port; `None` at an address without names.
    pub domain: Option<String>,
    /// Sandboxes that it may have at a time, by the quota of its key.
    pub most_sandboxes: Option<usize>,
}

/// The key of a client, to what goes on when its request is answered.
pub struct BuildKey {
    pub end: KeyEnd,
    pub begin_run: BeginRun,
}

impl fmt::Debug for BuildKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuildKey").finish_non_exhaustive()
    }
}

/// Counts a run of a client's key; an error says why its quota allows none.
pub type BeginRun = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Resolves when a client's key is revoked or expires; never, if it cannot.
pub type KeyEnd = Pin<Box<dyn Future<Output = ()> + Send>>;
