//! The guests of a launcher, each with what it lives in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::cell::{Cell, Founding};
use crate::fork::Forking;
use crate::nest::Nesting;
use crate::protocol::{Applied, Spawn};
use crate::sys;

/// A guest and what it lives in.
pub(super) enum Running {
    /// Its cell is being set up.
    Founding {
        founding: Founding,
        spawn: Box<Spawn>,
        parts: SpawnDescriptors,
    },
    /// It is confining itself.
    Starting {
        cell: Cell,
        guest: Option<libc::pid_t>,
        reports: OwnedFd,
        /// Where it is asked for forks, if it is a session.
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
    /// It runs.
    Live(Live),
    /// It runs without a cell.
    Supervised { supervisor: libc::pid_t },
}

/// A guest that runs in its cell, or whose cell is ending.
pub(super) struct Live {
    pub(super) cell: Cell,
    pub(super) guest: libc::pid_t,
    pub(super) left: Left,
    pub(super) applied: Applied,
    /// Where it is asked for forks, if it is a session.
    pub(super) session: Option<OwnedFd>,
    /// Which session it was forked from.
    pub(super) of: Option<u64>,
}

/// Which of a cell's two processes have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Both,
    Init,
    Guest,
}

impl Live {
    /// Whether the cell of a session's fork has ended: its first process does so after everybody else in it.
    pub(super) fn is_over(&self) -> bool {
        let waits = self.cell.init.is_none() && self.left == Left::Init;
        waits && sys::poll(&[self.cell.pidfd.as_fd()], Some(0)).is_ok_and(|ended| ended == [true])
    }
}

impl Running {
    /// Whether a process that is our child belongs to this guest and has not been reaped.
    pub(super) fn owns(&self, pid: libc::pid_t) -> bool {
        match self {
            Self::Founding { founding, .. } => founding.init() == pid,
            Self::Starting { cell, guest, .. } => cell.init == Some(pid) || *guest == Some(pid),
            // What is forked is not known before it has been looked at.
            Self::Nesting { .. } | Self::Forking { .. } => false,
            Self::Live(live) => match live.left {
                Left::Both => live.cell.init == Some(pid) || live.guest == pid,
                Left::Init => live.cell.init == Some(pid),
                Left::Guest => live.guest == pid,
            },
            Self::Supervised { supervisor } => *supervisor == pid,
        }
    }

    /// What becomes readable when this guest can be taken a step further.
    pub(super) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Founding { founding, .. } => Some(founding.as_fd()),
            Self::Starting { reports, .. } => Some(reports.as_fd()),
            Self::Nesting { nesting, .. } => Some(nesting.as_fd()),
            Self::Forking { forking, .. } => Some(forking.reports.as_fd()),
            // The first process of a fork's cell is the session's to reap; the handle tells when it has ended.
            Self::Live(live) => {
                (live.cell.init.is_none() && live.left == Left::Init).then_some(live.cell.pidfd.as_fd())
            }
            Self::Supervised { .. } => None,
        }
    }

    /// Which session this guest is or will be a fork of.
    pub(super) fn forked_from(&self) -> Option<u64> {
        match self {
            Self::Nesting { of, .. } | Self::Forking { of, .. } => Some(*of),
            Self::Live(live) => live.of,
            Self::Founding { .. } | Self::Starting { .. } | Self::Supervised { .. } => None,
        }
    }
}

/// The descriptors of a `Spawn` command.
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
