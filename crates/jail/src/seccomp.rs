//! Which system calls a guest may make: a policy kept as data, compiled to a filter for the kernel.
//!
//! `seccomp/fence.json` lists every system call that Linux has, each in a group with a reason, and `seccomp/strict.json`
//! the few that a single program needs; `seccomp/syscalls.tsv` gives the numbers. What a policy does not allow is refused, and what Linux did not have when the table was written
//! answers `ENOSYS`, so that a C library falls back. Loading the filter is the business of `crate::sys`.
//!
//! The filter goes through the numbers as a tree: that loads in less than half the time of a list.

mod bpf;
#[cfg(test)]
mod numbers;
mod oci;
mod policy;
mod table;
#[cfg(test)]
mod tests;

pub use table::Arch;

use policy::Policy;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// The sockets that a guest may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sockets {
    /// Connected pairs of Unix stream or packet sockets, and nothing with a name.
    PairsOnly,
    /// Unix sockets of every kind.
    Unix,
    /// As `PairsOnly`, and TCP.
    PairsAndTcp,
    /// As `Unix`, and TCP.
    UnixAndTcp,
    /// As `Unix`, TCP and UDP.
    UnixAndInternet,
}

/// Whether System V IPC and POSIX message queues lie in the guest's own namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ipc {
    /// In the guest's own ipc namespace: allowed.
    Own,
    /// Shared with the host: refused.
    Shared,
}

/// What becomes of the processes that a guest makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forks {
    /// A guest stays in its namespaces.
    Never,
    /// A session's forks move into cells of their own.
    IntoCells,
    /// In a container: a supervisor of ours adopts what a guest leaves behind.
    Adopted,
}

/// What differs between one guest's filter and another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surface {
    /// The sockets that it may make.
    pub sockets: Sockets,
    /// Where its IPC objects live.
    pub ipc: Ipc,
    /// Whether its forks may move.
    pub forks: Forks,
}

/// A filter for containers: each allows what the one before it allows, and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// One program with threads, which reads files and talks to Unix sockets.
    Strict,
    /// Processes and files: what the fence allows.
    Standard,
    /// The same with TCP: what leads to a proxy.
    StandardTcp,
    /// The same with UDP.
    StandardNet,
}

/// A filter, ready for `seccomp(2)`.
#[derive(Debug, Clone)]
pub struct Program(Vec<libc::sock_filter>);

impl Program {
    /// The instructions in order.
    pub fn as_slice(&self) -> &[libc::sock_filter] {
        &self.0
    }
}

/// Why no filter could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy is not valid JSON, or not a policy.
    #[error("the seccomp policy cannot be read")]
    Parse(#[source] serde_json::Error),
    /// The table of numbers holds a line that is not one.
    #[error("line {line} of the system call table cannot be read")]
    Table {
        /// Counted from 1.
        line: usize,
    },
    /// The policy names a system call that no architecture has.
    #[error("the seccomp policy names the unknown system call `{name}`")]
    UnknownSyscall {
        /// As written in the policy.
        name: String,
    },
    /// A condition that can never be met, or that cannot be expressed.
    #[error("the seccomp rule for `{name}` compares argument {argument} in a way that is never true")]
    Condition {
        /// The rule's first system call.
        name: String,
        /// The index of the argument.
        argument: u8,
    },
    /// The kernel takes at most 4096 instructions.
    #[error("the seccomp filter has {length} instructions, more than the kernel takes")]
    TooLong {
        /// How many there would be.
        length: usize,
    },
    /// No table for the machine that this was built for.
    #[error("there is no system call table for this architecture")]
    UnsupportedArchitecture,
}

/// The fence's filter for the architecture that this program runs on.
///
/// It is compiled once for each surface. A process that forks guests calls this before it forks: the children then
/// find the filter ready.
///
/// # Errors
/// Only for an architecture without a table: that the policy compiles for the others is tested.
pub fn fence(surface: Surface) -> Result<Program, Error> {
    static PROGRAMS: [OnceLock<Program>; 30] = [const { OnceLock::new() }; 30];
    let place = &PROGRAMS[(surface.sockets as usize * 2 + surface.ipc as usize) * 3 + surface.forks as usize];
    if let Some(program) = place.get() {
        return Ok(program.clone());
    }
    let arch = Arch::native().ok_or(Error::UnsupportedArchitecture)?;
    let program = Program(bpf::compile(&shipped()?.decisions(arch, surface))?);
    Ok(place.get_or_init(|| program).clone())
}

/// Reads the policy, for whoever has nothing else to do. What is wrong with it is told when a filter is asked for.
pub(crate) fn read_ahead() {
    let _ = shipped();
}

/// The same policy as an OCI seccomp profile, which container engines read and people can.
///
/// # Errors
/// As [`fence`].
pub fn document(arch: Arch, surface: Surface) -> Result<serde_json::Value, Error> {
    Ok(oci::profile(shipped()?, arch, surface))
}

/// A filter for containers as an OCI seccomp profile.
///
/// # Errors
/// As [`fence`].
pub fn profile(arch: Arch, profile: Profile) -> Result<serde_json::Value, Error> {
    let (policy, surface) = profile.policy()?;
    Ok(oci::profile(policy, arch, surface))
}

impl Profile {
    /// A container has namespaces of its own, and nothing in it is a launcher.
    fn policy(self) -> Result<(&'static Policy, Surface), Error> {
        let surface = |sockets| Surface {
            sockets,
            ipc: Ipc::Own,
            forks: Forks::Adopted,
        };
        Ok(match self {
            Self::Strict => (strict()?, surface(Sockets::Unix)),
            Self::Standard => (shipped()?, surface(Sockets::Unix)),
            Self::StandardTcp => (shipped()?, surface(Sockets::UnixAndTcp)),
            Self::StandardNet => (shipped()?, surface(Sockets::UnixAndInternet)),
        })
    }
}

/// The policy of the fence, read once.
fn shipped() -> Result<&'static Policy, Error> {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    read_once(&POLICY, include_str!("../seccomp/fence.json"))
}

/// The policy of a single program, read once.
fn strict() -> Result<&'static Policy, Error> {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    read_once(&POLICY, include_str!("../seccomp/strict.json"))
}

fn read_once(place: &'static OnceLock<Policy>, json: &str) -> Result<&'static Policy, Error> {
    if let Some(policy) = place.get() {
        return Ok(policy);
    }
    let policy = Policy::parse(json, table::shipped()?)?;
    Ok(place.get_or_init(|| policy))
}
