//! The guests of a launcher and their states.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::cell::Cell;
use crate::cell_init::Founding;
use crate::fork::Forking;
use crate::nest::Nesting;
use crate::protocol::{Applied, Spawn};
use crate::sys;

/// A guest in one of its states.
pub(super) enum Running {
    /// The guest's cell is being set up.
    Founding {
        founding: Founding,
        spawn: Box<Spawn>,
        parts: SpawnDescriptors,
    },
    /// The server has the guest's cell, and has not started the guest.
    Waiting {
        cell: Cell,
        spawn: Box<Spawn>,
        parts: SpawnDescriptors,
    },
    /// The guest is confining itself.
    Starting {
        cell: Cell,
        guest: Option<libc::pid_t>,
        reports: OwnedFd,
        /// Socket for fork requests, if it is a session.
        session: Option<OwnedFd>,
    },
    /// A cell for a session's fork is being set up.
    Nesting {
        nesting: Nesting,
        of: u64,
        spawn: Box<Spawn>,
        parts: SpawnDescriptors,
    },
    /// A session was asked for a fork.
    Forking {
        cell: Cell,
        forking: Forking,
        of: u64,
        groups: Vec<OwnedFd>,
    },
    /// The guest runs.
    Live(Live),
    /// The guest runs without a cell.
    Supervised { supervisor: libc::pid_t },
}

/// A guest that runs in its cell, or whose cell is ending.
pub(super) struct Live {
    pub(super) cell: Cell,
    pub(super) guest: libc::pid_t,
    pub(super) left: LiveProcesses,
    pub(super) applied: Applied,
    /// Socket for fork requests, if it is a session.
    pub(super) session: Option<OwnedFd>,
    /// Id of the session it was forked from.
    pub(super) of: Option<u64>,
}

/// The processes of a cell that have not exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LiveProcesses {
    Both,
    Init,
    Guest,
}

impl Live {
    /// Returns `true` if the cell of a session's fork has ended: its init exits after all other processes in
    /// it.
    pub(super) fn is_over(&self) -> bool {
        let waits = self.cell.init.is_none() && self.left == LiveProcesses::Init;
        waits && sys::poll(&[self.cell.pidfd.as_fd()], Some(0)).is_ok_and(|ended| ended == [true])
    }
}

impl Running {
    /// Returns `true` if a child process of the launcher belongs to this guest and has not been reaped.
    pub(super) fn owns(&self, pid: libc::pid_t) -> bool {
        match self {
            Self::Founding { founding, .. } => founding.init() == pid,
            Self::Waiting { cell, .. } => cell.init == Some(pid),
            Self::Starting { cell, guest, .. } => cell.init == Some(pid) || *guest == Some(pid),
            // A fork's pid is unknown before it has been verified.
            Self::Nesting { .. } | Self::Forking { .. } => false,
            Self::Live(live) => match live.left {
                LiveProcesses::Both => live.cell.init == Some(pid) || live.guest == pid,
                LiveProcesses::Init => live.cell.init == Some(pid),
                LiveProcesses::Guest => live.guest == pid,
            },
            Self::Supervised { supervisor } => *supervisor == pid,
        }
    }

    /// Returns the file descriptor that becomes readable when this guest can be advanced.
    pub(super) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Founding { founding, .. } => Some(founding.as_fd()),
            Self::Starting { reports, .. } => Some(reports.as_fd()),
            Self::Nesting { nesting, .. } => Some(nesting.as_fd()),
            Self::Forking { forking, .. } => Some(forking.reports.as_fd()),
            // The init of a fork's cell is reaped in the session's cell; the pidfd signals its exit.
            Self::Live(live) => (live.cell.init.is_none() && live.left == LiveProcesses::Init)
                .then_some(live.cell.pidfd.as_fd()),
            Self::Waiting { .. } | Self::Supervised { .. } => None,
        }
    }

    /// Returns the session that this guest is or will be a fork of.
    pub(super) fn forked_from(&self) -> Option<u64> {
        match self {
            Self::Nesting { of, .. } | Self::Forking { of, .. } => Some(*of),
            Self::Live(live) => live.of,
            Self::Founding { .. }
            | Self::Waiting { .. }
            | Self::Starting { .. }
            | Self::Supervised { .. } => None,
        }
    }
}

/// The file descriptors of a `Spawn` command.
pub(super) struct SpawnDescriptors {
    pub(super) standard: [OwnedFd; 4],
    pub(super) code: Option<OwnedFd>,
    pub(super) groups: Vec<OwnedFd>,
}

impl SpawnDescriptors {
    pub(super) fn split(fds: Vec<OwnedFd>, with_code: bool) -> io::Result<Self> {
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(super::missing_descriptor);
        let standard = [next()?, next()?, next()?, next()?];
        let code = if with_code { Some(next()?) } else { None };
        Ok(Self {
            standard,
            code,
            groups: fds.collect(),
        })
    }
}
