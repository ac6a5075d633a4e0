//! `ringfence man` and `ringfence help-markdown`: print the pages of the command line.

use std::process::ExitCode;

use crate::context::Context;
use ringfence_args::{manual_page, reference_page};

pub(crate) fn run(context: &Context) -> anyhow::Result<ExitCode> {
    context.ui.out(manual_page()?)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run_markdown(context: &Context) -> anyhow::Result<ExitCode> {
    context.ui.out(reference_page())?;
    Ok(ExitCode::SUCCESS)
}
