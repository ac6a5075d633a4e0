//! `ringfence seccomp`: system-call filters as JSON.

use std::process::ExitCode;

use crate::args::{Arch, SeccompCommand};
use crate::context::Context;
use crate::exit::Failure;

pub(crate) fn run(command: &SeccompCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let SeccompCommand::Show { name, arch } = command;
    let arch = match arch {
        Some(Arch::X86_64) => "x86_64",
        Some(Arch::Aarch64) => "aarch64",
        None => std::env::consts::ARCH,
    };
    context.ui.out(document(name, arch)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Replaced by the runtime's own once it has one.
fn document(name: &str, arch: &str) -> Result<String, Failure> {
    Err(Failure::usage(
        format!("there is no system-call filter `{name}` for {arch}"),
        "the known filter is `fence`",
    ))
}
