//! The options of commands about what one user keeps in the engine.

use clap::Args;
use ringfence_policy::Scope;

/// Options of every `ringfence sandbox` and `ringfence session` command.
#[derive(Debug, Args)]
pub(crate) struct ScopedOptions {
    /// Whose; what is one user's is invisible to another.
    #[arg(long, value_name = "ID")]
    user: Option<Scope>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl ScopedOptions {
    /// Whose.
    pub(crate) fn scope(&self) -> Scope {
        self.user.clone().unwrap_or_else(Scope::local)
    }
}
