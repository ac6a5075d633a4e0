//! How strongly a run must be fenced, and how strongly it was.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to do when a layer of the fence cannot be had on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationMode {
    /// Refuse the run.
    Required,
    /// Run with the layers that can be had, and report which.
    #[serde(alias = "best_effort")]
    BestEffort,
}

/// The layers that were really applied to one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Isolation {
    /// Own user namespace.
    pub user_ns: bool,
    /// Own process-id namespace.
    pub pid_ns: bool,
    /// Own mount namespace with a minimal read-only root.
    pub mount_ns: bool,
    /// Own network namespace with nothing in it, or the egress proxy alone.
    pub net_ns: bool,
    /// Own System V IPC and POSIX queue namespace.
    pub ipc_ns: bool,
    /// Own host name.
    pub uts_ns: bool,
    /// Own view of the control groups.
    pub cgroup_ns: bool,
    /// Own clock offsets.
    pub time_ns: bool,
    /// Name of the system-call filter, if one was loaded.
    pub seccomp: Option<String>,
    /// The Landlock ABI that was enforced; 0 where there was none.
    pub landlock_abi: u32,
    /// `v1` or `v2` where control groups hold the limits.
    pub cgroup: Option<String>,
    /// No new privileges through setuid programs.
    pub no_new_privs: bool,
    /// All capabilities dropped.
    pub capabilities_dropped: bool,
}

impl Isolation {
    /// No layer at all: what `--unfenced` reports.
    pub const NONE: Self = Self {
        user_ns: false,
        pid_ns: false,
        mount_ns: false,
        net_ns: false,
        ipc_ns: false,
        uts_ns: false,
        cgroup_ns: false,
        time_ns: false,
        seccomp: None,
        landlock_abi: 0,
        cgroup: None,
        no_new_privs: false,
        capabilities_dropped: false,
    };
}
