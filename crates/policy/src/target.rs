//! The place where a request runs.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{SessionId, UnknownName};

/// The kind of the place where a request runs.
///
/// A new runtime is a variant here and of [`Target`], with the arms of this file and of the backend of a process.
/// [`RuntimeKind::ALL`] lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeKind {
    /// The fence on this machine.
    Local,
    /// A Docker container.
    Docker,
    /// A Podman container.
    Podman,
    /// Pyodide in Deno.
    Pyodide,
    /// An E2B-compatible cloud.
    E2b,
}

/// The properties in which runtimes differ for everything but the backend that runs programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    /// Name in every interface.
    pub name: &'static str,
    pub family: Family,
    /// Features that the runtime lacks. A request for one is refused.
    pub lacks: &'static [Lack],
}

/// Runtimes with the same configured limits and the same advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Runtimes without limits of their own.
    General,
    Container,
    Pyodide,
    /// Runtimes of a service, on machines that are not this user's.
    Remote,
}

/// A feature that a runtime lacks, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    pub feature: Feature,
    pub why: &'static str,
}

/// Features of a run that not every runtime has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Languages other than Python.
    OtherLanguages,
    /// An interpreter that the user names.
    Interpreter,
    Session,
    /// A run without a fence.
    Unfenced,
    Network,
    Workspace,
    /// Files and directories of this machine, with any access.
    Mount,
    WritableMount,
    /// Functions of this machine that programs call.
    Skills,
    /// A limit of memory.
    Memory,
    /// A limit of the bytes in writable directories.
    Disk,
    /// A limit of processor cores.
    Cpus,
    /// A limit of processes and threads.
    Pids,
    /// An image of the local store.
    Image,
}

impl Feature {
    /// Returns the name, as part of a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherLanguages => "languages other than Python",
            Self::Interpreter => "an interpreter of yours",
            Self::Session => "sessions",
            Self::Unfenced => "runs without a fence",
            Self::Network => "a network",
            Self::Workspace => "a workspace",
            Self::Mount => "mounts",
            Self::WritableMount => "writable mounts",
            Self::Skills => "skills",
            Self::Memory => "a limit of memory",
            Self::Disk => "a limit of disk space",
            Self::Cpus => "a limit of processor cores",
            Self::Pids => "a limit of processes",
            Self::Image => "images of the local store",
        }
    }
}

const LOCAL: Traits = Traits {
    name: "local",
    family: Family::General,
    lacks: &[],
};

const DOCKER: Traits = Traits {
    name: "docker",
    family: Family::Container,
    lacks: &[
        lack(Feature::Interpreter, "a container has the Python of its image"),
        lack(Feature::Session, LOCAL_SESSIONS),
        lack(Feature::Unfenced, "a container always has its fence"),
        lack(
            Feature::Image,
            "a container engine has images of its own (`sandbox.docker.image`)",
        ),
    ],
};

const PODMAN: Traits = Traits {
    name: "podman",
    ..DOCKER
};

const PYODIDE: Traits = Traits {
    name: "pyodide",
    family: Family::Pyodide,
    lacks: &[
        lack(Feature::OtherLanguages, "it is a Python"),
        lack(Feature::Interpreter, "Pyodide is a Python of its own"),
        lack(Feature::Session, LOCAL_SESSIONS),
        lack(Feature::Unfenced, "Pyodide always runs in the fence"),
        lack(Feature::Network, "Pyodide has no network"),
        lack(Feature::Workspace, "Pyodide has its files in memory"),
        lack(Feature::WritableMount, "files are copied into Pyodide's memory"),
        lack(Feature::Cpus, "Pyodide has one thread"),
        lack(Feature::Pids, "Pyodide has one process"),
        lack(Feature::Image, "Pyodide has no root file system"),
    ],
};

const E2B: Traits = Traits {
    name: "e2b",
    family: Family::Remote,
    lacks: &[
        lack(
            Feature::Interpreter,
            "a sandbox has the interpreters of its template",
        ),
        lack(Feature::Session, LOCAL_SESSIONS),
        lack(Feature::Unfenced, "its programs run on machines of a service"),
        lack(
            Feature::Network,
            "its sandboxes reach nothing, and no list of hosts can be enforced there",
        ),
        lack(Feature::Workspace, STAYS),
        lack(Feature::Mount, STAYS),
        lack(Feature::Skills, "its programs reach nothing of this machine"),
        lack(Feature::Memory, SERVICE_DECIDES),
        lack(Feature::Cpus, SERVICE_DECIDES),
        lack(Feature::Pids, SERVICE_DECIDES),
        lack(Feature::Disk, SERVICE_DECIDES),
        lack(Feature::Image, "its templates are elsewhere"),
    ],
};

const STAYS: &str = "directories of this machine are not sent to a service";
const SERVICE_DECIDES: &str = "the service decides what its sandboxes have";

const LOCAL_SESSIONS: &str = "sessions exist in the local runtime only";

const fn lack(feature: Feature, why: &'static str) -> Lack {
    Lack { feature, why }
}

impl RuntimeKind {
    /// All runtimes, in the order in which messages name them.
    pub const ALL: &'static [Self] = &[Self::Local, Self::Docker, Self::Podman, Self::Pyodide, Self::E2b];

    /// Returns the properties.
    pub const fn traits(self) -> Traits {
        match self {
            Self::Local => LOCAL,
            Self::Docker => DOCKER,
            Self::Podman => PODMAN,
            Self::Pyodide => PYODIDE,
            Self::E2b => E2B,
        }
    }

    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        self.traits().name
    }

    /// Returns `true` if a request for the feature is refused.
    pub fn lacks(self, feature: Feature) -> bool {
        self.traits().lacks.iter().any(|lack| lack.feature == feature)
    }
}

impl FromStr for RuntimeKind {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = |runtime: &&Self| name.eq_ignore_ascii_case(runtime.as_str());
        Self::ALL.iter().find(known).copied().ok_or_else(|| UnknownName {
            what: "runtime",
            name: name.to_owned(),
            known: Cow::Owned(enumerated()),
        })
    }
}

/// Renders the names of all runtimes.
fn enumerated() -> String {
    let names: Vec<&str> = RuntimeKind::ALL.iter().map(|runtime| runtime.as_str()).collect();
    match names.split_last() {
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => String::new(),
    }
}

impl fmt::Display for RuntimeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl JsonSchema for RuntimeKind {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Runtime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = Self::ALL.iter().map(|runtime| runtime.as_str()).collect();
        json_schema!({"type": "string", "enum": names})
    }
}

/// The place where a request runs.
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

/// The fallback of runs in containers if the container engine is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    None,
    /// The fence of this machine, with a warning in the result.
    Local,
}

impl Fallback {
    /// Returns the target that takes a run if its own is unavailable.
    pub const fn target(self, unavailable: &Target) -> Option<Target> {
        match (unavailable, self) {
            (Target::Container { .. }, Self::Local) => Some(Target::Local),
            (Target::Container { .. }, Self::None)
            | (Target::Local | Target::Pyodide | Target::E2b, Self::Local | Self::None) => None,
        }
    }
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
    fn every_runtime_has_a_target_and_a_name_that_is_read() {
        for runtime in RuntimeKind::ALL {
            assert_eq!(Target::of(*runtime).runtime(), *runtime);
            assert_eq!(runtime.as_str().to_uppercase().parse(), Ok(*runtime));
            let serialised = serde_json::to_value(runtime).unwrap();
            assert_eq!(serialised, runtime.as_str());
        }
        let unknown = "lokal".parse::<RuntimeKind>().unwrap_err();
        assert_eq!(unknown.known, "local, docker, podman, pyodide and e2b");
    }

    #[test]
    fn no_runtime_is_left_out_of_the_list() {
        let error = serde_json::from_str::<RuntimeKind>("\"none\"").unwrap_err();
        let names = RuntimeKind::ALL.iter().map(|runtime| format!("`{runtime}`"));
        let names = names.collect::<Vec<_>>().join(", ");
        assert!(
            error.to_string().contains(&format!("expected one of {names} at")),
            "{error}"
        );
    }
}
