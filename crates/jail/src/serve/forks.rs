//! Forks of sessions: a nested cell, a process that moves there, and a check of the result.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use super::running::{Live, LiveProcesses, Running, SpawnDescriptors};
use super::{Launcher, failure};
use crate::cell::Cell;
use crate::events::send;
use crate::fork::{self, Forking};
use crate::inspect::{self, Claim, Refusal};
use crate::protocol::{Applied, Event, Spawn};
use crate::step_error::{Step, StepError};
use crate::{nest, sys};

/// A fork that its session has reported.
pub(super) struct Forked {
    /// The session.
    pub(super) of: u64,
    pub(super) cell: Cell,
    pub(super) forking: Forking,
    pub(super) groups: Vec<OwnedFd>,
}

impl Launcher<'_> {
    /// Starts to fork a session.
    pub(super) fn begin_fork(
        &self,
        of: u64,
        spawn: Box<Spawn>,
        parts: SpawnDescriptors,
    ) -> Result<Running, StepError> {
        let refuse = |errno, step| Err(io::Error::from_raw_os_error(errno)).step(step);
        let session = match self.running.get(&of) {
            Some(Running::Live(live)) if live.left == LiveProcesses::Both => live,
            _ => return refuse(libc::ESRCH, "find the session to fork"),
        };
        if session.session.is_none() {
            return refuse(libc::ENOTSUP, "fork a guest that is not a session");
        }
        // These layers keep it from inspecting the process that creates its forks' cells.
        if session.applied.landlock_abi == 0 || !session.applied.seccomp {
            return refuse(libc::ENOTSUP, "fork a session without Landlock or the filter");
        }
        if self.running.values().any(|running| is_under_way(running, of)) {
            return refuse(libc::EBUSY, "fork a session that is being forked");
        }
        Ok(Running::Nesting {
            nesting: nest::found(&session.cell, spawn.disk_bytes, &parts.groups)?,
            of,
            spawn,
            parts,
        })
    }

    /// Sends a session the request to fork into the finished cell.
    pub(super) fn ask_session(&mut self, of: u64, cell: Cell, spawn: &Spawn, parts: SpawnDescriptors) {
        let gone = || io::Error::from_raw_os_error(libc::ESRCH);
        let session = match self.running.get(&of) {
            Some(Running::Live(live)) => live.session.as_ref(),
            _ => None,
        };
        let asked = session
            .ok_or_else(gone)
            .step("find the session to fork")
            .and_then(|session| fork::ask(session, &cell, &spawn.confinement, &parts.standard));
        match asked {
            Ok(forking) => {
                let forking = Running::Forking {
                    cell,
                    forking,
                    of,
                    groups: parts.groups,
                };
                self.running.insert(spawn.id, forking);
            }
            Err(error) => {
                cell.kill();
                self.cancel_fork(spawn.id, of, &error);
            }
        }
    }

    /// Notifies the server and the session that a fork was cancelled.
    pub(super) fn cancel_fork(&mut self, id: u64, of: u64, error: &StepError) {
        if let Some(Running::Live(session)) = self.running.get(&of) {
            session.session.iter().for_each(fork::cancel);
        }
        self.fail_fork(id, of, error);
    }

    /// Processes a session's report, and verifies the fork itself.
    pub(super) fn settle_fork(&mut self, id: u64, forked: Forked) {
        let Forked {
            of,
            cell,
            forking,
            groups,
        } = forked;
        match self.claim(of, &cell, &forking, &groups) {
            Ok((guest, applied)) => {
                let cell = Cell {
                    namespaces: Vec::new(),
                    ..cell
                };
                let spawned = Event::Spawned { id, applied };
                send(self.server, &spawned, &[cell.output.as_fd()]);
                let live = Live {
                    cell,
                    guest,
                    left: LiveProcesses::Both,
                    applied,
                    session: Some(forking.session),
                    of: Some(of),
                };
                self.running.insert(id, Running::Live(live));
            }
            Err(refusal) => {
                cell.kill();
                let (Refusal::Failed(error) | Refusal::Forged(error)) = &refusal;
                self.fail_fork(id, of, error);
                if let Refusal::Forged(_) = refusal {
                    self.kill(of);
                }
            }
        }
    }

    fn claim(
        &self,
        of: u64,
        cell: &Cell,
        forking: &Forking,
        groups: &[OwnedFd],
    ) -> Result<(libc::pid_t, Applied), Refusal> {
        let pid = forking.finish()?;
        let Some(Running::Live(session)) = self.running.get(&of) else {
            let gone = Err(io::Error::from_raw_os_error(libc::ESRCH));
            return gone.step("find the session to fork").map_err(Refusal::Failed);
        };
        if self.running.values().any(|running| running.owns(pid)) {
            let taken = Err(io::Error::from_raw_os_error(libc::EEXIST));
            return taken.step("find the fork in its cell").map_err(Refusal::Forged);
        }
        inspect::check(&Claim {
            pid,
            cell,
            descriptors: &forking.descriptors,
            private: &session.cell.output,
        })?;
        move_into(groups, pid).map_err(Refusal::Failed)?;
        let applied = Applied {
            time_namespace: cell.time_namespace,
            ..session.applied
        };
        Ok((pid, applied))
    }

    /// Reports a failed fork. Its cell, if any, ends by itself or has been killed.
    pub(super) fn fail_fork(&mut self, id: u64, of: u64, error: &StepError) {
        send(self.server, &failure(id, error), &[]);
        self.note_fork_gone(of);
    }

    /// Cancels a pending fork.
    pub(super) fn give_up_fork(&mut self, id: u64) {
        let cancelled = StepError {
            step: "fork a session",
            source: io::Error::from_raw_os_error(libc::ECANCELED),
        };
        match self.running.remove(&id) {
            // The cell's init finds its socket closed, and exits.
            Some(Running::Nesting { of, .. }) => self.cancel_fork(id, of, &cancelled),
            Some(Running::Forking {
                of, cell, forking, ..
            }) => {
                cell.kill();
                // Close the channel first: the report of the cancellation implies that nobody listens any
                // more.
                drop(forking);
                self.fail_fork(id, of, &cancelled);
            }
            Some(other) => drop(self.running.insert(id, other)),
            None => {}
        }
    }

    /// Cancels the forks of an exited session, which may never finish by themselves.
    pub(super) fn give_up_forks_of(&mut self, session: u64) {
        let running = self.running.iter();
        let begun: Vec<u64> = running
            .filter_map(|(id, running)| is_under_way(running, session).then_some(*id))
            .collect();
        begun.into_iter().for_each(|id| self.give_up_fork(id));
    }

    /// Kills a guest with everything in its cell; its forks survive, within the rest of the cell.
    pub(super) fn end_cell(&self, id: u64, live: &Live) {
        if !self.has_forks(id) {
            return live.cell.kill();
        }
        if live.left == LiveProcesses::Both {
            // Not reaped yet, so the pid is still its own. The rest of the cell follows once it has exited.
            let _ = sys::kill(live.guest, libc::SIGKILL);
        } else {
            nest::clear(&live.cell);
        }
    }

    /// Ends the cell of an exited session once its last fork has exited.
    pub(super) fn note_fork_gone(&self, of: u64) {
        if let Some(Running::Live(session)) = self.running.get(&of)
            && session.left != LiveProcesses::Both
            && !self.has_forks(of)
        {
            session.cell.kill();
        }
    }

    fn has_forks(&self, id: u64) -> bool {
        let mut of = self.running.values().filter_map(Running::forked_from);
        of.any(|of| of == id)
    }
}

fn is_under_way(running: &Running, session: u64) -> bool {
    match running {
        Running::Nesting { of, .. } | Running::Forking { of, .. } => *of == session,
        Running::Founding { .. }
        | Running::Waiting { .. }
        | Running::Starting { .. }
        | Running::Live(_)
        | Running::Supervised { .. } => false,
    }
}

/// Moves a fork into its cgroups. If the fork did this itself, it could not be verified.
fn move_into(groups: &[OwnedFd], pid: libc::pid_t) -> Result<(), StepError> {
    for group in groups {
        let copy = group.try_clone().step("join the control group")?;
        File::from(copy)
            .write_all(pid.to_string().as_bytes())
            .step("join the control group")?;
    }
    Ok(())
}
