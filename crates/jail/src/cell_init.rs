//! The init of a cell: sets it up, then reaps; the init of a session's cell also creates the nested cells of its forks.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::boot_id::BootId;
use crate::cell::{Cell, CellSpec, Home, SandboxInit, SetupMessage, Tenant, clone_init, receive_handles};
use crate::cell_setup::{CellSetup, InitMounts, set_up};
use crate::nest::Request;
use crate::protocol::Confinement;
use crate::step_error::{Step, StepError, died};
use crate::steps::confine;
use crate::{clock, id_map, init, sys};

/// Deadline for clearing a cell, after which the whole cell ends.
const CLEARING: Duration = Duration::from_secs(2);

/// A cell that its init is setting up.
#[derive(Debug)]
pub(crate) struct Founding {
    init: libc::pid_t,
    pidfd: OwnedFd,
    /// Readable once set-up has succeeded or failed.
    socket: OwnedFd,
    time_namespace: bool,
    nests: bool,
}

/// Starts to create a cell.
pub(crate) fn found(spec: &CellSpec<'_>) -> Result<Founding, StepError> {
    const STEP: &str = "make a cell";
    let (socket, theirs) = sys::seqpacket_pair().step(STEP)?;
    let time_namespace = spec.time_namespace && clock::start_anew().step(STEP)?;
    match clone_init(false)? {
        sys::Fork::Child => {
            drop(socket);
            run_init(spec, theirs)
        }
        sys::Fork::Parent { pid, pidfd } => {
            drop(theirs);
            let founding = Founding {
                init: pid,
                pidfd,
                socket,
                time_namespace,
                nests: matches!(spec.tenant, Tenant::Session),
            };
            match release(spec, pid, &founding.socket) {
                Ok(()) => Ok(founding),
                Err(error) => {
                    founding.kill();
                    Err(error)
                }
            }
        }
    }
}

/// Writes the id maps of a cell and lets its init continue.
fn release(spec: &CellSpec<'_>, init: libc::pid_t, socket: &OwnedFd) -> Result<(), StepError> {
    let map = spec.id_map();
    id_map::write_id_maps(init, &map, &map).step("map the ids of a cell")?;
    sys::send_message(socket.as_fd(), b"go", &[]).step("start a cell")
}

impl Founding {
    /// Receives the outcome of the set-up. Blocks if necessary.
    pub(crate) fn finish(self) -> Result<Cell, StepError> {
        let received = receive_handles(&self.socket).and_then(|(applied, fds)| {
            let mut fds = fds.into_iter();
            let output = fds.next().ok_or_else(died).step("await a cell")?;
            Ok((applied, output, fds.next()))
        });
        let (applied, output, listener) = received.inspect_err(|_| self.kill())?;
        Ok(Cell {
            init: Some(self.init),
            pidfd: self.pidfd,
            output,
            listener,
            time_namespace: self.time_namespace,
            nest: self.nests.then_some(self.socket),
            namespaces: Vec::new(),
            applied,
        })
    }

    /// Returns the process id of the cell's init.
    pub(crate) fn init(&self) -> libc::pid_t {
        self.init
    }

    /// Kills the unfinished cell.
    pub(crate) fn kill(&self) {
        // Fails only if the init is dead, and everything with it.
        let _ = sys::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

impl AsFd for Founding {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn run_init(spec: &CellSpec<'_>, socket: OwnedFd) -> ! {
    let outcome = set_up(spec, &socket);
    if let (Ok(cell), Tenant::Sandbox(sandbox)) = (&outcome, spec.tenant) {
        serve_sandbox(spec, sandbox, &socket, cell)
    }
    let told = match &outcome {
        Ok(stands) => tell(socket.as_fd(), &Ok(None), &stands.handles),
        Err(error) => tell(socket.as_fd(), &failed(error), &[]),
    };
    let mounts = outcome.map(|stands| stands.mounts);
    match mounts {
        Ok(InitMounts { home: Some(home), .. }) if told => serve(spec, &socket, &home),
        Ok(InitMounts { home: None, .. }) if told && sys::close_from(0).is_ok() => reap_for_ever(),
        _ => sys::exit_now(1),
    }
}

/// Sends the launcher the outcome of the set-up. `false` if the launcher has exited.
fn tell(socket: BorrowedFd<'_>, message: &SetupMessage, handles: &[OwnedFd]) -> bool {
    let bytes = serde_json::to_vec(message).unwrap_or_default();
    let handles: Vec<BorrowedFd<'_>> = handles.iter().map(AsFd::as_fd).collect();
    sys::send_message(socket, &bytes, &handles).is_ok()
}

fn failed(error: &StepError) -> SetupMessage {
    Err((error.step.to_owned(), error.errno()))
}

/// Runs a sandbox's init after set-up: confines itself, and starts programs at the server's request.
fn serve_sandbox(spec: &CellSpec<'_>, sandbox: &SandboxInit<'_>, socket: &OwnedFd, cell: &CellSetup) -> ! {
    let environment = sandbox.environment.to_vec();
    let guard = init::MemoryGuard::open().and_then(|guard| {
        if spec.root.is_some() {
            seal_proc().step("make /proc read-only")?;
        }
        let all = [guard.file().as_fd(), cell.boot_id.as_fd()]
            .into_iter()
            .chain(cell.mounts.changes.as_ref().map(AsFd::as_fd))
            .chain(cell.handles.iter().map(AsFd::as_fd));
        let kept = keep(&sandbox.standard, socket, all).step("keep the descriptors of a sandbox")?;
        std::mem::forget(guard);
        Ok(kept)
    });
    let Ok((socket, mut handles)) = guard else {
        sys::exit_now(1)
    };
    let last = socket.as_raw_fd() + handles.len() as i32;
    let guard = init::MemoryGuard::of(handles.remove(0).into());
    let boot_id = BootId::of(handles.remove(0));
    let changes = cell.mounts.changes.as_ref().map(|_| handles.remove(0));
    let confinement = reading(sandbox.confinement, changes.as_ref());
    let confined = guard.and_then(|guard| Ok((confine(&confinement, last)?, guard)));
    let told = match &confined {
        Ok((applied, _)) => tell(socket.as_fd(), &Ok(Some(*applied)), &handles),
        Err(error) => tell(socket.as_fd(), &failed(error), &[]),
    };
    drop((socket, handles));
    match confined {
        Ok((_, guard)) if told => init::serve_cell(environment, guard, boot_id, changes),
        _ => sys::exit_now(1),
    }
}

/// Adds a rule by which the init reads the changes of its root. Its programs have no descriptor or path that leads there.
fn reading<'a>(confinement: &'a Confinement, changes: Option<&OwnedFd>) -> Cow<'a, Confinement> {
    let mut confinement = Cow::Borrowed(confinement);
    if let Some(changes) = changes
        && let Some(rules) = &mut confinement.to_mut().landlock
    {
        let path = format!("/proc/self/fd/{}", changes.as_raw_fd());
        rules.readable.push(path.into());
    }
    confinement
}

/// Covers `/proc` by itself, read-only: Landlock lets the programs of a root of their own write everywhere, and root owns
/// the settings of its network.
fn seal_proc() -> io::Result<()> {
    let proc = sys::open_tree(c"/proc")?;
    let read_only = sys::MountAttributes {
        set: libc::MOUNT_ATTR_RDONLY,
        id_map: None,
    };
    sys::set_mount_attributes(proc.as_fd(), &read_only)?;
    sys::move_mount(proc.as_fd(), c"/proc")
}

/// Moves a sandbox's standard streams to their numbers, and the descriptors of its set-up behind them.
fn keep<'a>(
    standard: &[BorrowedFd<'a>; 3],
    socket: &'a OwnedFd,
    handles: impl Iterator<Item = BorrowedFd<'a>>,
) -> io::Result<(OwnedFd, Vec<OwnedFd>)> {
    let others = [socket.as_fd()].into_iter().chain(handles);
    let all: Vec<OwnedFd> = (standard.iter().copied().chain(others))
        .map(|fd| sys::dup_above(fd, 32))
        .collect::<io::Result<_>>()?;
    for (number, fd) in (0..).zip(&all) {
        sys::place(fd.as_fd(), number)?;
    }
    let handles = (4..all.len() as i32)
        .map(sys::inherited)
        .collect::<io::Result<_>>()?;
    Ok((sys::inherited(3)?, handles))
}

/// Reaps orphans of the guest. The init ends only by being killed, and takes the cell with it.
fn reap_for_ever() -> ! {
    loop {
        if sys::reap(sys::Wait::Block).is_err() {
            sys::wait_for_signal();
        }
    }
}

/// Runs a session's init after set-up: reaps, and handles requests of the launcher.
fn serve(spec: &CellSpec<'_>, socket: &OwnedFd, home: &Home) -> ! {
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
    match clone_init(spec.time_namespace) {
        Ok(sys::Fork::Child) => run_init(&spec, socket),
        Ok(sys::Fork::Parent { .. }) => {}
        Err(error) => {
            let step = match error.source.raw_os_error() {
                Some(libc::ENOSPC) => {
                    "nest a cell any deeper (forks of forks go as deep as the kernel's 32 namespaces)"
                }
                _ => error.step,
            };
            let message: SetupMessage = Err((step.to_owned(), error.errno()));
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
