//! The arguments of `ringfence approvals` and `ringfence gateway`.

use clap::{Args, Subcommand};
use ringfence_records::approval::{Chat, MAX_USES};

const TERMINAL_HELP: &str = "\
Answers, each ended with Enter:
  a, a 2    approve the only question, or question 2, once
  s, s 2    approve it for the rest of the session
  m, m 2    approve a call of a function, and 10 more calls of it
  d, d 2    deny it
  n, n 2    deny it for the rest of the session
  approve ID, deny ID, session ID, more ID, always ID, never ID    by its id, for scripts";

/// `ringfence approvals`.
#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List the pending questions.
    Ls {
        /// Include answered and expired questions.
        #[arg(long)]
        all: bool,
        /// List the commands that are approved always instead, from `approved.toml`.
        #[arg(long, conflicts_with = "all")]
        standing: bool,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Approve a question.
    Approve(ApproveArgs),
    /// Deny a question.
    Deny(DenyArgs),
    /// End a standing approval: the command asks again.
    Revoke {
        /// Its id in `ringfence approvals ls --standing`, or an unambiguous prefix of it.
        id: String,
    },
}

/// `ringfence approvals approve`.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The question's id, or an unambiguous prefix of it.
    pub id: String,
    /// Approve the same request for the rest of the session.
    #[arg(long, conflicts_with_all = ["always", "uses"])]
    pub session: bool,
    /// Approve the same request this many more times in the session; for a function, calls with any
    /// arguments.
    #[arg(long, value_name = "NUMBER", conflicts_with = "always")]
    #[arg(value_parser = super::values::number::<1, MAX_USES>)]
    pub uses: Option<u32>,
    /// Approve exactly this text from now on, by adding it to `approved.toml` in the state directory.
    #[arg(long)]
    pub always: bool,
}

/// `ringfence approvals deny`.
#[derive(Debug, Args)]
pub struct DenyArgs {
    /// The question's id, or an unambiguous prefix of it.
    pub id: String,
    /// Deny the same request for the rest of the session, without asking again.
    #[arg(long)]
    pub session: bool,
}

/// `ringfence gateway`.
#[derive(Debug, Subcommand)]
pub enum GatewayCommand {
    /// Ask the person at this terminal, or the program on standard input.
    #[command(after_help = TERMINAL_HELP)]
    Terminal {
        /// Ask only the questions addressed to this chat; may be repeated (default: all questions).
        #[arg(long = "chat", value_name = "ID")]
        chats: Vec<Chat>,
    },
    /// Ask in Telegram chats, as configured in `gateway.telegram`.
    Telegram {
        /// Print the ids of the people who write to the bot and of their chats, and ask nothing.
        #[arg(long)]
        ids: bool,
    },
    /// Ask in Discord channels, as configured in `gateway.discord`.
    Discord,
}
