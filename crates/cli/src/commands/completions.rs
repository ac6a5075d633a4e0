//! `ringfence completions`: prints completion scripts for shells.

use std::process::ExitCode;

use crate::context::Context;
use ringfence_args::{CompletionsArgs, completions};

pub(crate) fn run(args: &CompletionsArgs, context: &Context) -> anyhow::Result<ExitCode> {
    context.ui.out(completions(args.shell))?;
    Ok(ExitCode::SUCCESS)
}
