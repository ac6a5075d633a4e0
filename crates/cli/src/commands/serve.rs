//! `ringfence serve`.

use std::process::ExitCode;

use crate::args::ServeArgs;
use crate::context::Context;
use crate::exit::Failure;

pub(crate) fn run(_args: &ServeArgs, _context: &Context) -> anyhow::Result<ExitCode> {
    Err(Failure::refused("`ringfence serve` is not available yet", "use a later version").into())
}
