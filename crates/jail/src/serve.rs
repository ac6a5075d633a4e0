//! The launcher's loop: commands from the engine, ended processes, and guests on their way.
//!
//! Nothing here waits for a single guest: while one cell is being set up, another guest's end is told at once.

use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::cell::{self, Cell, CellSpec, Founding, setup_result};
use crate::guest::{self, Start, Starting};
use crate::protocol::{Applied, Command, Event, Guest, MAX_MESSAGE, Program, Spawn};
use crate::steps::{Step, StepError, read_report};
use crate::zygote::Zygote;
use crate::{flat, sys};

/// A launcher at work.
pub(crate) struct Launcher<'a> {
    engine: &'a OwnedFd,
    signals: OwnedFd,
    /// A handle on ourselves, to come back from a cell's pid namespace.
    own: OwnedFd,
    /// What all cells stand on; `None` where there are no cells.
    ground: Option<CellGround>,
    zygote: Option<Zygote>,
    /// The zygote's successor, until it has warmed up.
    successor: Option<Zygote>,
    running: HashMap<u64, Running>,
    /// Guests that the zygote was asked for, in order.
    forks: VecDeque<u64>,
    /// Ended processes that may be guests whose ids the zygote has not told yet.
    unclaimed: Vec<sys::Reaped>,
}

/// What all cells of a launcher have in common.
#[derive(Debug)]
pub(crate) struct CellGround {
    /// The id that stands for guests.
    pub(crate) outer_id: u32,
    /// Mounts of the template to be put on top of the cells' own.
    pub(crate) inner_mounts: Vec<CString>,
}

/// A guest and what it lives in.
enum Running {
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
    },
    /// It runs.
    Live {
        cell: Cell,
        guest: libc::pid_t,
        left: Left,
    },
    /// It runs without a cell.
    Supervised { supervisor: libc::pid_t },
}

/// Which of a cell's two processes that are our children have not been reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Both,
    Init,
    Guest,
}

/// What the loop waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Engine,
    Signals,
    Successor,
    Zygote,
    Guest(u64),
}

impl<'a> Launcher<'a> {
    pub(crate) fn new(engine: &'a OwnedFd, ground: Option<CellGround>) -> Result<Self, StepError> {
        let signals = sys::signalfd(&[libc::SIGCHLD]).step("watch for ended processes")?;
        let own = sys::pidfd_open(sys::process_ids().0).step("open a handle on the launcher")?;
        Ok(Self {
            engine,
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

    /// Serves until the engine has gone.
    pub(crate) fn serve(mut self) -> Result<(), StepError> {
        send(self.engine, &Event::Ready, &[]);
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            for source in self.wait()? {
                match source {
                    Source::Signals => self.reap_ended(),
                    Source::Successor => self.greet_zygote(),
                    Source::Zygote => self.receive_fork(),
                    Source::Guest(id) => self.advance(id),
                    Source::Engine => {
                        // An engine that closes before it has read everything resets the connection, which is an
                        // end like any other: supervisors must still be asked to kill what they watch.
                        let received = sys::receive_message(self.engine.as_fd(), &mut buffer);
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

    /// Waits until there is something to do. Ends come first: somebody waits for each.
    fn wait(&self) -> Result<Vec<Source>, StepError> {
        let mut watched = vec![
            (Source::Signals, self.signals.as_fd()),
            (Source::Engine, self.engine.as_fd()),
        ];
        watched.extend(
            self.successor
                .iter()
                .map(|zygote| (Source::Successor, zygote.socket.as_fd())),
        );
        let asked = self.zygote.iter().filter(|_| !self.forks.is_empty());
        watched.extend(asked.map(|zygote| (Source::Zygote, zygote.socket.as_fd())));
        watched.extend(self.running.iter().filter_map(|(id, running)| match running {
            Running::Founding { founding, .. } => Some((Source::Guest(*id), founding.as_fd())),
            Running::Starting { reports, .. } => Some((Source::Guest(*id), reports.as_fd())),
            Running::Live { .. } | Running::Supervised { .. } => None,
        }));
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
            Command::Zygote(program) => {
                if let Err(error) = self.start_zygote(&program, fds) {
                    send(self.engine, &failure(0, &error), &[]);
                }
            }
            Command::Spawn(spawn) => {
                let id = spawn.id;
                match self.spawn(spawn, fds) {
                    Ok(running) => drop(self.running.insert(id, running)),
                    Err(error) => send(self.engine, &failure(id, &error), &[]),
                }
            }
            Command::Kill { id } => match self.running.get(&id) {
                Some(Running::Founding { founding, .. }) => founding.kill(),
                Some(Running::Starting { cell, .. } | Running::Live { cell, .. }) => cell.kill(),
                Some(Running::Supervised { supervisor }) => {
                    let _ = sys::kill(*supervisor, libc::SIGTERM);
                }
                None => {}
            },
        }
    }

    fn start_zygote(&mut self, program: &Program, fds: Vec<OwnedFd>) -> Result<(), StepError> {
        let library = fds
            .into_iter()
            .next()
            .ok_or_else(missing_descriptor)
            .step("start the zygote")?;
        let successor = Zygote::start(program, library)?;
        if let Some(replaced) = self.successor.replace(successor) {
            let _ = sys::kill(replaced.pid, libc::SIGKILL);
        }
        Ok(())
    }

    fn greet_zygote(&mut self) {
        let Some(successor) = self.successor.take() else {
            return;
        };
        if !successor.is_ready() {
            let _ = sys::kill(successor.pid, libc::SIGKILL);
            return send(self.engine, &Event::ZygoteGone, &[]);
        }
        // The old one answers what it was asked before it goes.
        while !self.forks.is_empty() {
            self.receive_fork();
        }
        if let Some(old) = self.zygote.replace(successor) {
            let _ = sys::kill(old.pid, libc::SIGKILL);
        }
        send(self.engine, &Event::ZygoteReady, &[]);
    }

    /// Begins to make a guest.
    fn spawn(&self, spawn: Box<Spawn>, fds: Vec<OwnedFd>) -> Result<Running, StepError> {
        let parts = SpawnDescriptors::split(fds, spawn.code.is_some()).step("take over the descriptors")?;
        let Some(ground) = &self.ground else {
            return self.spawn_supervised(&spawn, parts);
        };
        let founding = cell::found(&CellSpec {
            outer_id: ground.outer_id,
            inner_mounts: &ground.inner_mounts,
            disk_bytes: spawn.disk_bytes,
            code: spawn.code.as_deref().zip(parts.code.as_ref()),
            groups: &parts.groups,
            time_namespace: true,
        })?;
        Ok(Running::Founding {
            founding,
            spawn,
            parts,
        })
    }

    /// Takes a guest one step further.
    fn advance(&mut self, id: u64) {
        match self.running.remove(&id) {
            Some(Running::Founding {
                founding,
                spawn,
                parts,
            }) => match founding.finish() {
                Ok(cell) => self.start_guest(cell, *spawn, parts),
                Err(error) => send(self.engine, &failure(id, &error), &[]),
            },
            Some(Running::Starting { cell, guest, reports }) => self.settle(id, cell, guest, reports),
            Some(other @ (Running::Live { .. } | Running::Supervised { .. })) => {
                self.running.insert(id, other);
            }
            None => {}
        }
    }

    fn start_guest(&mut self, cell: Cell, spawn: Spawn, parts: SpawnDescriptors) {
        let id = spawn.id;
        let started = match &spawn.guest {
            Guest::Exec(program) => {
                let SpawnDescriptors {
                    standard: descriptors,
                    groups,
                    ..
                } = parts;
                let confinement = &spawn.confinement;
                guest::start(
                    &cell,
                    self.own.as_fd(),
                    Start {
                        program,
                        confinement,
                        descriptors,
                        groups: &groups,
                    },
                )
            }
            Guest::Fork | Guest::Session => self.ask_zygote(&cell, &spawn, &parts),
            Guest::ForkOf { .. } => {
                Err(std::io::Error::from_raw_os_error(libc::ENOTSUP)).step("fork a session")
            }
        };
        match started {
            Ok((guest, reports)) => {
                if guest.is_none() {
                    self.forks.push_back(id);
                }
                self.running
                    .insert(id, Running::Starting { cell, guest, reports });
            }
            Err(error) => {
                cell.kill();
                send(self.engine, &failure(id, &error), &[]);
            }
        }
    }

    fn ask_zygote(
        &self,
        cell: &Cell,
        spawn: &Spawn,
        parts: &SpawnDescriptors,
    ) -> Result<Starting, StepError> {
        let missing = || std::io::Error::from_raw_os_error(libc::EAGAIN);
        let zygote = self
            .zygote
            .as_ref()
            .ok_or_else(missing)
            .step("find a warm zygote")?;
        zygote.ask(cell, &spawn.confinement, &parts.standard, &parts.groups)
    }

    /// Takes the zygote's answer to the oldest request.
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
            // Its report, which cannot come now, ends in silence and is told as a failure.
            (Err(_), _) | (Ok(_), _) => {}
        }
        if self.forks.is_empty() {
            self.unclaimed.clear();
        }
    }

    /// Hears how a guest's set-up went.
    fn settle(&mut self, id: u64, cell: Cell, guest: Option<libc::pid_t>, reports: OwnedFd) {
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
                send(
                    self.engine,
                    &Event::Spawned { id, applied },
                    &[cell.output.as_fd()],
                );
                self.running.insert(
                    id,
                    Running::Live {
                        cell,
                        guest,
                        left: Left::Both,
                    },
                );
                // It may have ended before its id was known.
                if let Some(index) = self.unclaimed.iter().position(|ended| ended.pid == guest) {
                    let ended = self.unclaimed.swap_remove(index);
                    self.note_end(&ended);
                }
            }
            (outcome, _) => {
                cell.kill();
                let error = outcome.err().unwrap_or_else(cell::silence);
                send(self.engine, &failure(id, &error), &[]);
            }
        }
    }

    /// The id of a guest that the zygote was asked for and that has already reported.
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
        let (supervisor, applied) = flat::start(spawn.id, self.engine, start)?;
        send(
            self.engine,
            &Event::Spawned {
                id: spawn.id,
                applied,
            },
            &[],
        );
        Ok(Running::Supervised { supervisor })
    }

    fn reap_ended(&mut self) {
        sys::take_signals(self.signals.as_fd());
        while let Ok(Some(ended)) = sys::reap(sys::Wait::Poll) {
            if self.zygote.as_ref().is_some_and(|zygote| zygote.pid == ended.pid) {
                self.zygote = None;
                self.forks.clear();
                send(self.engine, &Event::ZygoteGone, &[]);
            } else {
                self.note_end(&ended);
            }
        }
    }

    fn note_end(&mut self, ended: &sys::Reaped) {
        let Some(id) = self
            .running
            .iter()
            .find(|(_, running)| running.owns(ended.pid))
            .map(|(id, _)| *id)
        else {
            if !self.forks.is_empty() {
                self.unclaimed.push(*ended);
            }
            return;
        };
        if let Some(Running::Starting { .. }) = self.running.get(&id) {
            // What it had to say is in the pipe; nobody else can write to it any more.
            self.advance(id);
        }
        match self.running.get_mut(&id) {
            Some(Running::Live { cell, guest, left }) => {
                if *guest == ended.pid {
                    let (status, cpu_micros, max_rss) = (ended.status, ended.cpu_micros, ended.max_rss);
                    send(
                        self.engine,
                        &Event::Exited {
                            id,
                            status,
                            cpu_micros,
                            max_rss,
                        },
                        &[],
                    );
                    cell.kill();
                }
                match (*left, *guest == ended.pid) {
                    (Left::Both, true) => *left = Left::Init,
                    (Left::Both, false) => *left = Left::Guest,
                    (Left::Init | Left::Guest, _) => self.note_gone(id),
                }
            }
            Some(Running::Supervised { .. }) => {
                self.note_gone(id);
                self.kill_strays();
            }
            // The first process of a cell that is being set up: its socket tells.
            Some(Running::Founding { .. } | Running::Starting { .. }) | None => {}
        }
    }

    fn note_gone(&mut self, id: u64) {
        self.running.remove(&id);
        send(self.engine, &Event::Gone { id }, &[]);
    }

    /// Children that are nobody's supervisor were left by one that was killed.
    fn kill_strays(&self) {
        for pid in flat::children_of(sys::process_ids().0) {
            if !self.running.values().any(|running| running.owns(pid)) {
                let _ = sys::kill(pid, libc::SIGKILL);
            }
        }
    }

    /// The engine has gone. As the first process of a pid namespace we only have to end; supervisors are
    /// asked to kill what they watch, and awaited.
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

impl Running {
    /// Whether a process that is our child belongs to this guest and has not been reaped.
    fn owns(&self, pid: libc::pid_t) -> bool {
        match self {
            Self::Founding { founding, .. } => founding.init() == pid,
            Self::Starting { cell, guest, .. } => cell.init == pid || *guest == Some(pid),
            Self::Live { cell, guest, left } => match left {
                Left::Both => cell.init == pid || *guest == pid,
                Left::Init => cell.init == pid,
                Left::Guest => *guest == pid,
            },
            Self::Supervised { supervisor } => *supervisor == pid,
        }
    }
}

/// The descriptors of a [`Command::Spawn`].
struct SpawnDescriptors {
    standard: [OwnedFd; 4],
    code: Option<OwnedFd>,
    groups: Vec<OwnedFd>,
}

impl SpawnDescriptors {
    fn split(fds: Vec<OwnedFd>, with_code: bool) -> std::io::Result<Self> {
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(missing_descriptor);
        let standard = [next()?, next()?, next()?, next()?];
        let code = if with_code { Some(next()?) } else { None };
        Ok(Self {
            standard,
            code,
            groups: fds.collect(),
        })
    }
}

fn missing_descriptor() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::EBADF)
}

/// An error as the engine is told it.
pub(crate) fn failure(id: u64, error: &StepError) -> Event {
    Event::Failed {
        id,
        step: error.step.to_owned(),
        errno: error.errno(),
    }
}

/// Tells the engine something. If it has gone, the next receive says so.
pub(crate) fn send(engine: &OwnedFd, event: &Event, fds: &[BorrowedFd<'_>]) {
    if let Ok(bytes) = serde_json::to_vec(event) {
        let _ = sys::send_message(engine.as_fd(), &bytes, fds);
    }
}
