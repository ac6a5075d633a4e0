//! Requests for nested cells: the init of a session's cell creates them for the session's forks.
//!
//! A process can join only namespaces below its own, and only those of a user namespace that its own user
//! created. So the cell of a session's fork must be created in the session's cell, by an unconfined process:
//! its init.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Home, PROC_ATTRIBUTES, receive_handles};
use crate::protocol::GUEST_ID;
use crate::step_error::{Step, StepError};
use crate::{clock, places, sys};

/// The launcher's request to the init of a session's cell.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
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
        let (applied, handles) = receive_handles(&self.socket)?;
        let mut handles = handles.into_iter();
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
            applied,
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
    let empty = sys::open_tree(places::EMPTY).step(STEP)?;
    sys::move_mount(empty.as_fd(), c"/cell").step(STEP)?;
    Ok(proc)
}
