//! Payloads of frames on the server's socket.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ringfence_container::sandboxes::{NewSandbox, SandboxInfo, SandboxLog};
use ringfence_exec::backend::{self, Fingerprint};
use ringfence_exec::local::{self, Fence};
use ringfence_exec::runner::{OutputDirectory, RunSpec};
use ringfence_packages::Digest;
use ringfence_policy::{
    Access, Bytes, Cpus, EgressFacts, EgressPolicy, EnvName, Language, Limits, Mount, Network, Pids, Remedy,
    Request, Scope, SessionId, Target, Timeout, Trusted,
};
use ringfence_tools::toolbox::ErrorKind;
use serde::{Deserialize, Serialize};

/// A request to run code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Source code of the program.
    pub code: String,
    pub name: String,
    pub language: Language,
    pub args: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    #[serde(with = "WireLimits")]
    pub limits: Limits,
    /// Mounts: host path, guest path, access.
    pub mounts: Vec<(PathBuf, String, Access)>,
    /// Host directory for `/workspace`; absolute.
    pub workspace: Option<PathBuf>,
    /// Working directory of a command, below the workspace.
    pub working_directory: Option<PathBuf>,
    /// Paths that the program must not change.
    #[serde(default)]
    pub trusted: Trusted,
    /// Owner of the request.
    pub scope: Scope,
    /// Hosts that the sandbox may reach. `None`: no network.
    pub network: Option<WireNetwork>,
    /// Session to evaluate the code in.
    pub session: Option<SessionId>,
    /// Required strength of the fence.
    pub fence: WireFence,
    /// The place where it runs.
    pub target: Target,
    /// Fingerprint of the client's settings for the target. A server with other settings declines. `None`:
    /// any settings of the server are accepted.
    pub settings: Option<Fingerprint>,
    /// Host directory that receives the program's output files.
    pub output_directory: Option<OutputDirectory>,
    /// Set to receive live output.
    pub stream: bool,
    /// Set if standard input follows.
    pub stdin: bool,
    /// Set if a socket for the bridge follows, as a file descriptor with one byte.
    pub bridge: bool,
}

/// [`EgressPolicy`] on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireNetwork {
    /// Hosts that may be reached.
    pub allowed: Vec<String>,
    /// Non-public address ranges that may be reached.
    pub private_networks: Vec<String>,
}

impl WireNetwork {
    fn of(network: &Network) -> Option<Self> {
        let Network::Allowlist(policy) = network else {
            return None;
        };
        Some(Self {
            allowed: policy.allowed.iter().map(ToString::to_string).collect(),
            private_networks: policy.private_networks.iter().map(ToString::to_string).collect(),
        })
    }

    fn network(wire: Option<Self>) -> Result<Network, Refusal> {
        let Some(wire) = wire else {
            return Ok(Network::None);
        };
        Ok(Network::Allowlist(EgressPolicy {
            allowed: parsed(&wire.allowed)?,
            private_networks: parsed(&wire.private_networks)?,
        }))
    }
}

fn parsed<T: FromStr<Err: std::error::Error>>(texts: &[String]) -> Result<Vec<T>, Refusal> {
    let parse = |text: &String| text.parse::<T>().map_err(|error| Refusal::invalid(&error));
    texts.iter().map(parse).collect()
}

/// A request about the sessions of a scope. The response is a list of
/// [`ringfence_exec::local::SessionInfo`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    pub scope: Scope,
    /// Operation to perform.
    pub action: SessionAction,
}

/// Operations on sessions, apart from evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SessionAction {
    List,
    New {
        id: SessionId,
        #[serde(with = "WireLimits")]
        limits: Limits,
        /// Required strength of the fence.
        fence: WireFence,
        /// Key of the packages that it has, which the client installed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        packages: Option<Digest>,
    },
    Fork {
        /// Session to copy.
        from: SessionId,
        /// Name of the copy.
        to: SessionId,
    },
    Remove {
        /// Session to end.
        id: SessionId,
    },
}

/// A request about the sandboxes of a scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxRequest {
    pub scope: Scope,
    /// Operation to perform.
    pub action: SandboxAction,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SandboxAction {
    List,
    New(Box<NewSandbox>),
    /// Freeze the sandbox's processes.
    Pause {
        name: String,
    },
    /// Thaw the sandbox's processes.
    Resume {
        name: String,
    },
    Run {
        name: String,
        /// Program and arguments.
        command: Vec<String>,
        /// Timeout in milliseconds; at it, the sandbox is ended.
        timeout_ms: u64,
    },
    /// Read the output of its commands.
    Log {
        name: String,
        /// Number of the first requested entry.
        after: u64,
        /// Set to wait for the entry, for a limited time.
        wait: bool,
    },
    Remove {
        name: String,
    },
}

/// Response to a [`SandboxRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxAnswer {
    /// Listed or changed sandboxes.
    Sandboxes(Vec<SandboxInfo>),
    /// Result of a command.
    Ran(Ran),
    /// Output of the sandbox's commands.
    Log(SandboxLog),
}

/// Result of a command in a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// Exit status. `None` after a timeout.
    pub status: Option<i64>,
    /// Captured standard output.
    pub stdout: String,
    /// Captured standard error.
    pub stderr: String,
    pub truncated: bool,
    /// Attempts to reach hosts, if it has a network.
    pub egress: Option<EgressFacts>,
    /// Set if the sandbox has ended with the command.
    pub sandbox_ended: bool,
}

/// Access to the server's console.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsoleAccess {
    pub address: SocketAddr,
    /// Ticket that opens it in one browser, once.
    pub ticket: String,
    /// Token for each request of a program, valid until the server ends.
    pub token: String,
}

/// [`Limits`] on the wire.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits", deny_unknown_fields)]
struct WireLimits {
    timeout: Timeout,
    max_output: Bytes,
    #[serde(deserialize_with = "ringfence_policy::memory::deserialize")]
    memory: Bytes,
    cpus: Cpus,
    pids: Pids,
    #[serde(deserialize_with = "ringfence_policy::disk::deserialize")]
    disk: Bytes,
}

/// [`Fence`] on the wire. A server never runs programs unfenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireFence {
    /// Every layer where namespaces are available.
    Default,
    /// Every layer, or an error.
    Required,
    /// Every available layer.
    BestEffort,
}

/// A request was not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    pub reason: Reason,
    /// Description of the error.
    pub message: String,
    pub hint: Remedy,
}

impl Refusal {
    /// Returns the error type of tools.
    pub const fn kind(&self) -> ErrorKind {
        match self.reason {
            Reason::Busy => ErrorKind::Busy,
            Reason::Invalid => ErrorKind::InvalidArguments,
            Reason::NotFound => ErrorKind::NotFound,
            Reason::Unavailable => ErrorKind::RuntimeUnavailable,
            Reason::Declined | Reason::Failed => ErrorKind::Internal,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The server's configuration differs from the client's; the client can run the request itself.
    Declined,
    /// A concurrency limit is reached.
    Busy,
    Invalid,
    /// A program does not exist.
    NotFound,
    /// An interpreter, or a layer of the fence, is unavailable.
    Unavailable,
    /// An internal failure.
    Failed,
}

impl From<WireFence> for Fence {
    fn from(fence: WireFence) -> Self {
        match fence {
            WireFence::Default => Self::Default,
            WireFence::Required => Self::Required,
            WireFence::BestEffort => Self::BestEffort,
        }
    }
}

impl WireFence {
    /// Converts a fence for the wire. `None` if it is unfenced.
    pub fn of(fence: Fence) -> Option<Self> {
        match fence {
            Fence::Default => Some(Self::Default),
            Fence::Required => Some(Self::Required),
            Fence::BestEffort => Some(Self::BestEffort),
            Fence::Unfenced | Fence::Host => None,
        }
    }
}

impl Run {
    /// Returns `true` if the client sends input or a bridge once the server has accepted the request.
    pub const fn waits_for_acceptance(&self) -> bool {
        self.stdin || self.bridge
    }

    /// Converts a request for the wire, with the fingerprint of the client's settings. `None` if no server may run it.
    pub fn of(spec: &RunSpec, settings: Option<Fingerprint>) -> Option<Self> {
        let RunSpec {
            request,
            target,
            fence,
            output_directory,
            fallback: _,
        } = spec;
        let fence = WireFence::of(*fence)?;
        // The message has no place for one, and a server would run the program on its own files.
        if request.image.is_some() {
            return None;
        }
        let mounts = request.mounts.iter().map(|mount| {
            (
                mount.host.clone(),
                mount.guest().display().to_string(),
                mount.access,
            )
        });
        Some(Self {
            code: request.code.clone(),
            name: request.name.clone(),
            language: request.language,
            args: request.args.clone(),
            env: request
                .env
                .iter()
                .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
                .collect(),
            limits: request.limits,
            mounts: mounts.collect(),
            workspace: request.workspace.clone(),
            working_directory: request.working_directory.clone(),
            trusted: request.trusted.clone(),
            scope: request.scope.clone(),
            network: WireNetwork::of(&request.network),
            session: request.session.clone(),
            fence,
            target: target.clone(),
            settings,
            output_directory: output_directory.clone(),
            stream: false,
            stdin: false,
            bridge: false,
        })
    }

    /// Converts from the wire, validating everything again.
    ///
    /// # Errors
    /// If a part of it is invalid.
    pub fn spec(self) -> Result<RunSpec, Refusal> {
        let mounts = self.mounts.into_iter().map(|(host, guest, access)| {
            Mount::new(host, &guest, access).map_err(|error| Refusal::invalid(&error))
        });
        let env = self.env.into_iter().map(|(name, value)| {
            name.parse::<EnvName>()
                .map(|name| (name, value))
                .map_err(|error| Refusal::invalid(&error))
        });
        let request = Request {
            code: self.code,
            name: self.name,
            language: self.language,
            args: self.args,
            env: env.collect::<Result<_, _>>()?,
            limits: self.limits,
            network: WireNetwork::network(self.network)?,
            mounts: mounts.collect::<Result<_, _>>()?,
            workspace: self.workspace,
            working_directory: self.working_directory,
            trusted: self.trusted,
            scope: self.scope,
            session: self.session,
            image: None,
        };
        Ok(RunSpec {
            request,
            target: self.target,
            fence: self.fence.into(),
            output_directory: self.output_directory,
            fallback: None,
        })
    }
}

impl Refusal {
    pub fn invalid(error: &dyn std::error::Error) -> Self {
        Self {
            reason: Reason::Invalid,
            message: error.to_string(),
            hint: "correct the request".into(),
        }
    }
}

impl Refusal {
    /// Creates the refusal for a client that disconnected before its request began; it will not be read.
    pub(crate) fn gone() -> Self {
        Self {
            reason: Reason::Failed,
            message: "the client has gone".to_owned(),
            hint: "".into(),
        }
    }
}

impl From<&local::Error> for Refusal {
    fn from(error: &local::Error) -> Self {
        Self::from(backend::Error::from(error))
    }
}

impl From<backend::Error> for Refusal {
    fn from(error: backend::Error) -> Self {
        Self {
            reason: match error.reason {
                backend::Reason::Unavailable => Reason::Unavailable,
                backend::Reason::Lost => Reason::Failed,
                backend::Reason::Busy => Reason::Busy,
                backend::Reason::NotFound => Reason::NotFound,
                backend::Reason::Invalid => Reason::Invalid,
                backend::Reason::Failed => Reason::Failed,
            },
            message: error.message,
            hint: error.hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_anew() {
        let sent = WireLimits::serialize(&Limits::DEFAULT, serde_json::value::Serializer).unwrap();
        assert_eq!(WireLimits::deserialize(sent.clone()).unwrap(), Limits::DEFAULT);
        for name in ["memory", "disk", "pids", "cpus", "timeout"] {
            let mut zero = sent.clone();
            zero[name] = 0.into();
            let error = WireLimits::deserialize(zero).unwrap_err();
            assert!(error.to_string().contains("must be between"), "{name}: {error}");
        }
    }
}
