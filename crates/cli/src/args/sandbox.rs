//! The arguments of `ringfence sandbox`.

use clap::{Args, Subcommand, ValueEnum};
use ringfence_policy::{Bytes, Cpus, Pids, Timeout};

use super::scoped::ScopedOptions;
use super::setup::EngineArg;
use ringfence::config::values::OciRuntime;

pub(super) const EXAMPLES: &str = "\
Sandboxes live in the server: start one with `ringfence serve &`.

Examples:
  ringfence sandbox create --name build --template code-executor
  ringfence sandbox run build -- python3 -c 'print(6 * 7)'
  ringfence sandbox ls
  ringfence sandbox stats build
  ringfence sandbox rm build";

/// `ringfence sandbox`.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Create a container that stays until its time limit, or until it is removed.
    Create(Box<SandboxCreateArgs>),
    /// List the sandboxes.
    Ls(ScopedOptions),
    /// Run a command in a sandbox.
    Run(SandboxRunArgs),
    /// Pause the processes of a sandbox.
    Pause(SandboxNameArgs),
    /// Resume the processes of a sandbox.
    Resume(SandboxNameArgs),
    /// Print the output of the commands that ran in a sandbox.
    Logs(SandboxLogsArgs),
    /// Print the resource usage of a sandbox, about once a second.
    Stats(SandboxStatsArgs),
    /// Remove a sandbox and its files.
    Rm(SandboxNameArgs),
}

/// `ringfence sandbox create`.
#[derive(Debug, Args)]
pub(crate) struct SandboxCreateArgs {
    #[command(flatten)]
    pub(crate) options: ScopedOptions,
    /// The name: 1 to 40 of `a-z`, `0-9` and `-` (default: an unused name).
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The template of its limits.
    #[arg(long, value_name = "NAME", default_value = "code-executor")]
    pub(crate) template: String,
    /// The container engine.
    #[arg(long, value_name = "NAME", default_value = "docker")]
    pub(crate) engine: EngineArg,
    /// The image (default: the template's).
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Memory limit (default: the template's).
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::memory::parse)]
    pub(crate) memory: Option<Bytes>,
    /// CPU limit in cores (default: the template's).
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<Cpus>,
    /// Maximum number of processes and threads (default: the template's).
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pids: Option<Pids>,
    /// Maximum lifetime (default: the template's).
    #[arg(long, value_name = "TIME")]
    pub(crate) max_duration: Option<Timeout>,
    /// The OCI runtime (default: the template's).
    #[arg(long, value_name = "NAME")]
    pub(crate) oci_runtime: Option<OciRuntimeArg>,
}

/// Choice of the OCI runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OciRuntimeArg {
    /// The container engine's choice.
    Default,
    /// runc.
    Runc,
    /// crun.
    Crun,
    /// gVisor: a kernel of its own between the program and the host's.
    Runsc,
}

impl From<OciRuntimeArg> for OciRuntime {
    fn from(choice: OciRuntimeArg) -> Self {
        match choice {
            OciRuntimeArg::Default => Self::Default,
            OciRuntimeArg::Runc => Self::Runc,
            OciRuntimeArg::Crun => Self::Crun,
            OciRuntimeArg::Runsc => Self::Runsc,
        }
    }
}

/// `ringfence sandbox pause`, `resume` and `rm`.
#[derive(Debug, Args)]
pub(crate) struct SandboxNameArgs {
    #[command(flatten)]
    pub(crate) options: ScopedOptions,
    /// The sandbox.
    pub(crate) name: String,
}

/// `ringfence sandbox run`.
#[derive(Debug, Args)]
pub(crate) struct SandboxRunArgs {
    #[command(flatten)]
    pub(crate) options: ScopedOptions,
    /// The sandbox.
    pub(crate) name: String,
    /// Wall-clock limit of the command. Exceeding it removes the sandbox, unless it was created with allowed hosts.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) timeout: Timeout,
    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// `ringfence sandbox logs`.
#[derive(Debug, Args)]
pub(crate) struct SandboxLogsArgs {
    #[command(flatten)]
    pub(crate) options: ScopedOptions,
    /// The sandbox.
    pub(crate) name: String,
    /// Print further output as it arrives.
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// `ringfence sandbox stats`.
#[derive(Debug, Args)]
pub(crate) struct SandboxStatsArgs {
    #[command(flatten)]
    pub(crate) options: ScopedOptions,
    /// The sandbox.
    pub(crate) name: String,
    /// Print one line and exit.
    #[arg(long)]
    pub(crate) once: bool,
}
