//! The launcher's event loop: commands from the server, exited processes, guests during set-up.
//!
//! It never blocks on a single guest: while one cell is being set up, another guest's exit is reported at
//! once.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::cell::{Cell, CellSpec, SandboxInit, Tenant};
use crate::events::send;
use crate::guest::{self, Start, Starting};
use crate::protocol::{Applied, Command, Event, GUEST_ID, Guest, MAX_MESSAGE, Program, Spawn};
use crate::seccomp::{Forks, Users};
use crate::step_error::{Step, StepError};
use crate::steps::{prepare, read_report, setup_result};
use crate::writable_root::CellRoot;
use crate::zygote::{GuestRequest, Zygote, ZygoteMessage};
use crate::{cell_init, flat, step_error, sys};

mod forks;
mod reap;
mod running;

use forks::Forked;
use running::{Live, LiveProcesses, Running, SpawnDescriptors};

/// A launcher at work.
pub(crate) struct Launcher<'a> {
    server: &'a OwnedFd,
    signals: OwnedFd,
    /// Pidfd of this process, to return from a cell's pid namespace.
    own: OwnedFd,
    /// Shared state of all cells; `None` without cells.
    ground: Option<CellGround>,
    zygote: Option<Zygote>,
    /// The zygote's successor, until it has warmed up.
    successor: Option<Zygote>,
    running: HashMap<u64, Running>,
    /// Guests requested from the zygote, in order.
    forks: VecDeque<u64>,
    /// Exited processes that may be guests whose pids the zygote has not reported yet.
    unclaimed: Vec<sys::Reaped>,
}

/// State shared by all cells of a launcher.
#[derive(Debug)]
pub(crate) struct CellGround {
    /// Ids of guests in the launcher's user namespace.
    pub(crate) ids: GuestIds,
    /// Template mounts to stack on the cells' own.
    pub(crate) inner_mounts: Vec<CString>,
    /// The root that the programs of cells may change, if they may.
    pub(crate) root: Option<CellRoot>,
}

/// Ids of guests in the launcher's user namespace, assigned round-robin.
#[derive(Debug)]
pub(crate) struct GuestIds(RefCell<std::iter::Cycle<std::ops::Range<u32>>>);

impl GuestIds {
    /// Deals out these ids.
    pub(crate) fn new(ids: std::ops::Range<u32>) -> Self {
        Self(RefCell::new(ids.cycle()))
    }

    /// Returns the id of the next guest.
    fn next(&self) -> u32 {
        self.0.borrow_mut().next().unwrap_or(GUEST_ID)
    }
}

/// Event sources of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Server,
    Signals,
    Successor,
    Zygote,
    Guest(u64),
}

impl<'a> Launcher<'a> {
    pub(crate) fn new(server: &'a OwnedFd, ground: Option<CellGround>) -> Result<Self, StepError> {
        let signals = sys::signalfd(&[libc::SIGCHLD]).step("watch for ended processes")?;
        let own = sys::pidfd_open(sys::process_ids().0).step("open a handle on the launcher")?;
        Ok(Self {
            server,
            signals,
            own,
            ground,
            zygote: None,
            successor: None,
            running: HashMap::new(),
            forks: VecDeque::new(),
            unclaimed: Vec::new(),
        })
    }

    /// Serves until the server disconnects.
    pub(crate) fn serve(mut self) -> Result<(), StepError> {
        send(self.server, &Event::Ready, &[]);
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            for source in self.wait()? {
                match source {
                    Source::Signals => self.reap_ended(),
                    Source::Successor => self.greet_zygote(),
                    Source::Zygote => self.receive_fork(),
                    Source::Guest(id) => self.advance(id),
                    Source::Server => {
                        // A server that closes before it has read everything resets the connection, which is
                        // an end like any other: supervisors must still be asked to kill their guests.
                        let received = sys::receive_message(self.server.as_fd(), &mut buffer);
                        let Ok((length @ 1.., fds)) = received else {
                            return self.end();
                        };
                        let command =
                            serde_json::from_slice(&buffer[..length]).map_err(std::io::Error::other);
                        self.obey(command.step("read a command")?, fds);
                    }
                }
            }
        }
    }

    /// Waits for events. Exits come first: each has a waiter.
    fn wait(&self) -> Result<Vec<Source>, StepError> {
        let mut watched = vec![
            (Source::Signals, self.signals.as_fd()),
            (Source::Server, self.server.as_fd()),
        ];
        watched.extend(
            self.successor
                .iter()
                .map(|zygote| (Source::Successor, zygote.socket.as_fd())),
        );
        let asked = self.zygote.iter().filter(|_| !self.forks.is_empty());
        watched.extend(asked.map(|zygote| (Source::Zygote, zygote.socket.as_fd())));
        let guests = self.running.iter();
        watched.extend(guests.filter_map(|(id, running)| Some((Source::Guest(*id), running.awaited()?))));
        let fds: Vec<BorrowedFd<'_>> = watched.iter().map(|(_, fd)| *fd).collect();
        let readable = sys::poll(&fds, None).step("wait for work")?;
        Ok(watched
            .iter()
            .zip(readable)
            .filter(|(_, ready)| *ready)
            .map(|((source, _), _)| *source)
            .collect())
    }

    fn obey(&mut self, command: Command, fds: Vec<OwnedFd>) {
        match command {
            Command::Zygote { program, script } => {
                if let Err(error) = self.start_zygote(&program, script.as_deref(), fds) {
                    send(self.server, &failure(0, &error), &[]);
                }
            }
            Command::Spawn(spawn) => {
                let (id, of) = (spawn.id, spawn.guest.forked_from());
                match (self.spawn(spawn, fds), of) {
                    (Ok(running), _) => drop(self.running.insert(id, running)),
                    (Err(error), Some(of)) => self.cancel_fork(id, of, &error),
                    (Err(error), None) => send(self.server, &failure(id, &error), &[]),
                }
            }
            Command::Start { id } => self.start_waiting(id),
            Command::Kill { id } => self.kill(id),
            Command::Interrupt { id } => self.interrupt(id),
        }
    }

    fn kill(&mut self, id: u64) {
        match self.running.get(&id) {
            Some(Running::Founding { founding, .. }) => founding.kill(),
            Some(Running::Starting { cell, .. } | Running::Waiting { cell, .. }) => cell.kill(),
            Some(Running::Live(live)) => self.end_cell(id, live),
            Some(Running::Nesting { .. } | Running::Forking { .. }) => self.give_up_fork(id),
            Some(Running::Supervised { supervisor }) => {
                let _ = sys::kill(*supervisor, libc::SIGTERM);
            }
            None => {}
        }
    }

    /// Interrupts a running guest. One that is being set up runs nothing yet.
    fn interrupt(&self, id: u64) {
        match self.running.get(&id) {
            Some(Running::Live(live)) if live.left != LiveProcesses::Init => {
                let _ = sys::kill(live.guest, libc::SIGINT);
            }
            // The supervisor passes it on, and answers.
            Some(Running::Supervised { supervisor }) if sys::kill(*supervisor, libc::SIGINT).is_ok() => {
                return;
            }
            _ => {}
        }
        send(self.server, &Event::Interrupted { id }, &[]);
    }

    fn start_zygote(
        &mut self,
        program: &Program,
        script: Option<&str>,
        fds: Vec<OwnedFd>,
    ) -> Result<(), StepError> {
        let library = fds
            .into_iter()
            .next()
            .ok_or_else(missing_descriptor)
            .step("start the zygote")?;
        let inner_mounts = self
            .ground
            .as_ref()
            .map_or(&[][..], |ground| &ground.inner_mounts);
        let successor = Zygote::start(program, script, library, inner_mounts)?;
        if let Some(replaced) = self.successor.replace(successor) {
            let _ = sys::kill(replaced.pid, libc::SIGKILL);
        }
        Ok(())
    }

    fn greet_zygote(&mut self) {
        let Some(successor) = self.successor.take() else {
            return;
        };
        match successor.receive() {
            ZygoteMessage::Ready => {}
            ZygoteMessage::Report(text) => {
                self.successor = Some(successor);
                return send(self.server, &Event::ZygoteReports { text }, &[]);
            }
            ZygoteMessage::Gone => {
                let _ = sys::kill(successor.pid, libc::SIGKILL);
                return send(self.server, &Event::ZygoteGone, &[]);
            }
        }
        // The old one answers its pending requests before it exits.
        while !self.forks.is_empty() {
            self.receive_fork();
        }
        if let Some(old) = self.zygote.replace(successor) {
            let _ = sys::kill(old.pid, libc::SIGKILL);
        }
        send(self.server, &Event::ZygoteReady, &[]);
    }

    /// Starts to create a guest.
    fn spawn(&self, spawn: Box<Spawn>, fds: Vec<OwnedFd>) -> Result<Running, StepError> {
        let parts = SpawnDescriptors::split(fds, spawn.code.is_some()).step("take over the descriptors")?;
        let Some(ground) = &self.ground else {
            return self.spawn_supervised(&spawn, parts);
        };
        if let Guest::ForkOf { of } = spawn.guest {
            return self.begin_fork(of, spawn, parts);
        }
        check_filter(&spawn, ground)?;
        let [stdin, stdout, stderr, _] = parts.standard.each_ref().map(AsFd::as_fd);
        let sandbox = match &spawn.guest {
            Guest::Sandbox { environment, home } => {
                prepare(&spawn.confinement);
                Some(SandboxInit {
                    confinement: &spawn.confinement,
                    environment,
                    home: home.as_deref(),
                    standard: [stdin, stdout, stderr],
                })
            }
            Guest::Exec(_) | Guest::Fork | Guest::Session { .. } | Guest::ForkOf { .. } => None,
        };
        let founding = cell_init::found(&CellSpec {
            outer_id: ground.ids.next(),
            inner_mounts: &ground.inner_mounts,
            root: ground.root.as_ref(),
            disk_bytes: spawn.disk_bytes,
            code: spawn.code.as_deref().zip(parts.code.as_ref()),
            groups: &parts.groups,
            time_namespace: true,
            listen: spawn.listen,
            tenant: match (&spawn.guest, &sandbox) {
                (Guest::Session { .. }, _) => Tenant::Session,
                (_, Some(sandbox)) => Tenant::Sandbox(sandbox),
                (_, None) => Tenant::Guest,
            },
        })?;
        if matches!(spawn.guest, Guest::Exec(_)) {
            // While the cell is being set up.
            prepare(&spawn.confinement);
        }
        Ok(Running::Founding {
            founding,
            spawn,
            parts,
        })
    }

    /// Advances a guest to its next state.
    fn advance(&mut self, id: u64) {
        match self.running.remove(&id) {
            Some(Running::Founding {
                founding,
                spawn,
                parts,
            }) => match founding.finish() {
                Ok(cell) => match cell.applied {
                    Some(applied) => self.settle_sandbox(id, cell, applied),
                    None if spawn.waits => self.await_start(cell, spawn, parts),
                    None => self.start_guest(cell, *spawn, parts),
                },
                Err(error) => send(self.server, &failure(id, &error), &[]),
            },
            Some(Running::Starting {
                cell,
                guest,
                reports,
                session,
            }) => {
                self.settle(id, cell, Starting { guest, reports }, session);
            }
            Some(Running::Nesting {
                nesting,
                of,
                spawn,
                parts,
            }) => match nesting.finish() {
                Ok(cell) => self.ask_session(of, cell, &spawn, parts),
                Err(error) => self.cancel_fork(id, of, &error),
            },
            Some(Running::Forking {
                cell,
                forking,
                of,
                groups,
            }) => self.settle_fork(
                id,
                Forked {
                    of,
                    cell,
                    forking,
                    groups,
                },
            ),
            Some(Running::Live(live)) if live.is_over() => self.note_gone(id, live.of),
            // Already advanced by another event.
            Some(other @ (Running::Live(_) | Running::Supervised { .. })) => {
                self.running.insert(id, other);
            }
            // Waits for the server.
            Some(waiting @ Running::Waiting { .. }) => {
                self.running.insert(id, waiting);
            }
            None => {}
        }
    }

    /// Shows the server a cell, whose guest it will start.
    fn await_start(&mut self, cell: Cell, spawn: Box<Spawn>, parts: SpawnDescriptors) {
        let id = spawn.id;
        send(self.server, &Event::CellReady { id }, &[cell.output.as_fd()]);
        self.running.insert(id, Running::Waiting { cell, spawn, parts });
    }

    fn start_waiting(&mut self, id: u64) {
        match self.running.remove(&id) {
            Some(Running::Waiting { cell, spawn, parts }) => self.start_guest(cell, *spawn, parts),
            Some(other) => drop(self.running.insert(id, other)),
            None => {}
        }
    }

    /// Notes that a sandbox has been set up: the cell's init is its first process.
    fn settle_sandbox(&mut self, id: u64, mut cell: Cell, applied: Applied) {
        let Some(init) = cell.init else {
            return cell.kill();
        };
        let applied = Applied {
            namespaces: true,
            time_namespace: cell.time_namespace,
            ..applied
        };
        let listener = cell.listener.take();
        let handles = [Some(&cell.output), listener.as_ref()];
        let handles: Vec<_> = handles.into_iter().flatten().map(AsFd::as_fd).collect();
        send(self.server, &Event::Spawned { id, applied }, &handles);
        let live = Live {
            cell,
            guest: init,
            left: LiveProcesses::Guest,
            applied,
            session: None,
            of: None,
        };
        self.running.insert(id, Running::Live(live));
    }

    fn start_guest(&mut self, cell: Cell, spawn: Spawn, parts: SpawnDescriptors) {
        let id = spawn.id;
        match self.begin_guest(&cell, &spawn, parts) {
            Ok((Starting { guest, reports }, session)) => {
                if guest.is_none() {
                    self.forks.push_back(id);
                }
                self.running.insert(
                    id,
                    Running::Starting {
                        cell,
                        guest,
                        reports,
                        session,
                    },
                );
            }
            Err(error) => {
                cell.kill();
                send(self.server, &failure(id, &error), &[]);
            }
        }
    }

    /// Starts a guest in its cell. For a session, also returns the socket for its fork requests.
    fn begin_guest(
        &self,
        cell: &Cell,
        spawn: &Spawn,
        parts: SpawnDescriptors,
    ) -> Result<(Starting, Option<OwnedFd>), StepError> {
        let SpawnDescriptors {
            standard: descriptors,
            groups,
            ..
        } = parts;
        let mut hides: &[_] = &[];
        let (ours, theirs) = match &spawn.guest {
            Guest::Exec(program) => {
                let start = Start {
                    program,
                    confinement: &spawn.confinement,
                    descriptors,
                    groups: &groups,
                };
                return Ok((guest::start(cell, self.own.as_fd(), start)?, None));
            }
            Guest::Session { hidden } => {
                hides = hidden;
                let (ours, theirs) = sys::seqpacket_pair().step("make the session's socket")?;
                (Some(ours), Some(theirs))
            }
            // The init of a sandbox starts its programs itself.
            Guest::Fork | Guest::ForkOf { .. } | Guest::Sandbox { .. } => (None, None),
        };
        let missing = || std::io::Error::from_raw_os_error(libc::EAGAIN);
        let zygote = self
            .zygote
            .as_ref()
            .ok_or_else(missing)
            .step("find a warm zygote")?;
        let order = GuestRequest {
            confinement: &spawn.confinement,
            descriptors: &descriptors,
            session: theirs.as_ref(),
            hides,
            groups: &groups,
        };
        Ok((zygote.ask(cell, &order)?, ours))
    }

    /// Processes the zygote's answer to the oldest request.
    fn receive_fork(&mut self) {
        let (Some(id), Some(zygote)) = (self.forks.pop_front(), &self.zygote) else {
            return self.forks.clear();
        };
        let received = zygote.receive_pid();
        match (received, self.running.get_mut(&id)) {
            (Ok(pid), Some(Running::Starting { guest, .. })) => {
                *guest = Some(pid);
                if let Some(index) = self.unclaimed.iter().position(|ended| ended.pid == pid) {
                    let ended = self.unclaimed.swap_remove(index);
                    self.note_end(&ended);
                }
            }
            // Its report, which cannot come now, ends without data, which counts as a failure.
            (Err(_), _) | (Ok(_), _) => {}
        }
        if self.forks.is_empty() {
            // Some exited processes may not have been reaped.
            self.reap_ended();
        }
    }

    /// Processes the outcome of a guest's set-up.
    fn settle(&mut self, id: u64, mut cell: Cell, starting: Starting, session: Option<OwnedFd>) {
        let Starting { guest, reports } = starting;
        let outcome = setup_result(read_report(reports));
        let guest = guest.or_else(|| self.await_pid(id));
        match (outcome, guest) {
            (Ok(applied), Some(guest)) => {
                let time_namespace = cell.time_namespace;
                let applied = Applied {
                    namespaces: true,
                    time_namespace,
                    ..applied
                };
                let listener = cell.listener.take();
                let handles = [Some(&cell.output), listener.as_ref()];
                let handles: Vec<_> = handles.into_iter().flatten().map(AsFd::as_fd).collect();
                send(self.server, &Event::Spawned { id, applied }, &handles);
                let live = Live {
                    cell,
                    guest,
                    left: LiveProcesses::Both,
                    applied,
                    session,
                    of: None,
                };
                self.running.insert(id, Running::Live(live));
                // It may have exited before its pid was known.
                if let Some(index) = self.unclaimed.iter().position(|ended| ended.pid == guest) {
                    let ended = self.unclaimed.swap_remove(index);
                    self.note_end(&ended);
                }
            }
            (outcome, _) => {
                cell.kill();
                let error = outcome.err().unwrap_or_else(step_error::silence);
                send(self.server, &failure(id, &error), &[]);
            }
        }
    }

    /// Returns the pid of a guest that was requested from the zygote and has already reported.
    fn await_pid(&mut self, id: u64) -> Option<libc::pid_t> {
        while self.forks.front().is_some_and(|front| *front != id) {
            self.receive_fork();
        }
        self.forks.pop_front()?;
        self.zygote.as_ref()?.receive_pid().ok()
    }

    fn spawn_supervised(&self, spawn: &Spawn, parts: SpawnDescriptors) -> Result<Running, StepError> {
        let Guest::Exec(program) = &spawn.guest else {
            return Err(std::io::Error::from_raw_os_error(libc::ENOTSUP))
                .step("fork a zygote without namespaces");
        };
        let SpawnDescriptors {
            standard: descriptors,
            groups,
            ..
        } = parts;
        let start = Start {
            program,
            confinement: &spawn.confinement,
            descriptors,
            groups: &groups,
        };
        prepare(&spawn.confinement);
        let (supervisor, applied) = flat::start(spawn.id, self.server, start)?;
        send(
            self.server,
            &Event::Spawned {
                id: spawn.id,
                applied,
            },
            &[],
        );
        Ok(Running::Supervised { supervisor })
    }

    /// Shuts down. As init of a pid namespace the launcher only has to exit; supervisors are asked to kill
    /// their guests, and awaited.
    fn end(self) -> Result<(), StepError> {
        let mut supervised = false;
        for running in self.running.values() {
            if let Running::Supervised { supervisor } = running {
                supervised = true;
                let _ = sys::kill(*supervisor, libc::SIGTERM);
            }
        }
        while supervised && sys::reap(sys::Wait::Block).is_ok() {}
        Ok(())
    }
}

/// Checks the filter's parameters. Only a confined session may move between namespaces, since its forks are
/// checked from outside. Only a sandbox with its own root has several users.
fn check_filter(spawn: &Spawn, ground: &CellGround) -> Result<(), StepError> {
    let session = matches!(spawn.guest, Guest::Session { .. });
    let surface = spawn.confinement.surface;
    let moves = surface.forks == Forks::IntoCells;
    let is_sandbox = matches!(spawn.guest, Guest::Sandbox { .. });
    let has_users = surface.users == Users::Several;
    let users_fit = has_users == ground.root.is_some() && (!has_users || is_sandbox);
    let is_confined = spawn.confinement.landlock.is_some();
    if session == moves && users_fit && (is_confined || !(session || has_users)) {
        return Ok(());
    }
    Err(std::io::Error::from_raw_os_error(libc::EINVAL)).step("match the filter to the guest")
}

fn missing_descriptor() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::EBADF)
}

/// Converts an error for the server.
pub(crate) fn failure(id: u64, error: &StepError) -> Event {
    Event::Failed {
        id,
        step: error.step.to_owned(),
        errno: error.errno(),
    }
}
