//! `ringfence run`.

use std::process::ExitCode;

use crate::args::RunArgs;
use crate::context::Context;
use crate::exit::Failure;
use crate::high;

pub(crate) fn run(args: &RunArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let _plan = high::plan(args, context)?;
    Err(Failure::refused("`ringfence run` is not available yet", "use a later version").into())
}
