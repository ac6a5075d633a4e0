//! The zygote: a warm interpreter that forks guests into cells.
//!
//! The launcher executes the interpreter in the template; its start-up script loads this very crate as an
//! extension library and calls its exported symbol, which returns only in the guests that it forks.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, joined_namespaces};
use crate::guest::{self, Starting};
use crate::protocol::{Confinement, MAX_MESSAGE, Program};
use crate::step_error::{Step, StepError};
use crate::steps::{GuestDescriptors, SESSION_FD, STATUS_FD, confine, join_control_groups, prepare, report};
use crate::{attach, cell_setup, places, sys};

/// Number of the extension library's file descriptor in a new zygote.
const LIBRARY_FD: i32 = 3;
/// Number of the launcher's socket in a new zygote.
const SOCKET_FD: i32 = 4;

/// The launcher's request for a fork. File descriptors: the cell's init, stdin, stdout, stderr, control,
/// status, `session` if there is one, cgroups.
#[derive(Debug, Serialize, Deserialize)]
struct ForkRequest {
    confinement: Confinement,
    time_namespace: bool,
    session: bool,
    hidden: Vec<PathBuf>,
}

/// Parameters of a guest requested from the zygote.
#[derive(Debug)]
pub(crate) struct GuestRequest<'a> {
    pub(crate) confinement: &'a Confinement,
    /// File descriptors of stdin, stdout, stderr and control.
    pub(crate) descriptors: &'a [OwnedFd; 4],
    /// Socket for fork requests, if it is a session.
    pub(crate) session: Option<&'a OwnedFd>,
    /// Directories that are empty for it.
    pub(crate) hides: &'a [PathBuf],
    /// Cgroups to join.
    pub(crate) groups: &'a [OwnedFd],
}

/// The launcher's handle on a zygote.
#[derive(Debug)]
pub(crate) struct Zygote {
    /// Process id of the interpreter.
    pub(crate) pid: libc::pid_t,
    /// The socket to it. It sends reports unasked until it has warmed up.
    pub(crate) socket: OwnedFd,
}

/// A message of a zygote that is not warm yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ZygoteMessage {
    /// The zygote has warmed up.
    Ready,
    /// The zygote reports progress.
    Report(String),
    /// The zygote has closed its socket.
    Gone,
}

/// The message of a zygote that has warmed up.
const READY: &[u8] = b"ready";
/// Maximum length of a report.
const MAX_REPORT: usize = 1024;
/// Size of a zygote's temporary directory.
const SCRATCH_BYTES: &CStr = c"16777216";

impl Zygote {
    /// Starts the interpreter, with the script as the first message on its socket.
    pub(crate) fn start(
        program: &Program,
        script: Option<&str>,
        library: OwnedFd,
        inner_mounts: &[CString],
    ) -> Result<Self, StepError> {
        let (socket, theirs) = sys::seqpacket_pair().step("make the zygote's socket")?;
        if let Some(script) = script {
            sys::send_message(socket.as_fd(), script.as_bytes(), &[])
                .step("hand over the zygote's script")?;
        }
        match sys::clone3(0, sys::Parentage::Own).step("fork the zygote")? {
            sys::Fork::Child => {
                drop(socket);
                become_interpreter(program, library, theirs, inner_mounts)
            }
            sys::Fork::Parent { pid, .. } => Ok(Self { pid, socket }),
        }
    }

    /// Receives a message of a zygote that is not warm yet.
    pub(crate) fn receive(&self) -> ZygoteMessage {
        let mut buffer = [0; MAX_REPORT];
        match sys::receive_message(self.socket.as_fd(), &mut buffer) {
            Ok((0, _)) | Err(_) => ZygoteMessage::Gone,
            Ok((length, _)) if &buffer[..length] == READY => ZygoteMessage::Ready,
            Ok((length, _)) => ZygoteMessage::Report(String::from_utf8_lossy(&buffer[..length]).into_owned()),
        }
    }

    /// Requests a guest in a cell. The guest will be a child of the caller; [`Zygote::receive_pid`] returns
    /// its pid, in the order of the requests.
    pub(crate) fn ask(&self, cell: &Cell, order: &GuestRequest<'_>) -> Result<Starting, StepError> {
        const STEP: &str = "ask the zygote for a guest";
        let (reports, status) = sys::pipe().step("make a status pipe")?;
        let request = ForkRequest {
            confinement: order.confinement.clone(),
            time_namespace: cell.time_namespace,
            session: order.session.is_some(),
            hidden: order.hides.to_vec(),
        };
        let bytes = serde_json::to_vec(&request)
            .map_err(std::io::Error::other)
            .step(STEP)?;
        let mut fds: Vec<BorrowedFd<'_>> = vec![cell.pidfd.as_fd()];
        let all = order.descriptors.iter().chain([&status]).chain(order.session);
        fds.extend(all.chain(order.groups).map(AsFd::as_fd));
        sys::send_message(self.socket.as_fd(), &bytes, &fds).step(STEP)?;
        Ok(Starting { guest: None, reports })
    }

    /// Receives the pid of the next forked guest. Blocks if necessary.
    pub(crate) fn receive_pid(&self) -> Result<libc::pid_t, StepError> {
        const STEP: &str = "fork a guest from the zygote";
        let mut reply = [0; 16];
        let (length, _) = sys::receive_message(self.socket.as_fd(), &mut reply).step(STEP)?;
        let number = i32::from_le_bytes(reply[..4].try_into().unwrap_or_default());
        match (length, number) {
            (4, 1..) => Ok(number),
            (4, ..=0) => Err(std::io::Error::from_raw_os_error(-number)).step(STEP),
            _ => Err(std::io::Error::from_raw_os_error(libc::ECHILD)).step(STEP),
        }
    }
}

fn become_interpreter(program: &Program, library: OwnedFd, socket: OwnedFd, inner_mounts: &[CString]) -> ! {
    const STEP: &str = "arrange a zygote";
    let arrange = || -> Result<(), StepError> {
        arrange_descriptors(&library, &socket).step(STEP)?;
        // The launcher has the host's network, and the interpreter may import anybody's package.
        sys::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS).step(STEP)?;
        give_scratch(inner_mounts)?;
        sys::reset_signals().step(STEP)
    };
    if arrange().is_ok() {
        guest::execute(program);
    }
    sys::exit_now(127)
}

/// Moves the file descriptors to their numbers. They are closed with all others: the owners must not drop
/// them afterwards.
fn arrange_descriptors(library: &OwnedFd, socket: &OwnedFd) -> std::io::Result<()> {
    let library = sys::dup_above(library.as_fd(), 32)?;
    let socket = sys::dup_above(socket.as_fd(), 32)?;
    // Pipes, like a guest's: the interpreter's stream objects remember the type of their file.
    let (read, write) = sys::pipe()?;
    for (number, end) in [(0, &read), (1, &write), (2, &write)] {
        sys::dup2(end.as_fd(), number)?;
    }
    sys::dup2(library.as_fd(), LIBRARY_FD)?;
    sys::dup2(socket.as_fd(), SOCKET_FD)?;
    sys::close_from(SOCKET_FD + 1)?;
    std::mem::forget((library, socket, read, write));
    Ok(())
}

/// Mounts a temporary directory for this interpreter alone: many packages write one when they are imported.
/// Its forks have their cells' own.
fn give_scratch(inner_mounts: &[CString]) -> Result<(), StepError> {
    const STEP: &str = "mount a zygote's temporary directory";
    sys::make_mounts_private().step(STEP)?;
    // The interpreter's own packages may lie there.
    let below = inner_mounts
        .iter()
        .filter(|path| path.to_bytes().starts_with(b"/tmp/"));
    let hidden = cell_setup::open_inner_mounts(below)?;
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    let options = [(c"mode", c"0700"), (c"size", SCRATCH_BYTES)];
    let scratch = sys::new_filesystem(c"tmpfs", &options, attributes).step(STEP)?;
    sys::move_mount(scratch.as_fd(), c"/tmp").step(STEP)?;
    cell_setup::attach_inner_mounts(&hidden)
}

/// Implements the library's exported symbol; see `sys::export`.
pub(crate) fn serve() -> i32 {
    let (Some(hooks), Ok(socket)) = (sys::ForkHooks::find(), sys::inherited(SOCKET_FD)) else {
        return -2;
    };
    // The library is mapped; its file descriptor is no longer needed.
    drop(sys::inherited(LIBRARY_FD));
    if sys::send_message(socket.as_fd(), READY, &[]).is_err() {
        return -1;
    }
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        let Ok((length, fds)) = sys::receive_message(socket.as_fd(), &mut buffer) else {
            return -1;
        };
        if length == 0 {
            return -1;
        }
        let Ok(request) = serde_json::from_slice::<ForkRequest>(&buffer[..length]) else {
            return -1;
        };
        let answer = match fork_guest(hooks, fds, &request) {
            Ok(Forked::Guest(control)) => {
                // The guest's set-up has closed this number already.
                std::mem::forget(socket);
                return control;
            }
            Ok(Forked::Zygote(pid)) => pid,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        };
        if sys::send_message(socket.as_fd(), &answer.to_le_bytes(), &[]).is_err() {
            return -1;
        }
    }
}

enum Forked {
    Zygote(libc::pid_t),
    Guest(i32),
}

fn fork_guest(hooks: sys::ForkHooks, fds: Vec<OwnedFd>, request: &ForkRequest) -> std::io::Result<Forked> {
    let mut fds = fds.into_iter();
    let mut next = || {
        fds.next()
            .ok_or_else(|| std::io::Error::from_raw_os_error(libc::EBADF))
    };
    let init = next()?;
    let descriptors = GuestDescriptors {
        standard: [next()?, next()?, next()?],
        control: next()?,
        status: next()?,
        session: if request.session { Some(next()?) } else { None },
    };
    let groups: Vec<OwnedFd> = fds.collect();
    prepare(&request.confinement);
    sys::setns(init.as_fd(), libc::CLONE_NEWPID)?;
    hooks.before();
    match sys::clone3(0, sys::Parentage::Sibling) {
        Ok(sys::Fork::Child) => {
            hooks.after_in_child();
            let joined = join_control_groups(&groups)
                .and_then(|()| {
                    sys::setns(init.as_fd(), joined_namespaces(request.time_namespace))
                        .step("join the cell's namespaces")
                })
                .and_then(|()| hide(&request.hidden));
            drop((init, groups));
            Ok(Forked::Guest(become_guest(descriptors, request, joined)))
        }
        parent => {
            hooks.after_in_parent();
            match parent? {
                sys::Fork::Parent { pid, .. } => Ok(Forked::Zygote(pid)),
                sys::Fork::Child => Err(std::io::Error::from_raw_os_error(libc::EIO)),
            }
        }
    }
}

/// Covers directories by an empty one, in a mount namespace of the caller's own.
fn hide(directories: &[PathBuf]) -> Result<(), StepError> {
    const STEP: &str = "hide directories from a guest";
    if directories.is_empty() {
        return Ok(());
    }
    sys::unshare(libc::CLONE_NEWNS).step(STEP)?;
    for directory in directories {
        let empty = sys::open_tree(places::EMPTY).step(STEP)?;
        let target = attach::c_path(directory).step(STEP)?;
        sys::move_mount(empty.as_fd(), &target).step(STEP)?;
    }
    Ok(())
}

/// Runs the forked guest: confines itself and returns to the interpreter.
fn become_guest(descriptors: GuestDescriptors, request: &ForkRequest, joined: Result<(), StepError>) -> i32 {
    let last = if request.session { SESSION_FD } else { STATUS_FD };
    let arranged = joined
        .and_then(|()| sys::setsid().step("start a session"))
        .and_then(|()| descriptors.arrange());
    let Ok(status) = arranged else { sys::exit_now(127) };
    let confined = confine(&request.confinement, last);
    report(status.as_fd(), &confined);
    if confined.is_err() {
        sys::exit_now(127);
    }
    3
}
