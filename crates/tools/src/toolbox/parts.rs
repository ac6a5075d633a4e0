//! Components of a toolbox.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_exec::local::Fence;
use ringfence_exec::runner::{RunSpec, Runner};
use ringfence_network::fetch::Fetcher;
use ringfence_policy::{Fallback, Family, Limits, Network, Request, RuntimeKind, Target, Trusted};
use ringfence_records::audit;

use super::{Approvals, EgressMeter, SandboxSettings, ToolLimits};
use crate::host::HostSettings;
use crate::shell::ShellRunner;
use crate::skills::Skills;
use crate::workspaces::Workspaces;

/// Components and configuration of a [`Toolbox`](super::Toolbox).
#[derive(Debug)]
pub struct Parts {
    /// Runs every request.
    pub runner: Runner,
    pub code: CodeSettings,
    /// Timeouts and output limit of tools.
    pub limits: ToolLimits,
    pub denied: Vec<String>,
    /// Tools that callers of this kind never have, whatever the configuration says.
    pub closed: Vec<String>,
    /// Settings of the tool `sandbox_exec`. `None` disables it.
    pub sandbox: Option<SandboxSettings>,
    /// Runner of commands of the tool `shell`.
    pub shell: ShellRunner,
    /// Settings of commands on this machine itself. `None` disables the tool.
    pub host: Option<HostSettings>,
    pub workspaces: Workspaces,
    /// HTTP client, limited to allowed hosts.
    pub fetcher: Fetcher,
    /// Directory for temporary directories of single runs.
    pub scratch: PathBuf,
    /// Destination of approval requests. `None` rejects calls that need approval.
    pub approvals: Option<Approvals>,
    /// Host functions that programs may call. `None` disables their tools.
    pub skills: Option<Arc<Skills>>,
    /// Audit log. `None` only for callers that keep records themselves.
    pub audit: Option<audit::Log>,
    /// Counter of the bytes that tools themselves exchange with hosts.
    pub egress_meter: Option<Arc<dyn EgressMeter>>,
}

/// Defaults of code that a tool runs.
#[derive(Debug, Clone)]
pub struct CodeSettings {
    /// Hosts that the code may reach.
    pub network: Network,
    /// Backend unless the caller names another.
    pub runtime: RuntimeKind,
    /// Fallback if `runtime` is a container engine that is unavailable.
    pub fallback: Fallback,
    /// Resource limits.
    pub limits: CodeLimits,
    /// Minimum strength of the fence.
    pub fence: Fence,
    /// Paths that the code must not change.
    pub trusted: Trusted,
    pub variables: Vec<(ringfence_policy::EnvName, String)>,
}

/// Resource limits of code, by backend.
#[derive(Debug, Clone, Copy)]
pub struct CodeLimits {
    /// Limits in the fence of this machine.
    pub local: Limits,
    pub container: Limits,
    /// Limits in Pyodide. Their timeout holds where it is shorter than the tool's.
    pub pyodide: Limits,
}

impl CodeLimits {
    pub(super) fn on(&self, runtime: RuntimeKind) -> &Limits {
        match runtime.traits().family {
            Family::Container => &self.container,
            Family::Pyodide => &self.pyodide,
            Family::General | Family::Remote => &self.local,
        }
    }
}

impl CodeSettings {
    /// Returns the specification of a request on a target, with the limits of its runtime instead of those of the
    /// default one.
    pub(super) fn spec(&self, mut request: Request, target: Target) -> RunSpec {
        let runtime = target.runtime();
        let own = self.limits.on(runtime);
        let Limits {
            mut timeout,
            max_output,
            ..
        } = request.limits;
        if runtime.traits().family == Family::Pyodide {
            timeout = timeout.min(own.timeout);
        }
        request.limits = Limits {
            timeout,
            max_output,
            ..*own
        };
        RunSpec::new(request, target, self.fence)
    }
}
