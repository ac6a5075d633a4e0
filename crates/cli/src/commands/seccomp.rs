//! `ringfence seccomp`: prints system-call filters as JSON.

use std::process::ExitCode;

use ringfence_exec::{UnknownFilter, filter_document};

use crate::context::Context;
use ringfence::Failure;
use ringfence_args::{Arch, SeccompCommand};

pub(crate) fn run(command: &SeccompCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let SeccompCommand::Show { name, arch } = command;
    let arch = match arch {
        Some(Arch::X86_64) => "x86_64",
        Some(Arch::Aarch64) => "aarch64",
        None => std::env::consts::ARCH,
    };
    let document = filter_document(name, arch).map_err(|error| match error {
        UnknownFilter::Name(_) | UnknownFilter::Architecture(_) => {
            let hint = "try `ringfence seccomp show standard --arch x86_64`";
            anyhow::Error::from(Failure::usage(error.to_string(), hint))
        }
        UnknownFilter::Broken(_) => error.into(),
    })?;
    context.ui.json(&document)?;
    Ok(ExitCode::SUCCESS)
}
