//! The arguments of `ringfence session`.

use clap::{Args, Subcommand};
use ringfence_policy::{Bytes, Cpus, Pids, SessionId};

use super::scoped::{ScopedListArgs, ScopedOptions};

pub(crate) const EXAMPLES: &str = "\
Sessions live in the server: start one with `ringfence serve &`.

Examples:
  ringfence run --session data -c 'import math; x = 2'    the first use makes the session
  ringfence run --session data -c 'math.sqrt(x)'          prints 1.4142135623730951
  ringfence session new big --memory 1GiB --with pandas
  ringfence session fork data trial    a copy, to try something with
  ringfence session ls
  ringfence session rm data";

/// `ringfence session`.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the sessions.
    Ls(ScopedListArgs),
    /// Create a session before its first use, with its own limits.
    New(SessionNewArgs),
    /// Copy a session as it is now, with its variables and files, into its own fence.
    Fork(SessionForkArgs),
    /// End a session and remove its variables and files.
    Rm(SessionRmArgs),
}

/// `ringfence session new`.
#[derive(Debug, Args)]
pub struct SessionNewArgs {
    /// The session's name: letters, digits, `.`, `_` and `-`.
    #[arg(value_name = "ID")]
    pub id: SessionId,
    /// Memory limit of all its processes together (default: 256MiB).
    #[arg(long, value_name = "SIZE", value_parser = ringfence_policy::memory::parse)]
    pub memory: Option<Bytes>,
    /// CPU limit in cores, such as 1 or 0.5 (default: 1).
    #[arg(long, value_name = "NUMBER")]
    pub cpus: Option<Cpus>,
    /// Maximum number of processes and threads (default: 64).
    #[arg(long, value_name = "NUMBER")]
    pub pids: Option<Pids>,
    /// Install these Python packages for it, such as `pandas,seaborn==0.13`; may be repeated.
    #[arg(long, value_name = "PKG,…")]
    pub with: Vec<String>,
    #[command(flatten)]
    pub options: ScopedOptions,
}

/// `ringfence session fork`.
#[derive(Debug, Args)]
pub struct SessionForkArgs {
    /// The session to copy.
    #[arg(value_name = "FROM")]
    pub from: SessionId,
    /// The name of the copy.
    #[arg(value_name = "TO")]
    pub to: SessionId,
    #[command(flatten)]
    pub options: ScopedOptions,
}

/// `ringfence session rm`.
#[derive(Debug, Args)]
pub struct SessionRmArgs {
    /// The session to end.
    #[arg(value_name = "ID")]
    pub id: SessionId,
    #[command(flatten)]
    pub options: ScopedOptions,
}
