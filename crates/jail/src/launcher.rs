//! The launcher: a single-threaded process between the engine and the guests.
//!
//! It is the first process of an outer pid namespace, so that the kernel kills everything below it when it
//! ends, and it ends when the engine's end of its socket closes.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::cell::{self, Cell, CellSpec};
use crate::guest::{self, Start};
use crate::protocol::{
    Applied, Command, Event, GUEST_ID, Guest, LauncherSpec, MAX_MESSAGE, Program, Spawn, Template,
};
use crate::steps::{Step, StepError};
use crate::zygote::Zygote;
use crate::{flat, probe, sys, template};

/// The entry of the launcher process: standard input is the engine's socket.
pub fn launcher_main() -> ! {
    let status = match take_socket() {
        Ok(socket) => match run(&socket) {
            Ok(()) => 0,
            Err(error) => {
                send(&socket, &failure(0, &error), &[]);
                1
            }
        },
        Err(_) => 2,
    };
    sys::exit_now(status)
}

/// Moves the socket away from descriptor 0, where guests' descriptors will be laid out.
fn take_socket() -> std::io::Result<OwnedFd> {
    let socket = sys::dup_above(std::io::stdin().as_fd(), 16)?;
    let null = File::open("/dev/null")?;
    sys::dup2(null.as_fd(), 0)?;
    Ok(socket)
}

fn run(socket: &OwnedFd) -> Result<(), StepError> {
    const STEP: &str = "receive the specification";
    let mut buffer = vec![0; MAX_MESSAGE];
    let (length, _) = sys::receive_message(socket.as_fd(), &mut buffer).step(STEP)?;
    let spec: LauncherSpec = serde_json::from_slice(&buffer[..length])
        .map_err(std::io::Error::other)
        .step(STEP)?;
    match spec {
        LauncherSpec::Namespaced(template) => enter_namespaces(socket, &template),
        LauncherSpec::Flat => {
            sys::become_subreaper().step("become a subreaper")?;
            Launcher::new(socket, None)?.serve()
        }
        LauncherSpec::Probe => probe::answer(socket),
    }
}

/// Builds the template and goes on as the first process of new namespaces. The caller stays behind as the
/// parent that the host sees, and ends with it.
fn enter_namespaces(socket: &OwnedFd, template: &Template) -> Result<(), StepError> {
    if template.host_ids.is_none() {
        become_root_of_own_namespace()?;
    }
    template::build(template)?;
    let mut namespaces =
        libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    if template.host_ids.is_some() {
        namespaces |= libc::CLONE_NEWUSER;
    }
    let (released, release) = sys::pipe().step("make a pipe")?;
    match sys::clone3(namespaces as u64, sys::Parentage::Own).step("make the outer namespaces")? {
        sys::Fork::Child => {
            drop(release);
            sys::die_with_parent().step("tie the launcher to its parent")?;
            sys::poll(&[released.as_fd()], None).step("await the id map")?;
            drop(released);
            serve_cells(socket, template)
        }
        sys::Fork::Parent { pid, .. } => {
            if let Some(ids) = template.host_ids {
                let map = format!("0 {} {}\n", ids.first, ids.count);
                template::write_id_maps(pid, &map, &map).step("map the outer ids")?;
            }
            drop((released, release));
            sys::replace_by_null(socket.as_fd()).step("leave the socket to the launcher")?;
            sys::reap(sys::Wait::Block).step("await the launcher")?;
            sys::exit_now(0)
        }
    }
}

/// An ordinary user may map nothing but the own id, and must give up changing groups for it.
pub(crate) fn become_root_of_own_namespace() -> Result<(), StepError> {
    let (uid, gid) = sys::effective_ids();
    sys::unshare(libc::CLONE_NEWUSER).step("make a user namespace")?;
    std::fs::write("/proc/self/setgroups", "deny").step("map the own user id")?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1\n")).step("map the own user id")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1\n")).step("map the own user id")
}

fn serve_cells(socket: &OwnedFd, template: &Template) -> Result<(), StepError> {
    if template.host_ids.is_some() {
        sys::drop_groups().step("leave the host's groups")?;
        sys::set_ids(0, 0).step("become root of the outer namespace")?;
        sys::set_dumpable().step("let /proc entries belong to us")?;
    }
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    let proc = sys::new_filesystem(c"proc", &[], attributes).step("make the outer /proc")?;
    sys::move_mount(proc.as_fd(), c"/proc").step("mount the outer /proc")?;
    forbid_executable_memory_files();
    let outer_id = if template.host_ids.is_some() { GUEST_ID } else { 0 };
    Launcher::new(socket, Some(outer_id))?.serve()
}

/// Files in memory cannot be executed in this pid namespace and below (Linux 6.3). Where the kernel is older
/// the filter still refuses execveat, and whatever is executed stays inside the same fence.
fn forbid_executable_memory_files() {
    let _ = std::fs::write("/proc/sys/vm/memfd_noexec", "1");
}

struct Launcher<'a> {
    engine: &'a OwnedFd,
    signals: OwnedFd,
    /// A handle on ourselves, to come back from a cell's pid namespace.
    own: OwnedFd,
    /// The id that stands for guests in cells; `None` where there are no cells.
    outer_id: Option<u32>,
    zygote: Option<Zygote>,
    /// The zygote's successor, until it has warmed up.
    successor: Option<Zygote>,
    running: HashMap<u64, Running>,
}

/// A guest and what it lives in.
enum Running {
    InCell {
        cell: Cell,
        guest: libc::pid_t,
        left: Left,
    },
    Supervised {
        supervisor: libc::pid_t,
    },
}

/// Which of a cell's two processes that are our children have not been reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Both,
    Init,
    Guest,
}

impl<'a> Launcher<'a> {
    fn new(engine: &'a OwnedFd, outer_id: Option<u32>) -> Result<Self, StepError> {
        let signals = sys::signalfd(&[libc::SIGCHLD]).step("watch for ended processes")?;
        let own = sys::pidfd_open(sys::process_ids().0).step("open a handle on the launcher")?;
        Ok(Self {
            engine,
            signals,
            own,
            outer_id,
            zygote: None,
            successor: None,
            running: HashMap::new(),
        })
    }

    fn serve(mut self) -> Result<(), StepError> {
        send(self.engine, &Event::Ready, &[]);
        let mut buffer = vec![0; MAX_MESSAGE];
        loop {
            let warming = self.successor.as_ref().map(|zygote| zygote.socket.as_fd());
            let watched: Vec<BorrowedFd<'_>> = [self.engine.as_fd(), self.signals.as_fd()]
                .into_iter()
                .chain(warming)
                .collect();
            let readable = sys::poll(&watched, None).step("wait for work")?;
            if readable[1] {
                self.reap_ended();
            }
            if readable.get(2) == Some(&true) {
                self.greet_zygote();
            }
            if readable[0] {
                let (length, fds) =
                    sys::receive_message(self.engine.as_fd(), &mut buffer).step("receive a command")?;
                if length == 0 {
                    return self.end();
                }
                let command = serde_json::from_slice(&buffer[..length])
                    .map_err(std::io::Error::other)
                    .step("read a command")?;
                self.obey(command, fds);
            }
        }
    }

    fn obey(&mut self, command: Command, fds: Vec<OwnedFd>) {
        match command {
            Command::Zygote(program) => {
                if let Err(error) = self.start_zygote(&program, fds) {
                    send(self.engine, &failure(0, &error), &[]);
                }
            }
            Command::Spawn(spawn) => match self.spawn(&spawn, fds) {
                Ok((running, applied)) => self.announce(spawn.id, running, applied),
                Err(error) => send(self.engine, &failure(spawn.id, &error), &[]),
            },
            Command::Kill { id } => match self.running.get(&id) {
                Some(Running::InCell { cell, .. }) => cell.kill(),
                Some(Running::Supervised { supervisor }) => {
                    let _ = sys::kill(*supervisor, libc::SIGTERM);
                }
                None => {}
            },
        }
    }

    fn announce(&mut self, id: u64, running: Running, applied: Applied) {
        let event = Event::Spawned { id, applied };
        match &running {
            Running::InCell { cell, .. } => send(self.engine, &event, &[cell.output.as_fd()]),
            Running::Supervised { .. } => send(self.engine, &event, &[]),
        }
        self.running.insert(id, running);
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
        if let Some(old) = self.zygote.replace(successor) {
            let _ = sys::kill(old.pid, libc::SIGKILL);
        }
        send(self.engine, &Event::ZygoteReady, &[]);
    }

    fn spawn(&self, spawn: &Spawn, fds: Vec<OwnedFd>) -> Result<(Running, Applied), StepError> {
        let parts = SpawnDescriptors::split(fds, spawn.code.is_some()).step("take over the descriptors")?;
        let Some(outer_id) = self.outer_id else {
            return self.spawn_supervised(spawn, parts);
        };
        let code = spawn.code.as_deref().zip(parts.code.as_ref());
        let cell = cell::make(&CellSpec {
            outer_id,
            disk_bytes: spawn.disk_bytes,
            code,
            groups: &parts.groups,
            time_namespace: true,
        })?;
        let started = match &spawn.guest {
            Guest::Exec(program) => guest::start(
                &cell,
                self.own.as_fd(),
                Start {
                    program,
                    confinement: &spawn.confinement,
                    descriptors: parts.standard,
                    groups: &parts.groups,
                },
            ),
            Guest::Fork => self.fork_zygote(&cell, spawn, &parts),
        };
        match started {
            Ok((guest, applied)) => {
                let applied = Applied {
                    namespaces: true,
                    time_namespace: cell.time_namespace,
                    ..applied
                };
                Ok((
                    Running::InCell {
                        cell,
                        guest,
                        left: Left::Both,
                    },
                    applied,
                ))
            }
            Err(error) => {
                cell.kill();
                Err(error)
            }
        }
    }

    fn fork_zygote(
        &self,
        cell: &Cell,
        spawn: &Spawn,
        parts: &SpawnDescriptors,
    ) -> Result<(libc::pid_t, Applied), StepError> {
        let zygote = self
            .zygote
            .as_ref()
            .ok_or_else(|| std::io::Error::from_raw_os_error(libc::EAGAIN))
            .step("find a warm zygote")?;
        zygote.fork(cell, &spawn.confinement, &parts.standard, &parts.groups)
    }

    fn spawn_supervised(
        &self,
        spawn: &Spawn,
        parts: SpawnDescriptors,
    ) -> Result<(Running, Applied), StepError> {
        let Guest::Exec(program) = &spawn.guest else {
            return Err(std::io::Error::from_raw_os_error(libc::ENOTSUP))
                .step("fork a zygote without namespaces");
        };
        let start = Start {
            program,
            confinement: &spawn.confinement,
            descriptors: parts.standard,
            groups: &parts.groups,
        };
        let (supervisor, applied) = flat::start(spawn.id, self.engine, start)?;
        Ok((Running::Supervised { supervisor }, applied))
    }

    fn reap_ended(&mut self) {
        sys::take_signals(self.signals.as_fd());
        while let Ok(Some(ended)) = sys::reap(sys::Wait::Poll) {
            if self.zygote.as_ref().is_some_and(|zygote| zygote.pid == ended.pid) {
                self.zygote = None;
                send(self.engine, &Event::ZygoteGone, &[]);
                continue;
            }
            self.note_end(&ended);
        }
    }

    fn note_end(&mut self, ended: &sys::Reaped) {
        let Some((&id, running)) = self
            .running
            .iter_mut()
            .find(|(_, running)| running.owns(ended.pid))
        else {
            return;
        };
        let gone = match running {
            Running::Supervised { .. } => true,
            Running::InCell { cell, guest, left } => {
                if *guest == ended.pid {
                    let (cpu_micros, max_rss) = (ended.cpu_micros, ended.max_rss);
                    send(
                        self.engine,
                        &Event::Exited {
                            id,
                            status: ended.status,
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
                    (Left::Init | Left::Guest, _) => {}
                }
                (*left == Left::Init && cell.init == ended.pid)
                    || (*left == Left::Guest && *guest == ended.pid)
            }
        };
        if gone {
            if matches!(running, Running::Supervised { .. }) {
                self.running.remove(&id);
                self.kill_strays();
            } else {
                self.running.remove(&id);
            }
            send(self.engine, &Event::Gone { id }, &[]);
        }
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
    fn owns(&self, pid: libc::pid_t) -> bool {
        match self {
            Self::InCell { cell, guest, left } => match left {
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

fn failure(id: u64, error: &StepError) -> Event {
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
