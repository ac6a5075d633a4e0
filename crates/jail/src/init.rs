//! The init of containers and of sandboxes' cells: starts programs at the server's request, enforces their timeouts,
//! reports their exit status.
//!
//! The server talks to it over its own standard streams, in [`frames`]. Guests run beside it as the same
//! user, in the same namespaces. It is isolated from them because it is not dumpable (they cannot inspect
//! it), has process id 1 (they cannot kill it), and passes none of its file descriptors on.

mod call;
mod channel;
mod family;
pub mod files;
pub mod frames;
mod memory_guard;
mod network;
mod pending;
mod programs;
mod serve;
mod user;
mod warm;
mod worker;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

pub(crate) use memory_guard::MemoryGuard;

use crate::boot_id::BootId;
use crate::step_error::{Step, StepError};
use crate::sys;

/// Limit on open files of each process.
const OPEN_FILES: u64 = 512;

/// Runs the init, or one of the file transfer programs in the same executable.
pub fn init_main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if !arguments.is_empty() {
        return files::main(&arguments, None);
    }
    match prepare().and_then(serve::Init::new) {
        Ok(init) => init.serve(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ringfence-init: {error}: {}", error.source);
            ExitCode::FAILURE
        }
    }
}

/// Serves as the init of a cell, which has confined itself: guests inherit that, and these variables as their default
/// environment. `changes` are those of a root that they may change.
pub(crate) fn serve_cell(
    environment: Vec<(String, String)>,
    guard: MemoryGuard,
    boot_id: BootId,
    changes: Option<OwnedFd>,
) -> ! {
    let prepared = sys::set_undumpable().step("hide from the guests");
    sys::set_umask(0o022);
    let surroundings = programs::Surroundings::new(environment).with_changes(changes);
    let init = prepared.and_then(|()| serve::Init::new(surroundings));
    if let Ok(init) = init {
        init.in_cell(guard, boot_id).serve();
    }
    sys::exit_now(1)
}

/// Drops privileges that guests could exploit, and sets limits: guests inherit everything here.
fn prepare() -> Result<programs::Surroundings, StepError> {
    sys::set_undumpable().step("hide from the guests")?;
    if sys::process_ids().0 != 1 {
        let why = std::io::Error::other("expected process id 1: only that process inherits orphans");
        return Err(why).step("be the first process");
    }
    sys::set_no_new_privs().step("set no_new_privs")?;
    sys::set_umask(0o022);
    // The container engine limits the rest for the container as a whole; gVisor knows few other limits.
    for (resource, value) in [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_NOFILE, OPEN_FILES)] {
        sys::set_rlimit(resource, value).step("set the resource limits")?;
    }
    Ok(programs::Surroundings::of_process())
}
