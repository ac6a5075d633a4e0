//! The arguments of `ringfence skills`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ringfence_policy::Scope;

pub(crate) const EXAMPLES: &str = "\
A skill is a class in a Python file of the directory; its public methods are functions that programs can call.

Examples:
  ringfence skills ls --skills ./skills
  ringfence skills describe Notes.add --skills ./skills
  ringfence skills call Notes.add '{\"text\": \"buy milk\"}' --skills ./skills
  ringfence skills accept --skills ./skills
  ringfence run --skills ./skills -c 'print(device.Notes.list())'

Without --skills, the directory is that of `skills.path` in the configuration.";

/// `ringfence skills`.
#[derive(Debug, Subcommand)]
pub enum SkillsCommand {
    /// List the callable functions, and report files that could not be loaded.
    Ls {
        /// Words to search for in names and descriptions (default: list all functions).
        #[arg(value_name = "WORD")]
        words: Vec<String>,
        #[command(flatten)]
        options: SkillsOptions,
    },
    /// Describe one function: its signature and its purpose.
    Describe {
        /// The function, such as `Notes.add`.
        #[arg(value_name = "PATH")]
        path: String,
        #[command(flatten)]
        options: SkillsOptions,
    },
    /// Call one function, as a program would.
    Call(SkillsCallArgs),
    /// Consent to what the directory's manifests ask for, if programs could have changed them.
    Accept(SkillsAcceptArgs),
}

/// Options of every `ringfence skills` command.
#[derive(Debug, Args)]
pub struct SkillsOptions {
    /// The directory of skill files.
    #[arg(long, value_name = "DIR")]
    pub skills: Option<PathBuf>,
    /// Call on behalf of this user.
    #[arg(long, value_name = "ID")]
    pub user: Option<Scope>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `ringfence skills accept`.
#[derive(Debug, Args)]
pub struct SkillsAcceptArgs {
    /// The directory of skill files.
    #[arg(long, value_name = "DIR")]
    pub skills: Option<PathBuf>,
}

/// `ringfence skills call`.
#[derive(Debug, Args)]
pub struct SkillsCallArgs {
    /// The function, such as `Notes.add`.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// The arguments: a JSON object by name, or an array by position; `-` reads them from standard input
    /// (default: none).
    #[arg(value_name = "JSON")]
    pub arguments: Option<String>,
    #[command(flatten)]
    pub options: SkillsOptions,
}
