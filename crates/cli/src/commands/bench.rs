//! `ringfence bench`.

use std::process::ExitCode;

use crate::args::BenchArgs;
use crate::context::Context;
use crate::exit::Failure;

pub(crate) fn run(_args: &BenchArgs, _context: &Context) -> anyhow::Result<ExitCode> {
    Err(Failure::refused("`ringfence bench` is not available yet", "use a later version").into())
}
