//! Cells: namespaces of their own, an init that reaps, private writable directories.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::protocol::{Applied, Confinement, GUEST_ID};
use crate::step_error::{Step, StepError, died, remote_error};
use crate::writable_root::CellRoot;
use crate::{clock, sys};

/// Namespaces of every cell. The cell's init creates the cgroup namespace, once it has joined its cgroups.
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// Specification of a cell.
#[derive(Debug)]
pub(crate) struct CellSpec<'a> {
    /// Id in the launcher's user namespace that the guest's id maps to.
    pub(crate) outer_id: u32,
    /// The root that its programs may change, if they may.
    pub(crate) root: Option<&'a CellRoot>,
    /// Template mounts to stack on the cell's own file systems.
    pub(crate) inner_mounts: &'a [CString],
    /// Total bytes in the writable directories.
    pub(crate) disk_bytes: u64,
    /// Source code, and its file name below `/code`.
    pub(crate) code: Option<(&'a str, &'a OwnedFd)>,
    /// Cgroups to join.
    pub(crate) groups: &'a [OwnedFd],
    /// Set to create a time namespace, if the kernel supports it.
    pub(crate) time_namespace: bool,
    /// Loopback port on which the server listens.
    pub(crate) listen: Option<u16>,
    /// Occupant of the cell.
    pub(crate) tenant: Tenant<'a>,
}

impl CellSpec<'_> {
    /// Returns the map of the cell's user namespace (user_namespaces(7)): the guest alone, or all users from root on.
    pub(crate) fn id_map(&self) -> String {
        /// Root and the system's users of distributions, who count from below and above; ordinary users; `nobody`.
        /// Few, since some counters of the kernel are for each.
        const USERS: [(u32, u32); 3] = [(0, 128), (900, 108), (65_534, 1)];
        let outer = self.outer_id;
        if self.root.is_none() {
            return format!("{GUEST_ID} {outer} 1\n");
        }
        let mut next = outer;
        USERS
            .map(|(first, count)| {
                let line = format!("{first} {next} {count}\n");
                next += count;
                line
            })
            .concat()
    }

    /// Returns the id that its init takes.
    pub(crate) const fn inner_id(&self) -> u32 {
        match self.root {
            None => GUEST_ID,
            Some(_) => 0,
        }
    }
}

/// The occupant of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tenant<'a> {
    /// A guest that stays in this cell.
    Guest,
    /// A session, whose forks get cells nested in this one.
    Session,
    /// A fork of the session with this home. Also a session.
    Fork(&'a Home),
    /// The programs of a sandbox, which the cell's init starts.
    Sandbox(&'a SandboxInit<'a>),
}

/// Parameters of the init of a sandbox.
#[derive(Debug)]
pub(crate) struct SandboxInit<'a> {
    /// Confinement of the init, which its programs inherit.
    pub(crate) confinement: &'a Confinement,
    /// Default environment of its programs.
    pub(crate) environment: &'a [(String, String)],
    /// Another mount point of the workspace.
    pub(crate) home: Option<&'a Path>,
    /// Standard input for requests, standard output for reports, and standard error.
    pub(crate) standard: [BorrowedFd<'a>; 3],
}

/// A cell that has been set up.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Process id of its init, if that is the launcher's child.
    pub(crate) init: Option<libc::pid_t>,
    /// Pidfd of the cell's init, through which its namespaces can be joined.
    pub(crate) pidfd: OwnedFd,
    /// Output directory of the cell.
    pub(crate) output: OwnedFd,
    /// The server's listening socket, until it is handed over.
    pub(crate) listener: Option<OwnedFd>,
    /// Set if the cell has its own time namespace.
    pub(crate) time_namespace: bool,
    /// Socket to its init, if that creates cells for forks.
    pub(crate) nest: Option<OwnedFd>,
    /// Handles of the cell's namespaces, for a session's fork to join.
    pub(crate) namespaces: Vec<OwnedFd>,
    /// The confinement of its init, if that starts the programs of a sandbox.
    pub(crate) applied: Option<Applied>,
}

impl Cell {
    /// Returns the namespaces that a process joins itself; joining the pid namespace affects only its
    /// children.
    fn joined(&self) -> libc::c_int {
        joined_namespaces(self.time_namespace)
    }

    /// Forks a child into the cell's pid namespace, but into none of the others yet.
    pub(crate) fn fork_into(&self, own: BorrowedFd<'_>) -> Result<sys::Fork, StepError> {
        sys::setns(self.pidfd.as_fd(), libc::CLONE_NEWPID).step("join the cell's pid namespace")?;
        let fork = sys::clone3(0, sys::Parentage::Own);
        if !matches!(fork, Ok(sys::Fork::Child)) {
            // Back to the own pid namespace: new namespaces can be created only below the current one.
            sys::setns(own, libc::CLONE_NEWPID).step("leave the cell's pid namespace")?;
        }
        fork.step("fork a guest")
    }

    /// Joins the cell's other namespaces.
    pub(crate) fn join(&self) -> Result<(), StepError> {
        sys::setns(self.pidfd.as_fd(), self.joined()).step("join the cell's namespaces")
    }

    /// Kills everything in the cell. The caller must still reap.
    pub(crate) fn kill(&self) {
        // Fails only if the cell's init is dead, and everything with it.
        let _ = sys::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

/// Returns the namespaces that a process joins itself.
pub(crate) fn joined_namespaces(time_namespace: bool) -> libc::c_int {
    let time = if time_namespace { clock::CLONE_NEWTIME } else { 0 };
    (NAMESPACES & !libc::CLONE_NEWPID) | libc::CLONE_NEWCGROUP | time
}

/// The message of a cell's init after set-up: the confinement that it took on, if any.
pub(crate) type SetupMessage = Result<Option<Applied>, (String, i32)>;

/// Receives the outcome of a cell's set-up from its init: its confinement and handles, or an error.
pub(crate) fn receive_handles(socket: &OwnedFd) -> Result<(Option<Applied>, Vec<OwnedFd>), StepError> {
    const STEP: &str = "await a cell";
    let mut buffer = [0; 512];
    let (length, fds) = sys::receive_message(socket.as_fd(), &mut buffer).step(STEP)?;
    match serde_json::from_slice(&buffer[..length]) {
        Ok(SetupMessage::Ok(applied)) => Ok((applied, fds)),
        Ok(SetupMessage::Err((step, errno))) => Err(remote_error(step, errno)),
        Err(_) => Err(died()).step(STEP),
    }
}

/// Clones the init of a cell into namespaces of its own; with a time namespace, its clocks start as the caller's.
pub(crate) fn clone_init(time_namespace: bool) -> Result<sys::Fork, StepError> {
    let time = if time_namespace { clock::CLONE_NEWTIME } else { 0 };
    sys::clone3((NAMESPACES | time) as u64, sys::Parentage::Own).step("make the namespaces of a cell")
}

/// Mounts of a cell that only its init can reach.
#[derive(Debug)]
pub(crate) struct Home {
    /// The root of the writable file system.
    pub(crate) files: OwnedFd,
    /// A writable `/proc` that shows every process.
    pub(crate) proc: OwnedFd,
}

/// Mount attributes of every `/proc`.
pub(crate) const PROC_ATTRIBUTES: u64 =
    libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
