//! Limits on per-user kernel resources, so that guests leave some to their user's other programs.
//!
//! Within a user namespace the kernel counts usage against the namespace, its parent, and so on up to the
//! host's user. Each namespace limits the usage of the user that created it. docs/decisions/055-shares.md
//! lists every counter.

use std::fs;
use std::io;

use crate::step_error::{Step, StepError};
use crate::sys;

/// Queued signals and POSIX timers of a guest.
pub(crate) const PENDING_SIGNALS: u64 = 256;

/// File descriptors that the server and launchers may hold if the machine permits. More than guests can have
/// in flight together: the kernel compares the sum over the user with the limit of the sender.
const OWN_OPEN_FILES: u64 = 4096;

/// A setting in `/proc/sys/user`, with its values for a cell and for all cells of a launcher.
///
/// The latter are chosen so that eight launchers, the most that a server keeps, leave part of the kernel's
/// default to other programs.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("/proc/sys/user/max_inotify_instances", "8", "14"),
    ("/proc/sys/user/max_inotify_watches", "2048", "4096"),
];

/// Resources counted in a user namespace against the limit of the process that created it.
const INHERITED: &[u32] = &[
    libc::RLIMIT_SIGPENDING,
    libc::RLIMIT_MEMLOCK,
    libc::RLIMIT_MSGQUEUE,
    libc::RLIMIT_NPROC,
];

/// Reserves a quarter of the user's resources for programs outside the user namespaces created from now on.
pub(crate) fn leave_reserve() -> Result<(), StepError> {
    for resource in INHERITED {
        let own = sys::soft_rlimit(*resource).step("read the resource limits")?;
        if own != libc::RLIM_INFINITY {
            sys::set_soft_rlimit(*resource, own - own / 4).step("leave a part of the resource limits")?;
        }
    }
    Ok(())
}

/// The settings of a launcher whose only cell has several users, who are counted together here alone. All of a server's such
/// cells together leave a quarter of the kernel's default.
const OF_SEVERAL_USERS: &[(&str, &str)] = &[
    ("/proc/sys/user/max_inotify_instances", "3"),
    ("/proc/sys/user/max_inotify_watches", "2048"),
];

/// Limits the total usage of a launcher's guests. The caller has a user namespace and a `/proc` of its own.
pub(crate) fn bound_launcher() -> Result<(), StepError> {
    bound(SETTINGS.iter().map(|(path, _, launcher)| (*path, *launcher)))
}

/// Limits the total usage of a cell with several users, as [`bound_launcher`] does. The limits of the calling process become
/// those of the cell's user namespace, for all its users together.
pub(crate) fn bound_users() -> Result<(), StepError> {
    bound(OF_SEVERAL_USERS.iter().copied())?;
    sys::set_soft_rlimit(libc::RLIMIT_SIGPENDING, PENDING_SIGNALS).step("leave a part of the resource limits")
}

/// Limits the total usage of a cell's guests. The caller has its user namespace and all capabilities in it.
pub(crate) fn bound_cell() -> Result<(), StepError> {
    bound(SETTINGS.iter().map(|(path, cell, _)| (*path, *cell)))
}

fn bound(settings: impl Iterator<Item = (&'static str, &'static str)>) -> Result<(), StepError> {
    for (path, value) in settings {
        match fs::write(path, value) {
            // A kernel without inotify.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            written => written.step("bound what guests take of the user's kernel resources")?,
        }
    }
    Ok(())
}

/// Raises the soft limit on open files of the calling process, for itself and the launchers that it starts.
///
/// # Errors
/// If the system refuses.
pub fn raise_open_files() -> io::Result<()> {
    let own = sys::soft_rlimit(libc::RLIMIT_NOFILE)?;
    sys::set_soft_rlimit(libc::RLIMIT_NOFILE, own.max(OWN_OPEN_FILES))
}
