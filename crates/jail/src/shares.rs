//! Limits on what the kernel counts for a user, so that a guest leaves some of it to its user's other programs.
//!
//! Within a user namespace the kernel counts for the namespace, for the namespace above it, and so on up to the host's user.
//! Each namespace bounds what is counted for the user that made it. docs/decisions/055-shares.md lists every counter.

use std::fs;
use std::io;

use crate::steps::{Step, StepError};
use crate::sys;

/// Queued signals and POSIX timers of a guest.
pub(crate) const PENDING_SIGNALS: u64 = 256;

/// Descriptors that the engine and launchers may hold where the machine lets them. More than guests can have in
/// flight together: the kernel compares the sum of all of a user's with the limit of whoever sends.
const OWN_OPEN_FILES: u64 = 4096;

/// A setting in `/proc/sys/user`, with its values for a cell and for all cells of a launcher.
///
/// A launcher's are chosen so that eight of them, as many as an engine keeps, leave something of the kernel's
/// default to everybody else.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("/proc/sys/user/max_inotify_instances", "8", "14"),
    ("/proc/sys/user/max_inotify_watches", "2048", "4096"),
];

/// What is counted in user namespaces against the limit that the process which made them had.
const INHERITED: &[u32] = &[
    libc::RLIMIT_SIGPENDING,
    libc::RLIMIT_MEMLOCK,
    libc::RLIMIT_MSGQUEUE,
    libc::RLIMIT_NPROC,
];

/// Leaves a quarter of what is counted for our user to programs outside the user namespaces that we make from now on.
pub(crate) fn leave_reserve() -> Result<(), StepError> {
    for resource in INHERITED {
        let own = sys::soft_rlimit(*resource).step("read the resource limits")?;
        if own != libc::RLIM_INFINITY {
            sys::set_soft_rlimit(*resource, own - own / 4).step("leave a part of the resource limits")?;
        }
    }
    Ok(())
}

/// Bounds what guests of the calling launcher take together. It has a user namespace and a `/proc` of its own.
pub(crate) fn bound_launcher() -> Result<(), StepError> {
    bound(|(path, _, launcher)| (path, launcher))
}

/// Bounds what guests of a cell take together. The caller has its user namespace and all capabilities in it.
pub(crate) fn bound_cell() -> Result<(), StepError> {
    bound(|(path, cell, _)| (path, cell))
}

fn bound(
    value: impl Fn(&(&'static str, &'static str, &'static str)) -> (&'static str, &'static str),
) -> Result<(), StepError> {
    for (path, value) in SETTINGS.iter().map(value) {
        match fs::write(path, value) {
            // A kernel without inotify.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            written => written.step("bound what guests take of the user's kernel resources")?,
        }
    }
    Ok(())
}

/// Raises the soft limit on open files of the calling process, for it and for the launchers that it starts.
///
/// # Errors
/// If the system refuses.
pub fn raise_open_files() -> io::Result<()> {
    let own = sys::soft_rlimit(libc::RLIMIT_NOFILE)?;
    sys::set_soft_rlimit(libc::RLIMIT_NOFILE, own.max(OWN_OPEN_FILES))
}
