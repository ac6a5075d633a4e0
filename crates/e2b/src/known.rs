//! A sandbox as E2B's clients know it.

use std::sync::Arc;

use ringfence_sandbox::{Sandbox, Sandboxes};

use crate::client::Client;
use crate::envd::metadata::FileMetadata;
use crate::envd::tags::Tags;
use crate::envd::watchers::Watchers;
use crate::ingress::{AnonymousVisitors, Ingress};
use crate::protocol;
use crate::token::Token;

/// The part of a sandbox that all its clients know.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// Tags of processes.
    pub(crate) tags: Tags,
    pub(crate) watchers: Watchers,
    pub(crate) file_metadata: FileMetadata,
    pub(crate) anonymous_visitors: AnonymousVisitors,
}

/// A sandbox as one of E2B's clients knows it. Its tokens are this client's alone: what they open is done in its name.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    /// Opens its files, processes and interpreters.
    pub(crate) token: Token,
    /// Opens its interpreters and programs alone.
    pub(crate) traffic_token: Token,
}

/// Settings of a sandbox that E2B's clients know and nobody else.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) template: String,
    pub(crate) ingress: Ingress,
    /// Set if a request resumes it while it is paused.
    pub(crate) auto_resume: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            template: protocol::BASE.to_owned(),
            ingress: Ingress::default(),
            auto_resume: false,
        }
    }
}

/// A sandbox that a request is for, once its token is checked.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) known: Arc<Known>,
}

impl Opened {
    /// Returns `true` until the sandbox ends.
    pub(crate) fn is_running(&self) -> bool {
        let found = self
            .sandboxes
            .get(&self.known.client.scope, self.sandbox.id().as_str());
        found.is_ok()
    }
}
