//! The seccomp policy for guests: kept as data, compiled to a BPF filter.
//!
//! `profiles/fence.json` lists every system call of Linux, each in a group with a reason, and
//! `profiles/strict.json` the few that a single program needs; `profiles/syscalls.tsv` gives the numbers. Calls
//! that a policy does not allow are refused, and calls newer than the table fail with `ENOSYS`, so that a C
//! library falls back. The jail loads the filter.
//!
//! The filter searches the numbers as a tree: that loads in less than half the time of a list.

#![forbid(unsafe_code)]

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

/// Sockets that a guest may create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sockets {
    /// Connected pairs of Unix stream or packet sockets, and nothing with a name.
    PairsOnly,
    /// Unix sockets of every kind.
    Unix,
    /// Like `PairsOnly`, and TCP.
    PairsAndTcp,
    /// Like `Unix`, and TCP.
    UnixAndTcp,
    /// Like `Unix`, TCP and UDP.
    UnixAndInternet,
}

impl Sockets {
    /// Returns `true` if TCP or UDP is among them.
    pub const fn are_internet(self) -> bool {
        match self {
            Self::PairsOnly | Self::Unix => false,
            Self::PairsAndTcp | Self::UnixAndTcp | Self::UnixAndInternet => true,
        }
    }
}

/// Ownership of the namespace for System V IPC and POSIX message queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ipc {
    /// The guest's own IPC namespace: allowed.
    Own,
    /// Shared with the host: refused.
    Shared,
}

/// Handling of processes that a guest forks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forks {
    /// A guest stays in its namespaces.
    Never,
    /// A session's forks move into cells of their own.
    IntoCells,
    /// In a container: a supervisor adopts a guest's orphans.
    Adopted,
}

/// Handling of a guest's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exits {
    /// The parent is notified by the kernel, after the process has been torn down.
    Silent,
    /// A call of `exit_group` with [`LAST_EXIT`] waits until the holder of the filter's listener has seen it.
    Announced,
}

/// Bits of an exit status by which a worker marks the end of its program; the kernel ignores them.
///
/// Only marked exits wait for the listener's holder: the end of a child, or of a program that calls `_exit`
/// itself, has no cost.
pub const LAST_EXIT: u32 = 0x5246_0000;

/// Users that a guest's processes may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Users {
    /// The one that it has.
    One,
    /// All users of its cell, whose ids no user of the host has: the fence `box`.
    Several,
}

/// Parameters in which guests' filters differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surface {
    /// Permitted sockets.
    pub sockets: Sockets,
    /// Ownership of the guest's IPC objects.
    pub ipc: Ipc,
    /// Handling of the guest's forks.
    pub forks: Forks,
    /// Handling of the guest's exit.
    pub exits: Exits,
    /// Users that the guest's processes may become.
    pub users: Users,
}

/// A filter for containers: each allows everything that the previous one allows, and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// One multi-threaded program that reads files and talks to Unix sockets.
    Strict,
    /// Processes and files: like the fence.
    Standard,
    /// The same with TCP, for connections to a proxy.
    StandardTcp,
    /// The same with UDP.
    StandardNet,
}

/// A filter, ready for `seccomp(2)`.
#[derive(Debug, Clone)]
pub struct Program(Vec<libc::sock_filter>);

impl Program {
    /// Returns the instructions in order.
    pub fn as_slice(&self) -> &[libc::sock_filter] {
        &self.0
    }
}

/// The error of compiling a filter.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy is not valid JSON, or not a policy.
    #[error("the seccomp policy cannot be read")]
    Parse(#[source] serde_json::Error),
    /// The table of numbers contains an invalid line.
    #[error("line {line} of the system call table cannot be read")]
    Table {
        /// Line number, counted from 1.
        line: usize,
    },
    /// The policy names a system call that no architecture has.
    #[error("the seccomp policy names the unknown system call `{name}`")]
    UnknownSyscall { name: String },
    /// A condition that can never be met, or that cannot be expressed.
    #[error("the seccomp rule for `{name}` compares argument {argument} in a way that is never true")]
    Condition {
        /// The rule's first system call.
        name: String,
        /// Index of the argument.
        argument: u8,
    },
    /// More instructions than the kernel's limit of 4096.
    #[error("the seccomp filter has {length} instructions, more than the kernel takes")]
    TooLong {
        /// Number of instructions.
        length: usize,
    },
    /// No table for the target architecture.
    #[error("there is no system call table for this architecture")]
    UnsupportedArchitecture,
}

/// Returns the fence's filter for the target architecture.
///
/// It is compiled once for each surface. A process that forks guests calls this before it forks: the children
/// then find the filter ready.
///
/// # Errors
/// Only for an architecture without a table: tests prove that the policy compiles for the others.
pub fn fence(surface: Surface) -> Result<Program, Error> {
    static PROGRAMS: [OnceLock<Program>; 120] = [const { OnceLock::new() }; 120];
    let namespaces = (surface.ipc as usize) * 3 + surface.forks as usize;
    let ends = surface.exits as usize * 2 + surface.users as usize;
    let place = &PROGRAMS[(surface.sockets as usize * 6 + namespaces) * 4 + ends];
    if let Some(program) = place.get() {
        return Ok(program.clone());
    }
    let arch = Arch::native().ok_or(Error::UnsupportedArchitecture)?;
    let program = Program(bpf::compile(&shipped()?.decisions(arch, surface))?);
    Ok(place.get_or_init(|| program).clone())
}

/// Parses the policy ahead of time. Errors are reported when a filter is requested.
pub fn read_ahead() {
    let _ = shipped();
}

/// Returns the same policy as an OCI seccomp profile, which container engines and people can read.
///
/// # Errors
/// Like [`fence`].
pub fn document(arch: Arch, surface: Surface) -> Result<serde_json::Value, Error> {
    Ok(oci::profile(shipped()?, arch, surface))
}

/// Returns a filter for containers as an OCI seccomp profile.
///
/// # Errors
/// Like [`fence`].
pub fn profile(arch: Arch, profile: Profile) -> Result<serde_json::Value, Error> {
    let (policy, surface) = profile.policy()?;
    Ok(oci::profile(policy, arch, surface))
}

impl Profile {
    /// Returns the policy and surface. A container has namespaces of its own, and no launcher in it.
    fn policy(self) -> Result<(&'static Policy, Surface), Error> {
        let surface = |sockets| Surface {
            sockets,
            ipc: Ipc::Own,
            forks: Forks::Adopted,
            exits: Exits::Silent,
            users: Users::One,
        };
        Ok(match self {
            Self::Strict => (strict()?, surface(Sockets::Unix)),
            Self::Standard => (shipped()?, surface(Sockets::Unix)),
            Self::StandardTcp => (shipped()?, surface(Sockets::UnixAndTcp)),
            Self::StandardNet => (shipped()?, surface(Sockets::UnixAndInternet)),
        })
    }
}

/// Returns the fence's policy, parsed once.
fn shipped() -> Result<&'static Policy, Error> {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    read_once(&POLICY, include_str!("../profiles/fence.json"))
}

/// Returns the policy of a single program, parsed once.
fn strict() -> Result<&'static Policy, Error> {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    read_once(&POLICY, include_str!("../profiles/strict.json"))
}

fn read_once(place: &'static OnceLock<Policy>, json: &str) -> Result<&'static Policy, Error> {
    if let Some(policy) = place.get() {
        return Ok(policy);
    }
    let policy = Policy::parse(json, table::shipped()?)?;
    Ok(place.get_or_init(|| policy))
}
