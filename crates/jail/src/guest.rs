//! Starts a guest by executing a program.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::cell::Cell;
use crate::protocol::{Confinement, Program};
use crate::step_error::{Step, StepError};
use crate::steps::{GuestDescriptors, STATUS_FD, confine, join_control_groups, report};
use crate::{attach, sys};

/// Parameters of a guest's first process.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Program,
    pub(crate) confinement: &'a Confinement,
    /// File descriptors of stdin, stdout, stderr and control.
    pub(crate) descriptors: [OwnedFd; 4],
    /// Cgroups to join.
    pub(crate) groups: &'a [OwnedFd],
}

/// A guest during set-up.
pub(crate) struct Starting {
    /// Process id of the guest, if known.
    pub(crate) guest: Option<libc::pid_t>,
    /// Status pipe of the guest.
    pub(crate) reports: OwnedFd,
}

/// Starts a program in a cell, without waiting for its set-up.
pub(crate) fn start(cell: &Cell, own: BorrowedFd<'_>, start: Start<'_>) -> Result<Starting, StepError> {
    let (reports, status) = sys::pipe().step("make a status pipe")?;
    match cell.fork_into(own)? {
        sys::Fork::Child => {
            drop(reports);
            let joined = join_control_groups(start.groups).and_then(|()| cell.join());
            run(start, status, joined)
        }
        sys::Fork::Parent { pid, .. } => Ok(Starting {
            guest: Some(pid),
            reports,
        }),
    }
}

/// Runs the new process: confines itself and executes the program.
pub(crate) fn run(start: Start<'_>, status: OwnedFd, joined: Result<(), StepError>) -> ! {
    let [stdin, stdout, stderr, control] = start.descriptors;
    let descriptors = GuestDescriptors {
        standard: [stdin, stdout, stderr],
        control,
        status,
        session: None,
    };
    let arranged = joined
        .and_then(|()| sys::reset_signals().step("reset the signals"))
        .and_then(|()| sys::setsid().step("start a session"))
        .and_then(|()| descriptors.arrange());
    // Without a status pipe the launcher sees only the closed pipe.
    let Ok(status) = arranged else { sys::exit_now(127) };
    // Whoever finds it unread knows that the program has not begun. Before the filter, which may forbid it.
    if !start.program.reads_job {
        let _ = sys::take_start_byte();
    }
    let confined = confine(start.confinement, STATUS_FD);
    report(status.as_fd(), &confined);
    if confined.is_ok() && (start.program.reads_job || sys::close_control().is_ok()) {
        let error = execute(start.program);
        report(
            status.as_fd(),
            &Err(StepError {
                step: "start the program",
                source: error,
            }),
        );
    }
    sys::exit_now(127)
}

/// Replaces the calling process by a program. Returns only on failure.
pub(crate) fn execute(program: &Program) -> io::Error {
    let strings = || -> io::Result<(Vec<CString>, Vec<CString>)> {
        let arguments = program.arguments.iter().map(|text| CString::new(text.as_str()));
        let environment = program
            .environment
            .iter()
            .map(|(name, value)| CString::new(format!("{name}={value}")));
        Ok((
            arguments.collect::<Result<_, _>>()?,
            environment.collect::<Result<_, _>>()?,
        ))
    };
    match strings().and_then(|strings| Ok((attach::c_path(&program.executable)?, strings))) {
        Ok((executable, (arguments, environment))) => sys::execve(&executable, &arguments, &environment),
        Err(error) => error,
    }
}
