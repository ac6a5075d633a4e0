//! The first process of a container: starts what the engine asks for, ends it in time, and tells how it ended.
//!
//! It is spoken to over its own standard streams, in [`frames`]. Guests run beside it as the same user and in the same
//! namespaces. What keeps them apart: it cannot be looked into (it is not dumpable), it cannot be killed (it is the
//! first process), and no descriptor of it gets into a guest.

mod call;
mod channel;
mod family;
pub mod files;
pub mod frames;
mod network;
mod pending;
mod programs;
mod serve;
mod warm;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use crate::steps::{Step, StepError};
use crate::sys;

/// Open files of each process.
const OPEN_FILES: u64 = 512;

/// The entry of the agent, and of the programs for files that its file is as well.
pub fn agent_main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if !arguments.is_empty() {
        return files::main(&arguments);
    }
    match prepare().and_then(serve::Agent::new) {
        Ok(agent) => agent.serve(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ringfence-agent: {error}: {}", error.source);
            ExitCode::FAILURE
        }
    }
}

/// Gives up what guests could profit by, and what they shall not have: everything here is inherited.
fn prepare() -> Result<programs::Surroundings, StepError> {
    sys::set_undumpable().step("hide from the guests")?;
    if sys::process_ids().0 != 1 {
        let why = std::io::Error::other("whoever is not cannot find what guests leave behind");
        return Err(why).step("be the first process");
    }
    sys::set_no_new_privs().step("set no_new_privs")?;
    sys::set_umask(0o022);
    // The engine limits the rest for the container as a whole; gVisor knows few others.
    for (resource, value) in [(libc::RLIMIT_CORE, 0), (libc::RLIMIT_NOFILE, OPEN_FILES)] {
        sys::set_rlimit(resource, value).step("set the resource limits")?;
    }
    Ok(programs::Surroundings::of_process())
}
