//! `ringfence lock-stdin`: locks an open file of its caller, for runtimes without flock.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

use anyhow::Context as _;

/// Locks the open file. The lock stays with it: the kernel drops it once the last process that has it open has closed it or ended.
pub(crate) fn run(exclusive: bool) -> anyhow::Result<ExitCode> {
    let file = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let file = file.context("cannot use standard input")?;
    let locked = if exclusive {
        file.lock()
    } else {
        file.lock_shared()
    };
    locked.context("cannot lock standard input")?;
    Ok(ExitCode::SUCCESS)
}
