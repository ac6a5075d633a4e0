//! What the messages on the engine's socket say.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use ringfence_policy::{
    Access, Bytes, Cpus, EgressFacts, EgressPolicy, EnvName, Language, Limits, Mount, Network, Pids, Request,
    Scope, SessionId, Timeout, Trusted,
};
use ringfence_runtime::backend;
use ringfence_runtime::container::Flavor;
use ringfence_runtime::container::keepalive::Wanted;
use ringfence_runtime::container::sandboxes::{NewSandbox, SandboxInfo, SandboxLog};
use ringfence_runtime::local::{self, Fence};
use serde::{Deserialize, Serialize};

/// A request to run code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The program's text.
    pub code: String,
    /// What it is called.
    pub name: String,
    /// Its language.
    pub language: Language,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: Vec<(String, String)>,
    /// What it may use.
    #[serde(with = "WireLimits")]
    pub limits: Limits,
    /// Host paths that it sees, as `HOST`, `GUEST`, writable.
    pub mounts: Vec<(PathBuf, String, Access)>,
    /// The host directory that is its `/workspace`; absolute.
    pub workspace: Option<PathBuf>,
    /// Where a command starts, below the workspace.
    pub working_directory: Option<PathBuf>,
    /// What it must leave as it is.
    #[serde(default)]
    pub trusted: Trusted,
    /// Whose request it is.
    pub scope: Scope,
    /// What it may reach; nothing if `None`.
    pub network: Option<WireNetwork>,
    /// The session that it is evaluated in.
    pub session: Option<SessionId>,
    /// How strongly it must be fenced.
    pub fence: WireFence,
    /// The interpreter that the client would use; an engine that would use another declines.
    pub interpreter: Option<PathBuf>,
    /// The container that it runs in, where it is not in the engine's own fence.
    pub container: Option<InContainer>,
    /// The mark of the client's Pyodide, if it runs there; an engine with another declines.
    pub pyodide: Option<String>,
    /// Where the files go that the program leaves for its caller.
    pub output_directory: Option<PathBuf>,
    /// Whether output is sent while the program runs.
    pub stream: bool,
    /// Whether standard input follows.
    pub stdin: bool,
    /// Whether a socket follows, beside one byte, that its bridge is to be carried over.
    pub bridge: bool,
}

/// [`EgressPolicy`] on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireNetwork {
    /// The hosts that may be reached.
    pub allowed: Vec<String>,
    /// Ranges of addresses that may be, though they are not public.
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

/// A request for a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InContainer {
    /// The container engine.
    pub engine: Flavor,
    /// The mark of the settings that the client would make it by; an engine with others declines.
    pub settings: String,
    /// What it is, if it is to be the one that is kept for such requests.
    pub kept: Option<Wanted>,
}

/// A request about the sessions of a scope. Answered with a list of [`ringfence_runtime::local::SessionInfo`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// Whose sessions.
    pub scope: Scope,
    /// What to do.
    pub action: SessionAction,
}

/// What can be done with sessions, beside evaluating in them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SessionAction {
    /// Tell of all.
    List,
    /// Make one.
    New {
        /// Its name.
        id: SessionId,
        /// What it may use.
        #[serde(with = "WireLimits")]
        limits: Limits,
        /// How strongly it must be fenced.
        fence: WireFence,
    },
    /// Make a copy of one.
    Fork {
        /// Which.
        from: SessionId,
        /// The copy's name.
        to: SessionId,
    },
    /// End one.
    Remove {
        /// Which.
        id: SessionId,
    },
}

/// A request about the sandboxes of a scope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxRequest {
    /// Whose sandboxes.
    pub scope: Scope,
    /// What to do.
    pub action: SandboxAction,
}

/// What can be done with sandboxes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SandboxAction {
    /// Tell of all.
    List,
    /// Make one.
    New(Box<NewSandbox>),
    /// Stop its processes where they are.
    Pause {
        /// Which.
        name: String,
    },
    /// Let them go on.
    Resume {
        /// Which.
        name: String,
    },
    /// Run a command in it.
    Run {
        /// Which.
        name: String,
        /// The program and its arguments.
        command: Vec<String>,
        /// Milliseconds until the sandbox is ended.
        timeout_ms: u64,
    },
    /// Tell what its commands have printed.
    Log {
        /// Which.
        name: String,
        /// The number of the first piece that is wanted.
        after: u64,
        /// Whether to wait for it for a while, where it is not there yet.
        wait: bool,
    },
    /// End it.
    Remove {
        /// Which.
        name: String,
    },
}

/// What came of a [`SandboxRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxAnswer {
    /// Those that are there because of it.
    Sandboxes(Vec<SandboxInfo>),
    /// What came of a command.
    Ran(Ran),
    /// What its commands have printed.
    Log(SandboxLog),
}

/// What came of a command in a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ran {
    /// Its status; none if it went past its time.
    pub status: Option<i64>,
    /// What it wrote to standard output, as far as it was kept.
    pub stdout: String,
    /// What it wrote to standard error, as far as it was kept.
    pub stderr: String,
    /// Whether either was cut.
    pub truncated: bool,
    /// What it tried to reach, where it could.
    pub egress: Option<EgressFacts>,
    /// Whether its sandbox was ended with it.
    pub sandbox_ended: bool,
}

/// The way into the console of the engine that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsoleAccess {
    /// Where it is.
    pub address: SocketAddr,
    /// What opens it for one browser, once.
    pub ticket: String,
    /// What a program sends with each request, until the engine ends.
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

/// [`Fence`] on the wire. Running unfenced cannot be asked of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireFence {
    /// Every layer where namespaces work.
    Default,
    /// Every layer, or not at all.
    Required,
    /// The layers that can be had.
    BestEffort,
}

/// Why a request was not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What kind of reason.
    pub reason: Reason,
    /// What was wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// This engine is set up otherwise than the client; the client can do the work itself.
    Declined,
    /// Too much at once.
    Busy,
    /// The request makes no sense.
    Invalid,
    /// A program does not exist.
    NotFound,
    /// An interpreter, or a layer of the fence, is not there.
    Unavailable,
    /// It could not be run.
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
    /// A fence on the wire; `None` for running unfenced.
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
    /// A request on the wire; `None` for one that no engine may serve.
    pub fn of(request: &Request, fence: Fence) -> Option<Self> {
        let fence = WireFence::of(fence)?;
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
            interpreter: None,
            container: None,
            pyodide: None,
            output_directory: None,
            stream: false,
            stdin: false,
            bridge: false,
        })
    }

    /// The request itself, checked anew.
    ///
    /// # Errors
    /// If a part of it is not what it should be.
    pub fn request(self) -> Result<Request, Refusal> {
        let mounts = self.mounts.into_iter().map(|(host, guest, access)| {
            Mount::new(host, &guest, access).map_err(|error| Refusal::invalid(&error))
        });
        let env = self.env.into_iter().map(|(name, value)| {
            name.parse::<EnvName>()
                .map(|name| (name, value))
                .map_err(|error| Refusal::invalid(&error))
        });
        Ok(Request {
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
        })
    }
}

impl Refusal {
    /// The request makes no sense.
    pub fn invalid(error: &dyn std::error::Error) -> Self {
        Self {
            reason: Reason::Invalid,
            message: error.to_string(),
            hint: "correct the request".to_owned(),
        }
    }
}

impl Refusal {
    /// The client has gone before its request could begin; nobody will read this.
    pub(crate) fn gone() -> Self {
        Self {
            reason: Reason::Failed,
            message: "the client has gone".to_owned(),
            hint: String::new(),
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
            assert!(error.to_string().contains("must lie between"), "{name}: {error}");
        }
    }
}
