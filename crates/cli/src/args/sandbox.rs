//! The arguments of `ringfence sandbox`.

use clap::{Args, Subcommand};
use ringfence_policy::{Bytes, Cpus, Pids, Timeout};

use super::scoped::ScopedOptions;
use super::setup::EngineArg;
use crate::config::values::OciRuntime;

pub(super) const EXAMPLES: &str = "\
Sandboxes live in the engine: start one with `ringfence serve &`.

Examples:
  ringfence sandbox create --name build --template code-executor
  ringfence sandbox run build -- python3 -c 'print(6 * 7)'
  ringfence sandbox ls
  ringfence sandbox stats build
  ringfence sandbox rm build";

/// `ringfence sandbox`.
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Make a container that stays until its time is up, or it is removed.
    Create(Box<SandboxCreateArgs>),
    /// List the sandboxes.
    Ls(ScopedOptions),
    /// Run a command in a sandbox. One that goes past its time takes the sandbox along.
    Run(SandboxRunArgs),
    /// Stop a sandbox's processes where they are.
    Pause(SandboxNameArgs),
    /// Let them go on.
    Resume(SandboxNameArgs),
    /// Print what a sandbox's first process has written.
    Logs(SandboxLogsArgs),
    /// Print what a sandbox uses, about once a second.
    Stats(SandboxStatsArgs),
    /// End a sandbox, with all its files.
    Rm(SandboxNameArgs),
}

/// `ringfence sandbox create`.
#[derive(Debug, Args)]
pub(crate) struct SandboxCreateArgs {
    #[command(flatten)]
    pub(crate) options: ScopedOptions,
    /// Its name: 1 to 40 of `a-z`, `0-9` and `-` (default: one that nobody has).
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The template that its limits are from.
    #[arg(long, value_name = "NAME", default_value = "code-executor")]
    pub(crate) template: String,
    /// The container engine.
    #[arg(long, value_name = "NAME", default_value = "docker")]
    pub(crate) engine: EngineArg,
    /// The image (default: the template's).
    #[arg(long, value_name = "NAME")]
    pub(crate) image: Option<String>,
    /// Memory (default: the template's).
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::memory::parse)]
    pub(crate) memory: Option<Bytes>,
    /// Cores' worth of processor time (default: the template's).
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<Cpus>,
    /// Processes and threads at once (default: the template's).
    #[arg(long, value_name = "NUMBER")]
    pub(crate) pids: Option<Pids>,
    /// How long it may live (default: the template's).
    #[arg(long, value_name = "TIME")]
    pub(crate) max_duration: Option<Timeout>,
    /// What makes the container (default: the template's choice).
    #[arg(long, value_name = "NAME")]
    pub(crate) oci_runtime: Option<OciRuntime>,
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
    /// Wall time until the sandbox is ended.
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
    /// Go on with what it writes from now on.
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
    /// Print one line, and end.
    #[arg(long)]
    pub(crate) once: bool,
}
