//! The arguments of `ringfence policy`.

use clap::{Args, Subcommand};

pub(crate) const EXAMPLES: &str = "\
Nothing runs, and nobody is asked. The status is 0 whatever is decided.

Examples:
  ringfence policy check -- 'systemctl status nginx | head'   one argument: a line for the shell
  ringfence policy check --json -- ls -la                     several: a program and its arguments
  ringfence policy check --stdin < commands.txt               a command a line; JSON strings where they hold newlines
  ringfence policy explain -- 'find . -name x -delete'";

/// `ringfence policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the decision and its reason; `review` means that a model or a person would decide.
    Check(PolicyCheckArgs),
    /// Show how the command was parsed, and how each part was classified.
    Explain {
        /// The command: a shell command line, or a program and its arguments.
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// `ringfence policy check`.
#[derive(Debug, Args)]
pub struct PolicyCheckArgs {
    /// Print a JSON object for each command.
    #[arg(long)]
    pub json: bool,
    /// Read the commands from standard input, one per line.
    #[arg(long, conflicts_with = "command")]
    pub stdin: bool,
    /// The command: a shell command line, or a program and its arguments.
    #[arg(last = true, required_unless_present = "stdin", value_name = "COMMAND")]
    pub command: Vec<String>,
}
