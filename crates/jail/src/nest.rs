//! Nested cells: created by the init of a session's cell, on the launcher's request, for the session's forks.
//!
//! A process can join only namespaces below its own, and only those of a user namespace that its own user
//! created. So the cell of a session's fork must be created in the session's cell, by an unconfined process:
//! its init.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cell::{self, Cell, CellSpec, Home, PROC_ATTRIBUTES, Tenant};
use crate::protocol::GUEST_ID;
use crate::steps::{Step, StepError};
use crate::{clock, sys};

/// The launcher's request to the init of a session's cell.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Creates a cell. File descriptors: the socket of its init, cgroups to join.
    Found { disk_bytes: u64, time_namespace: bool },
    /// Kills every process of the cell except those in nested cells.
    Clear,
}

/// The namespaces of a cell in the order in which a fork joins them: the one that grants the right comes
/// first, the one that hides `/proc` last.
pub(crate) const NAMESPACES: &[(&str, libc::c_int)] = &[
    ("user", libc::CLONE_NEWUSER),
    ("pid", libc::CLONE_NEWPID),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
    ("mnt", libc::CLONE_NEWNS),
    ("time", clock::CLONE_NEWTIME),
];

/// Deadline for clearing a cell, after which the whole cell ends.
const CLEARING: Duration = Duration::from_secs(2);

/// A nested cell that is being set up.
#[derive(Debug)]
pub(crate) struct Nesting {
    socket: OwnedFd,
    time_namespace: bool,
}

/// Requests a nested cell from the init of a session's cell.
pub(crate) fn found(session: &Cell, disk_bytes: u64, groups: &[OwnedFd]) -> Result<Nesting, StepError> {
    const STEP: &str = "ask for a cell in a session's cell";
    let (socket, theirs) = sys::seqpacket_pair().step(STEP)?;
    let time_namespace = session.time_namespace;
    let mut fds = vec![theirs.as_fd()];
    fds.extend(groups.iter().map(AsFd::as_fd));
    send(
        session,
        &Request::Found {
            disk_bytes,
            time_namespace,
        },
        &fds,
    )
    .step(STEP)?;
    Ok(Nesting {
        socket,
        time_namespace,
    })
}

/// Kills every process of a session's cell except those in nested cells. If the init has exited, they are
/// gone already.
pub(crate) fn clear(session: &Cell) {
    let _ = send(session, &Request::Clear, &[]);
}

fn send(session: &Cell, request: &Request, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let unable = || io::Error::from_raw_os_error(libc::ENOTSUP);
    let nest = session.nest.as_ref().ok_or_else(unable)?;
    let bytes = serde_json::to_vec(request).map_err(io::Error::other)?;
    sys::offer_message(nest.as_fd(), &bytes, fds)
}

impl Nesting {
    /// Receives the outcome of the set-up.
    pub(crate) fn finish(self) -> Result<Cell, StepError> {
        let mut handles = cell::receive_handles(&self.socket)?.into_iter();
        let died = || io::Error::from_raw_os_error(libc::ECHILD);
        let mut next = || handles.next().ok_or_else(died).step("await a cell");
        Ok(Cell {
            init: None,
            output: next()?,
            listener: None,
            pidfd: next()?,
            time_namespace: self.time_namespace,
            nest: Some(self.socket),
            namespaces: handles.collect(),
        })
    }
}

impl AsFd for Nesting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Opens the handles of the calling process and its namespaces for a [`Cell`].
pub(crate) fn own_handles() -> Result<Vec<OwnedFd>, StepError> {
    const STEP: &str = "open the cell's namespaces";
    let mut handles = vec![sys::pidfd_open(sys::process_ids().0).step(STEP)?];
    for (name, kind) in NAMESPACES {
        match std::fs::File::open(format!("/proc/self/ns/{name}")) {
            Ok(handle) => handles.push(handle.into()),
            // This kernel is built without it.
            Err(error) if *kind == clock::CLONE_NEWTIME && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).step(STEP),
        }
    }
    Ok(handles)
}

/// Maps the guest's id to itself. There is no other id in the session's user namespace.
pub(crate) fn map_own_id(original: &Home) -> Result<(), StepError> {
    const STEP: &str = "map the ids of a cell";
    let own = format!("/proc/self/fd/{}/self", original.proc.as_raw_fd());
    let map = format!("{GUEST_ID} {GUEST_ID} 1\n");
    std::fs::write(format!("{own}/setgroups"), "deny").step(STEP)?;
    std::fs::write(format!("{own}/gid_map"), &map).step(STEP)?;
    std::fs::write(format!("{own}/uid_map"), &map).step(STEP)
}

/// Covers `/cell`, which is not the guest's, with an empty directory. Below it, unreachable, lies a writable
/// `/proc`: the kernel allows mounting one in a nested cell only if this cell has one.
pub(crate) fn hide_home(files: &OwnedFd) -> Result<OwnedFd, StepError> {
    const STEP: &str = "hide the cell's home";
    sys::mkdir_at(files.as_fd(), c"proc", 0o500).step(STEP)?;
    let proc = sys::new_filesystem(c"proc", &[], PROC_ATTRIBUTES).step("make a /proc")?;
    sys::move_mount(proc.as_fd(), c"/cell/proc").step(STEP)?;
    let empty = sys::open_tree(c"/run").step(STEP)?;
    sys::move_mount(empty.as_fd(), c"/cell").step(STEP)?;
    Ok(proc)
}

/// Runs a session's init after set-up: reaps, and handles requests of the launcher.
pub(crate) fn serve(spec: &CellSpec<'_>, socket: &OwnedFd, home: &Home) -> ! {
    let Ok((signals, socket, home)) = settle(socket, home) else {
        sys::exit_now(1)
    };
    let mut buffer = [0; 256];
    loop {
        let Ok(ready) = sys::poll(&[signals.as_fd(), socket.as_fd()], None) else {
            sys::exit_now(1)
        };
        reap(&signals);
        if !ready[1] {
            continue;
        }
        match sys::receive_message(socket.as_fd(), &mut buffer) {
            Ok((length @ 1.., fds)) => match serde_json::from_slice(&buffer[..length]) {
                Ok(Request::Found {
                    disk_bytes,
                    time_namespace,
                }) => {
                    let within = CellSpec {
                        disk_bytes,
                        time_namespace,
                        tenant: Tenant::Fork(&home),
                        ..*spec
                    };
                    found_within(&within, fds);
                }
                Ok(Request::Clear) => clear_out(&home, &signals),
                Err(_) => sys::exit_now(1),
            },
            _ => sys::exit_now(1),
        }
    }
}

/// Keeps the required file descriptors and closes all others.
fn settle(socket: &OwnedFd, home: &Home) -> io::Result<(OwnedFd, OwnedFd, Home)> {
    const KEPT: std::ops::Range<i32> = 0..4;
    let signals = sys::signalfd(&[libc::SIGCHLD])?;
    let raised = [&signals, socket, &home.files, &home.proc].map(|fd| sys::dup_above(fd.as_fd(), 32));
    for (number, fd) in KEPT.zip(raised) {
        sys::place(fd?.as_fd(), number)?;
    }
    std::mem::forget(signals);
    sys::close_from(KEPT.end)?;
    let [signals, socket, files, proc] = [0, 1, 2, 3].map(sys::inherited);
    Ok((
        signals?,
        socket?,
        Home {
            files: files?,
            proc: proc?,
        },
    ))
}

fn reap(signals: &OwnedFd) {
    sys::take_signals(signals.as_fd());
    while let Ok(Some(_)) = sys::reap(sys::Wait::Poll) {}
}

/// Creates a nested cell. Its init reports to the launcher; only a failed clone is reported here.
fn found_within(spec: &CellSpec<'_>, fds: Vec<OwnedFd>) {
    let mut fds = fds.into_iter();
    let Some(socket) = fds.next() else { return };
    let groups: Vec<OwnedFd> = fds.collect();
    let spec = CellSpec {
        groups: &groups,
        code: None,
        listen: None,
        ..*spec
    };
    match cell::clone_init(spec.time_namespace) {
        Ok(sys::Fork::Child) => cell::run_init(&spec, socket),
        Ok(sys::Fork::Parent { .. }) => {}
        Err(error) => {
            let step = match error.source.raw_os_error() {
                Some(libc::ENOSPC) => {
                    "nest a cell any deeper (forks of forks go as deep as the kernel's 32 namespaces)"
                }
                _ => error.step,
            };
            let message: Result<&str, _> = Err((step, error.errno()));
            // Fails if the launcher has exited.
            let _ = serde_json::to_vec(&message).map(|bytes| sys::offer_message(socket.as_fd(), &bytes, &[]));
        }
    }
}

/// Kills every process of this very pid namespace. If they fork faster than they are killed, the cell ends
/// with all nested cells.
fn clear_out(home: &Home, signals: &OwnedFd) {
    let deadline = Instant::now() + CLEARING;
    loop {
        match kill_own(home) {
            Ok(0) => return,
            Ok(_) if Instant::now() < deadline => {
                let _ = sys::poll(&[signals.as_fd()], Some(1));
                reap(signals);
            }
            Ok(_) | Err(_) => sys::exit_now(1),
        }
    }
}

fn kill_own(home: &Home) -> io::Result<usize> {
    let root = format!("/proc/self/fd/{}", home.proc.as_raw_fd());
    let mut killed = 0;
    for entry in std::fs::read_dir(&root)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse::<libc::pid_t>().ok());
        let Some(pid) = number.filter(|pid| *pid != 1) else {
            continue;
        };
        // Pidfd first: the status read afterwards is that of the process that is killed.
        let Ok(handle) = sys::pidfd_open(pid) else {
            continue;
        };
        let Ok(status) = std::fs::read_to_string(format!("{root}/{pid}/status")) else {
            continue;
        };
        if lives_here(&status) && sys::pidfd_send_signal(handle.as_fd(), libc::SIGKILL).is_ok() {
            killed += 1;
        }
    }
    Ok(killed)
}

/// Returns `true` if a process has a single pid, that of this namespace: those in nested cells have another
/// there.
fn lives_here(status: &str) -> bool {
    let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
    let zombie = field("State:").is_some_and(|state| state.trim_start().starts_with('Z'));
    let numbers = field("NSpid:").map_or(0, |numbers| numbers.split_whitespace().count());
    numbers == 1 && !zombie
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_living_processes_of_the_very_namespace_are_ours() {
        let check = |status: &str, expected| assert_eq!(lives_here(status), expected, "{status}");
        check("Name:\tx\nState:\tS (sleeping)\nNSpid:\t7\n", true);
        check("Name:\tx\nState:\tS (sleeping)\nNSpid:\t7\t2\n", false);
        check("Name:\tx\nState:\tZ (zombie)\nNSpid:\t7\n", false);
        // A name cannot break the line: the kernel writes it escaped.
        check("Name:\tNSpid:\t7\nState:\tR (running)\nNSpid:\t7\t1\n", false);
        check("", false);
    }
}
