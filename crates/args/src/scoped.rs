//! Options of commands on one user's sessions and sandboxes in the server.

use clap::Args;
use ringfence_policy::Scope;

/// Options of every `ringfence sandbox` and `ringfence session` command.
#[derive(Debug, Clone, Args)]
pub struct ScopedOptions {
    /// Act on behalf of this user; other users' sandboxes and sessions are invisible.
    #[arg(long, value_name = "ID")]
    user: Option<Scope>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `ls` of sessions and snapshots.
#[derive(Debug, Args)]
pub struct ScopedListArgs {
    #[command(flatten)]
    pub options: ScopedOptions,
    /// Print names only, one a line; the ID of what has no name.
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
}

impl ScopedOptions {
    /// Returns the user, if one was named.
    pub const fn user(&self) -> Option<&Scope> {
        self.user.as_ref()
    }

    /// Returns the user, by default the local one.
    pub fn scope(&self) -> Scope {
        self.user.clone().unwrap_or_else(Scope::local)
    }
}
