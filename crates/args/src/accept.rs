//! The arguments of `ringfence accept`.

use std::path::PathBuf;

use clap::Args;

pub(crate) const EXAMPLES: &str = "\
Where programs could write, the file of --config and a `.pth` file that leads elsewhere are
believed only as you last accepted them. Those that you named before the first program came are
accepted already. Look at a file first.

Examples:
  ringfence accept conf/rf.toml
  ringfence accept env/lib/python3.11/site-packages/project.pth";

/// `ringfence accept`.
#[derive(Debug, Args)]
pub struct AcceptArgs {
    /// The files, as they are now.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
}
