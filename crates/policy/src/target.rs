//! The place where a request runs.

use serde::{Deserialize, Serialize};

use crate::{RuntimeKind, SessionId};

/// The place where a request runs.
///
/// A new runtime is a variant here, one in [`RuntimeKind`], and what the compiler then asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Target {
    /// The fence of this machine.
    Local,
    /// CPython as WebAssembly, in Deno.
    Pyodide,
    Container {
        engine: EngineKind,
        /// The container to reuse. `None`: a container that serves this request alone.
        keep_alive: Option<KeepAlive>,
    },
    /// An E2B-compatible cloud.
    E2b,
}

impl Target {
    /// Returns the target of requests that name only a runtime.
    pub const fn of(runtime: RuntimeKind) -> Self {
        match runtime {
            RuntimeKind::Local => Self::Local,
            RuntimeKind::Docker => Self::container(EngineKind::Docker),
            RuntimeKind::Podman => Self::container(EngineKind::Podman),
            RuntimeKind::Pyodide => Self::Pyodide,
            RuntimeKind::E2b => Self::E2b,
        }
    }

    const fn container(engine: EngineKind) -> Self {
        Self::Container {
            engine,
            keep_alive: None,
        }
    }

    /// Returns the runtime, as results report it.
    pub const fn runtime(&self) -> RuntimeKind {
        match self {
            Self::Local => RuntimeKind::Local,
            Self::Pyodide => RuntimeKind::Pyodide,
            Self::Container { engine, .. } => engine.runtime(),
            Self::E2b => RuntimeKind::E2b,
        }
    }
}

/// The kind of a container engine. Both speak Docker's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    Docker,
    Podman,
}

impl EngineKind {
    /// Returns the name used in configuration and results.
    pub const fn as_str(self) -> &'static str {
        self.runtime().as_str()
    }

    /// Returns the runtime of this engine.
    pub const fn runtime(self) -> RuntimeKind {
        match self {
            Self::Docker => RuntimeKind::Docker,
            Self::Podman => RuntimeKind::Podman,
        }
    }
}

/// The properties of a reused container, apart from those that a request requires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepAlive {
    /// Reference of the image.
    pub image: String,
    pub network: NetworkMode,
    /// The scope's conversation that the container belongs to.
    pub session: Option<SessionId>,
    /// Number of calls after which the container is replaced; with 1, each call has its own.
    pub max_calls: u32,
    /// Idle timeout in milliseconds.
    pub idle_ms: u64,
}

/// The network mode of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// Loopback only.
    None,
    /// The engine's bridge, which leads to this machine's own services, too: only where the user allowed it.
    Bridge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reports_the_runtime_that_it_was_made_of() {
        for runtime in [
            RuntimeKind::Local,
            RuntimeKind::Docker,
            RuntimeKind::Podman,
            RuntimeKind::Pyodide,
            RuntimeKind::E2b,
        ] {
            assert_eq!(Target::of(runtime).runtime(), runtime);
        }
    }
}
