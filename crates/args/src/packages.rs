//! The arguments of `ringfence packages`.

use clap::{Args, Subcommand};

pub(crate) const EXAMPLES: &str = "\
Examples:
  ringfence run --with pandas,seaborn==0.13 chart.py    installs them once, in a fence, and keeps them
  ringfence run --with lodash@4,@scope/name@^2 report.mjs
  ringfence packages ls
  ringfence packages rm 3f2a91c04b7d
  ringfence packages rm --all";

/// `ringfence packages`.
#[derive(Debug, Subcommand)]
pub enum PackagesCommand {
    /// List kept packages, the last used first.
    Ls {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Remove kept packages that no program uses.
    Rm(PackagesRmArgs),
}

/// `ringfence packages rm`.
#[derive(Debug, Args)]
pub struct PackagesRmArgs {
    /// Beginnings of the ids that `ls` prints.
    #[arg(value_name = "ID", required_unless_present = "all")]
    pub ids: Vec<String>,
    /// Remove all that no program uses.
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
}
