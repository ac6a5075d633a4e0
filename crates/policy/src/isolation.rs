//! Isolation: the required mode, and the layers applied.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Handling of an isolation layer that this machine cannot provide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationMode {
    /// Refuse the run.
    Required,
    /// Run with the available layers, and report them.
    #[serde(alias = "best_effort")]
    BestEffort,
}

/// The isolation layers applied to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Isolation {
    /// Own user namespace.
    pub user_ns: bool,
    /// Own pid namespace.
    pub pid_ns: bool,
    /// Own mount namespace with a minimal read-only root.
    pub mount_ns: bool,
    /// Own network namespace, empty or with the egress proxy alone.
    pub net_ns: bool,
    /// Own IPC namespace: System V IPC and POSIX message queues.
    pub ipc_ns: bool,
    /// Own UTS namespace: host name.
    pub uts_ns: bool,
    /// Own cgroup namespace.
    pub cgroup_ns: bool,
    /// Own time namespace: clock offsets.
    pub time_ns: bool,
    /// Name of the seccomp filter, if one was loaded.
    pub seccomp: Option<String>,
    /// Landlock ABI enforced; 0 without Landlock.
    pub landlock_abi: u32,
    /// `v1` or `v2` where cgroups enforce the limits.
    pub cgroup: Option<String>,
    /// `no_new_privs`: setuid programs gain no privileges.
    pub no_new_privs: bool,
    /// All capabilities dropped.
    pub capabilities_dropped: bool,
}

impl Isolation {
    /// No layer: the report of an `--unfenced` run.
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
