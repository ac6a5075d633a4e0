//! Containers of Docker and Podman, over the API of their engine.
//!
//! - [`endpoint`]: where the API is; [`runtime`]: everything that an engine is asked to do.
//! - [`spec`]: a container before it exists; [`check`]: what no request may ask for, looked at as it goes out.
//! - [`state`]: the life of a sandbox; [`manager`]: the sandboxes of this process, and what dead ones left behind.
//! - [`sandboxes`]: those that a person asked for.
//! - [`keepalive`]: those that serve the calls of a scope; [`outputs`]: where these leave files.
//! - [`exchange`]: how files come into a container and out of it.
//! - [`image`]: what sandboxes are made of; [`pins`]: which images were set up here.
//! - [`backend`]: Docker and Podman as places where requests run.
//! - [`agent`]: our own first process in a container, and calls that it runs; [`warm`]: containers that have it.

pub mod agent;
mod answers;
pub mod backend;
mod binds;
pub mod check;
mod cleanup;
pub mod endpoint;
mod error;
mod exchange;
mod filters;
mod frame;
pub mod image;
pub mod info;
pub mod keepalive;
mod keeper;
pub mod manager;
mod oneshot;
mod orphans;
pub mod outputs;
pub mod pins;
mod places;
mod pool;
pub mod runtime;
pub mod sandboxes;
pub mod spec;
pub mod state;
mod streams;
#[cfg(test)]
mod testing;
pub mod warm;
mod wire;

use backend::without_bridge;
pub use backend::{Containers, RunError};
pub use endpoint::Surroundings;
pub use error::Error;
pub use keeper::{Life, Order};
pub use manager::{Manager, Sandbox};
pub use orphans::Swept;
pub use runtime::ContainerRuntime;
pub use sandboxes::Sandboxes;
pub use streams::{Attached, Event, Events, Happening, Input, Logs, RunResult, Stats, Use};

use ringfence_policy::RuntimeKind;
use serde::{Deserialize, Serialize};

/// Which container engine: both speak Docker's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavor {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

impl Flavor {
    /// The name in configuration and results.
    pub const fn as_str(self) -> &'static str {
        self.runtime().as_str()
    }

    /// The backend whose containers are its.
    pub const fn runtime(self) -> RuntimeKind {
        match self {
            Self::Docker => RuntimeKind::Docker,
            Self::Podman => RuntimeKind::Podman,
        }
    }

    /// The container engine of a runtime, if it is one.
    pub const fn of(runtime: RuntimeKind) -> Option<Self> {
        match runtime {
            RuntimeKind::Docker => Some(Self::Docker),
            RuntimeKind::Podman => Some(Self::Podman),
            RuntimeKind::Local | RuntimeKind::Pyodide | RuntimeKind::E2b => None,
        }
    }
}
