//! Start-up of a launcher: a single-threaded process between the server and the guests.
//!
//! It is the init of an outer pid namespace, so that the kernel kills everything below it when it exits, and
//! it exits when the server's end of its socket closes.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::events::send;
use crate::protocol::{GUEST_ID, LauncherSpec, MAX_MESSAGE, Template};
use crate::serve::{CellGround, GuestIds, Launcher, failure};
use crate::step_error::{Step, StepError};
use crate::writable_root::CellRoot;
use crate::{attach, id_map, places, seccomp, shares, steps, sys, template, trials};

/// Serves as a launcher; standard input is the server's socket.
pub(crate) fn launcher_main() -> ! {
    serve_on(take_socket(std::io::stdin().as_fd()), Entry::Anew)
}

/// The origin of a launcher process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The program was executed, so that its `main` ran first.
    Anew,
    /// Forked from a process that guarantees to have one thread.
    Copied,
}

/// Fails if another thread runs already: namespaces and forks are for single-threaded processes, and the
/// kernel's error would look like that of a machine without them.
fn only_thread() -> Result<(), StepError> {
    const STEP: &str = "be the program's only thread (call `init()` before any other starts)";
    let threads = std::fs::read_dir("/proc/self/task").step(STEP)?.count();
    if threads == 1 {
        return Ok(());
    }
    Err(std::io::Error::from_raw_os_error(libc::EBUSY)).step(STEP)
}

/// Turns a fork of a process that has only just started into a launcher. Its arguments must not be found in
/// the init processes of cells, which are copies of the launcher.
pub(crate) fn become_launcher(socket: OwnedFd, arguments: &mut [OsString]) -> ! {
    for argument in arguments {
        sys::blank(&mut std::mem::take(argument).into_encoded_bytes());
    }
    let alone = sys::blank_start()
        .and_then(|()| sys::unblock_signals())
        .and_then(|()| sys::replace_by_null(std::io::stdout().as_fd()))
        .and_then(|()| take_socket(socket.as_fd()));
    drop(socket);
    serve_on(alone, Entry::Copied)
}

fn serve_on(socket: std::io::Result<OwnedFd>, entry: Entry) -> ! {
    let status = match socket {
        Ok(socket) => match run(&socket, entry) {
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

/// Moves the socket to a number outside the range of guests' file descriptors.
fn take_socket(socket: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let socket = sys::dup_above(socket, 16)?;
    sys::replace_by_null(std::io::stdin().as_fd())?;
    Ok(socket)
}

fn run(socket: &OwnedFd, entry: Entry) -> Result<(), StepError> {
    const STEP: &str = "receive the specification";
    seccomp::read_ahead();
    let mut buffer = vec![0; MAX_MESSAGE];
    let (length, _) = sys::receive_message(socket.as_fd(), &mut buffer).step(STEP)?;
    let spec: LauncherSpec = serde_json::from_slice(&buffer[..length])
        .map_err(std::io::Error::other)
        .step(STEP)?;
    if entry == Entry::Anew {
        only_thread()?;
    }
    match spec {
        LauncherSpec::Namespaced(template) => enter_namespaces(socket, &template),
        LauncherSpec::Flat => {
            sys::become_subreaper().step("become a subreaper")?;
            Launcher::new(socket, None)?.serve()
        }
        LauncherSpec::Probe => trials::answer(socket),
    }
}

/// Builds the template and continues as the init of new namespaces. The caller stays behind as the parent
/// that the host sees, and exits with it.
fn enter_namespaces(socket: &OwnedFd, template: &Template) -> Result<(), StepError> {
    steps::replace_umask();
    shares::leave_reserve()?;
    shares::raise_open_files().step("raise the limit on open files")?;
    if template.host_ids.is_none() {
        id_map::become_root_of_own_namespace()?;
    }
    template::build(template)?;
    // No network namespace: no code here uses a network, each cell gets its own, and creating one is the
    // slowest part of creating a cell.
    let mut namespaces = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
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
                id_map::write_id_maps(pid, &map, &map).step("map the outer ids")?;
            }
            drop((released, release));
            sys::replace_by_null(socket.as_fd()).step("leave the socket to the launcher")?;
            sys::reap(sys::Wait::Block).step("await the launcher")?;
            sys::exit_now(0)
        }
    }
}

fn serve_cells(socket: &OwnedFd, template: &Template) -> Result<(), StepError> {
    // Before the ids change: the host's root owns the switch.
    forbid_executable_memory_files();
    if template.host_ids.is_some() {
        sys::drop_groups().step("leave the host's groups")?;
        sys::set_ids(0, 0).step("become root of the outer namespace")?;
        sys::set_dumpable().step("let /proc entries belong to us")?;
        // The change of ids has cleared it.
        sys::die_with_parent().step("tie the launcher to its parent")?;
    }
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    let proc = sys::new_filesystem(c"proc", &[], attributes).step("make the outer /proc")?;
    sys::move_mount(proc.as_fd(), c"/proc").step("mount the outer /proc")?;
    match template.writable_root {
        Some(_) => shares::bound_users()?,
        None => shares::bound_launcher()?,
    }
    Launcher::new(
        socket,
        Some(CellGround {
            ids: guest_ids(template),
            inner_mounts: inner_mounts(template),
            root: CellRoot::of(template)?,
        }),
    )?
    .serve()
}

/// Returns the outer ids of guests. Some kernel counters are per user, across namespaces, so each guest is
/// another user if ids are available; files mounted as the guest's own belong to one of them.
fn guest_ids(template: &Template) -> GuestIds {
    match template.host_ids {
        Some(ids)
            if template.writable_root.is_none() && !template.binds.iter().any(|bind| bind.guest_owns) =>
        {
            GuestIds::new(GUEST_ID..ids.count)
        }
        Some(_) => GuestIds::new(GUEST_ID..GUEST_ID + 1),
        None => GuestIds::new(0..1),
    }
}

/// Forbids executing files in memory in this pid namespace and below (Linux 6.3). On older kernels the filter
/// still rejects execveat, and whatever is executed stays inside the same fence.
fn forbid_executable_memory_files() {
    let _ = std::fs::write("/proc/sys/vm/memfd_noexec", "1");
}

/// Returns template mounts that lie where cells mount their own file systems, and must be stacked on them.
///
/// Mounts within others are included in these. Their paths would be resolved among files that guests may
/// change.
fn inner_mounts(template: &Template) -> Vec<CString> {
    let guests = || template.binds.iter().map(|bind| &bind.guest);
    let hidden = |guest: &Path| places::WRITABLE_DIRS.iter().any(|place| guest.starts_with(place));
    let alone = |guest: &Path| !guests().any(|other| guest != other && guest.starts_with(other));
    let inner = guests().filter(|guest| hidden(guest) && alone(guest));
    inner.filter_map(|guest| attach::c_path(guest).ok()).collect()
}
