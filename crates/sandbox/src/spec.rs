//! Requests for sandboxes, and their descriptions.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_exec::processors;
use ringfence_images::Lease;
use ringfence_policy::{
    Account, Bytes, Cpus, EgressPolicy, EnvName, Image, Isolation, Limits, Network, Pids, Timeout,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::id::{SandboxId, SandboxName};
use super::packages::SandboxPackages;

/// The runtime of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// A cell of this machine.
    #[default]
    Local,
    /// A container of Docker.
    Docker,
    /// A container of Podman.
    Podman,
}

impl Runtime {
    /// Returns the name, as in `--runtime`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// The fence of a sandbox on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxFence {
    /// The fence of runs: one user without any capability, over a read-only root file system.
    #[default]
    Run,
    /// Root over users of its own, with the capabilities to change owners, modes and users, over a root file system of its own.
    Box,
}

/// A sandbox to create.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewSandbox {
    /// Unique name.
    pub name: Option<SandboxName>,
    pub runtime: Runtime,
    pub limits: SandboxLimits,
    /// Hosts that the sandbox's programs may reach; without any, it has no network.
    pub egress: Option<EgressPolicy>,
    /// Permission of the sandbox's programs to listen on TCP ports, which
    /// [`Sandbox::connect`](crate::Sandbox::connect) reaches.
    pub ports: bool,
    /// Default environment of its programs.
    pub env: Vec<(EnvName, String)>,
    /// Labels set by the sandbox's owner, without an effect.
    pub metadata: BTreeMap<String, String>,
    /// Time until the sandbox expires. Can be changed later.
    pub timeout: Option<Timeout>,
    pub on_expiry: OnExpiry,
    /// Fate of its processes if its expiry pauses it.
    pub at_expiry: PausedProcesses,
    /// Id or name of the snapshot whose files it begins with.
    pub snapshot: Option<String>,
    /// Packages for the sandbox's interpreters. They are not removed before the sandbox ends.
    pub packages: SandboxPackages,
    /// User and home directory, in which programs and interpreters start by default.
    pub account: Account,
    /// Directory where its programs and interpreters begin, in place of the account's.
    pub directory: Option<String>,
    /// Default user of programs and interpreters, in a sandbox that has several users; root by default.
    pub user: Option<String>,
    /// Image whose files take the place of this machine's. It is not removed before the sandbox ends.
    pub image: Option<Arc<SandboxImage>>,
    /// Sandboxes that its owner may have at a time, this one included, by the quota of whoever creates it.
    pub most: Option<usize>,
}

/// Copies of a sandbox to make.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCopies {
    pub count: usize,
    /// Unique name of the copy, if it is one.
    pub name: Option<SandboxName>,
    /// As of [`NewSandbox::most`].
    pub most: Option<usize>,
}

impl NewCopies {
    /// So many copies without a name or a quota.
    pub const fn of(count: usize) -> Self {
        Self {
            count,
            name: None,
            most: None,
        }
    }
}

/// An image that is the root of a sandbox. It is not removed while this exists.
#[derive(Debug)]
pub struct SandboxImage {
    pub(crate) root: Image,
    _lease: Lease,
}

/// The name of an image, for what is made on it later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ImageName {
    /// Reference in full, or digest, by which the first sandbox named it.
    pub reference: String,
    /// Digest of its configuration.
    pub digest: String,
}

impl SandboxImage {
    pub(crate) const fn new(root: Image, lease: Lease) -> Self {
        Self { root, _lease: lease }
    }

    /// Returns the image's name.
    pub fn name(&self) -> ImageName {
        ImageName {
            reference: self.root.reference.clone(),
            digest: self.root.digest.clone(),
        }
    }

    /// Returns the root of a sandbox on this machine.
    pub(crate) fn root(&self) -> Image {
        self.root.clone()
    }
}

/// Two uses of one image are equal.
impl PartialEq for SandboxImage {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

/// Limits of all programs of a sandbox together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SandboxLimits {
    pub memory: Bytes,
    pub cpus: Cpus,
    pub pids: Pids,
    /// Size of all its files together.
    pub disk: Bytes,
}

impl SandboxLimits {
    /// Returns these limits, which come from elsewhere, with no more processors than this machine has.
    #[must_use]
    pub fn on_this_machine(self) -> Self {
        Self {
            cpus: processors::at_most(self.cpus),
            ..self
        }
    }
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            memory: Bytes::mib(512),
            cpus: Limits::DEFAULT.cpus,
            pids: Limits::DEFAULT.pids,
            disk: Bytes::mib(256),
        }
    }
}

impl NewSandbox {
    /// Returns the sandbox's fence, if it is on this machine.
    pub(crate) fn fence(&self) -> Option<SandboxFence> {
        let fence = match self.account.is_root() {
            true => SandboxFence::Box,
            false => SandboxFence::Run,
        };
        (self.runtime == Runtime::Local).then_some(fence)
    }

    pub(crate) fn network(&self) -> Network {
        match &self.egress {
            Some(policy) => Network::Allowlist(policy.clone()),
            None if self.ports => Network::loopback(),
            None => Network::None,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let SandboxLimits {
            memory,
            cpus,
            pids,
            disk,
        } = self.limits;
        Limits {
            memory,
            cpus,
            pids,
            disk,
            ..Limits::DEFAULT
        }
    }
}

/// The state of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    Running,
    /// Its processes are stopped until it is resumed.
    Paused,
}

/// The event at a sandbox's expiry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// It is ended.
    #[default]
    Kill,
    /// It is paused, and ended a day later unless it is resumed before.
    Pause,
}

/// The fate of a sandbox's processes at a pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PausedProcesses {
    /// They stop, and go on with the sandbox.
    #[default]
    Kept,
    /// They end: the sandbox keeps its files alone.
    Ended,
}

/// A description of a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxInfo {
    pub id: SandboxId,
    pub name: Option<SandboxName>,
    pub runtime: Runtime,
    pub state: SandboxState,
    /// Its fence; `null` in a container, whose engine has others.
    #[serde(default)]
    pub fence: Option<SandboxFence>,
    /// Source of its root file system: `host`, or the reference of an OCI image.
    pub image: String,
    /// Digest of the image's configuration; `null` for `host`.
    #[serde(default)]
    pub image_digest: Option<String>,
    /// Time of its creation (RFC 3339).
    pub created_at: String,
    /// Time at which it expires (RFC 3339).
    pub expires_at: String,
    #[serde(default)]
    pub on_expiry: OnExpiry,
    pub metadata: BTreeMap<String, String>,
    pub resources: Resources,
    /// Hosts that its programs may reach; empty: no network.
    pub allowed_hosts: Vec<String>,
    /// Set if its programs may listen on TCP ports, which clients reach.
    #[serde(default)]
    pub ports: bool,
    /// Layers that confine its programs; `null` where the runtime does not tell.
    pub isolation: Option<Isolation>,
    /// Number of processes that were started through the server and run.
    pub processes: usize,
    /// Number of its interpreters.
    pub contexts: usize,
    /// Packages of its interpreters, with their versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// Remarks about layers and limits that do not hold, and packages that are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Limits and usage of a sandbox. A limit that does not hold, and a figure that nobody measures, is `null`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Memory limit, in bytes.
    pub memory_limit: Option<u64>,
    /// Processor limit, in cores.
    pub cpu_limit: Option<f64>,
    /// Limit of processes and threads.
    pub pids_limit: Option<u32>,
    /// Limit of all files together, in bytes.
    pub disk_limit: u64,
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// Largest memory use so far, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Processor time used so far, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Number of processes and threads.
    pub pids: Option<u64>,
    /// Bytes of all files together, in whole pages.
    #[serde(default)]
    pub disk_bytes: Option<u64>,
}

impl Resources {
    /// Renders the usage on a line, of the limits where they are known.
    pub fn to_line(&self) -> String {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let of = |used: Option<String>, limit: Option<String>| {
            let limit = limit.map(|limit| format!(" of {limit}"));
            used.unwrap_or_else(|| "?".to_owned()) + &limit.unwrap_or_default()
        };
        let memory = match (self.memory_bytes, self.memory_limit) {
            (used, Some(limit)) => of(
                used.map(|used| mib(used).to_string()),
                Some(format!("{} MiB", mib(limit))),
            ),
            (used, None) => of(used.map(|used| format!("{} MiB", mib(used))), None),
        };
        let cpu = of(self.cpu_seconds.map(|seconds| format!("{seconds:.2} s")), None);
        let cores = self
            .cpu_limit
            .map(|cores| format!(" at {cores} cores"))
            .unwrap_or_default();
        let pids = of(
            self.pids.map(|count| count.to_string()),
            self.pids_limit.map(|limit| limit.to_string()),
        );
        let disk = match (self.disk_bytes, self.disk_limit) {
            (_, 0) => String::new(),
            (Some(used), limit) => format!("  files {} of {} MiB", mib(used), mib(limit)),
            (None, limit) => format!("  files at most {} MiB", mib(limit)),
        };
        format!("memory {memory}  processor {cpu}{cores}  processes {pids}{disk}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_is_not_made_up() {
        let used = Resources {
            memory_bytes: Some(1 << 20),
            pids: Some(2),
            ..Resources::default()
        };
        assert_eq!(used.to_line(), "memory 1 MiB  processor ?  processes 2");
        let limited = Resources {
            memory_limit: Some(512 << 20),
            cpu_limit: Some(1.5),
            pids_limit: Some(64),
            disk_limit: 256 << 20,
            ..used
        };
        let expected =
            "memory 1 of 512 MiB  processor ? at 1.5 cores  processes 2 of 64  files at most 256 MiB";
        assert_eq!(limited.to_line(), expected);
        let measured = Resources {
            disk_bytes: Some(3 << 20),
            ..limited
        };
        assert!(measured.to_line().ends_with("  files 3 of 256 MiB"));
    }
}
