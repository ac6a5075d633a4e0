//! `ringfence doctor`.

use std::process::ExitCode;

use crate::args::DoctorArgs;
use crate::context::Context;
use crate::exit::Failure;

pub(crate) fn run(_args: &DoctorArgs, _context: &Context) -> anyhow::Result<ExitCode> {
    Err(Failure::refused("`ringfence doctor` is not available yet", "use a later version").into())
}
