//! `ringfence completions`: prints completion scripts for shells.

use std::process::ExitCode;

use clap::CommandFactory;

use crate::context::Context;
use ringfence_args::{Cli, CompletionsArgs};

pub(crate) fn run(args: &CompletionsArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ringfence", &mut script);
    context.ui.out(script)?;
    Ok(ExitCode::SUCCESS)
}
