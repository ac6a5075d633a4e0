//! Settings of the local backend.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use ringfence_network::egress::NetworkSettings;
use ringfence_policy::{Limits, Request, Timeout};

use super::destination::Spared;
use super::log::Log;
use super::workdir::Workdir;
use crate::interpreter::{Javascript, Python};

/// Settings of the local backend.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Python to use instead of the first on the path: an executable or a virtual environment.
    pub python: Option<PathBuf>,
    /// Node.js or Deno to use instead of the first on the path.
    pub javascript: Option<PathBuf>,
    /// Modules that idle workers have imported already.
    pub preload: Vec<String>,
    /// Time limit for the import of each.
    pub preload_timeout: Timeout,
    /// Log for modules that could not be imported.
    pub log: Log,
    /// Value of `PATH`, for finding interpreters.
    pub path: Option<OsString>,
    /// Cache directory for interpreters; no cache if `None`.
    pub cache: Option<PathBuf>,
    /// Directories that no program may see, wherever an interpreter is installed: our own, and the user's
    /// home.
    pub private: Vec<PathBuf>,
    /// Names in a workspace that programs may read but not write: host programs would execute them.
    pub protected: Vec<String>,
    /// Parent directory for guests without cells.
    pub scratch: PathBuf,
    pub warmth: Warmth,
    /// Limits of idle workers.
    pub limits: Limits,
    /// Cached interpreters; empty at first.
    pub interpreters: InterpreterCache,
    /// Maximum number of concurrent runs.
    pub max_concurrent: usize,
    /// Maximum number of queued requests.
    pub max_queued: usize,
    pub sessions: SessionSettings,
    pub network: NetworkSettings,
}

impl Settings {
    /// Returns the names and paths that a delivery of output files must not change.
    pub(crate) fn spared<'a>(&'a self, request: &'a Request) -> Spared<'a> {
        Spared {
            protected: &self.protected,
            trusted: &request.trusted,
        }
    }

    /// Removes the leftovers of killed processes, for a single run. A server has done that at its start.
    pub(super) fn sweep_cold(&self) {
        if self.warmth == Warmth::Cold {
            Workdir::sweep(&self.scratch);
        }
    }
}

/// A request, with the fence that it requires.
#[derive(Debug, Clone, Copy)]
pub struct FencedRequest<'a> {
    pub request: &'a Request,
    pub fence: Fence,
}

/// The required strength of a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    /// Every layer; where namespaces are forbidden the other layers, which is reported.
    Default,
    /// Every layer, or the request fails.
    Required,
    /// The available layers.
    BestEffort,
    /// No layer. Only for the person at this machine.
    Unfenced,
    /// No layer, with limits on time and output alone: for a command that is meant to act on the host.
    Host,
}

impl Fence {
    /// Returns `true` without a fence.
    pub(super) const fn is_none(self) -> bool {
        matches!(self, Self::Unfenced | Self::Host)
    }
}

/// The processes that are started in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warmth {
    /// None: for a single run.
    Cold,
    /// A zygote and idle workers: for a server.
    Pool {
        /// Number of idle workers per scope.
        size: usize,
        /// Number of forks after which a zygote is replaced.
        renew_after: u64,
        /// Time after which a zygote is replaced.
        renew_every: std::time::Duration,
    },
}

/// Limits of sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionSettings {
    /// Maximum number of sessions of all scopes.
    pub max: usize,
    /// Idle time after which a session is ended.
    pub idle: Timeout,
    /// Age at which a session is ended, once no evaluation runs.
    pub lifetime: Timeout,
}

/// Cached interpreters, so that they are searched for once: for the life of a server they are those that its
/// idle workers run.
#[derive(Debug, Clone, Default)]
pub struct InterpreterCache {
    pub(super) python: OnceLock<Python>,
    pub(super) javascript: OnceLock<Javascript>,
}
