//! A cell: namespaces with nothing in them but a first process that reaps, and writable places of its own.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::protocol::GUEST_ID;
use crate::steps::{SetupReport, Step, StepError, join_control_groups};
use crate::{sys, template};

/// Namespaces that every cell has. The cgroup namespace is made by the cell's init, once it is in its groups.
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// clone3 takes it; libc does not name it.
const CLONE_NEWTIME: libc::c_int = 0x80;

/// Names below `/cell` and where they are seen.
const WRITABLE: &[(&CStr, &CStr)] = &[
    (c"tmp", c"/tmp"),
    (c"workspace", c"/workspace"),
    (c"output", c"/output"),
    (c"shm", c"/dev/shm"),
];

/// The same places, as paths.
pub(crate) const WRITABLE_PLACES: &[&str] = &["/tmp", "/workspace", "/output", "/dev/shm"];

/// What a cell is made from.
#[derive(Debug)]
pub(crate) struct CellSpec<'a> {
    /// The id in our user namespace that stands for the guest.
    pub(crate) outer_id: u32,
    /// Mounts of the template to be put on top of the cell's own.
    pub(crate) inner_mounts: &'a [CString],
    /// Bytes in the writable places together.
    pub(crate) disk_bytes: u64,
    /// The program's text and the file name it gets below `/code`.
    pub(crate) code: Option<(&'a str, &'a OwnedFd)>,
    /// Control groups to join.
    pub(crate) groups: &'a [OwnedFd],
    /// Whether the kernel has time namespaces.
    pub(crate) time_namespace: bool,
}

/// A cell that stands.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Its first process, in our pid namespace.
    pub(crate) init: libc::pid_t,
    /// A handle on it, and thereby on its namespaces.
    pub(crate) pidfd: OwnedFd,
    /// Its output directory.
    pub(crate) output: OwnedFd,
    /// Whether it has a time namespace of its own.
    pub(crate) time_namespace: bool,
}

impl Cell {
    /// The namespaces of the cell that a process joins by itself; the pid namespace counts for its children.
    fn joined(&self) -> libc::c_int {
        joined_namespaces(self.time_namespace)
    }

    /// Makes a child of the caller that lives in the cell's pid namespace but in none of the others yet.
    pub(crate) fn fork_into(&self, own: BorrowedFd<'_>) -> Result<sys::Fork, StepError> {
        sys::setns(self.pidfd.as_fd(), libc::CLONE_NEWPID).step("join the cell's pid namespace")?;
        let fork = sys::clone3(0, sys::Parentage::Own);
        if !matches!(fork, Ok(sys::Fork::Child)) {
            // Our own again: new namespaces can be made only below the one we live in.
            sys::setns(own, libc::CLONE_NEWPID).step("leave the cell's pid namespace")?;
        }
        fork.step("fork a guest")
    }

    /// Joins the cell's other namespaces.
    pub(crate) fn join(&self) -> Result<(), StepError> {
        sys::setns(self.pidfd.as_fd(), self.joined()).step("join the cell's namespaces")
    }

    /// Kills everything in the cell. What is left to do is to reap.
    pub(crate) fn kill(&self) {
        // It can fail only if the cell's first process is dead, and everything with it.
        let _ = sys::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

/// The namespaces that a process joins by itself.
pub(crate) fn joined_namespaces(time_namespace: bool) -> libc::c_int {
    let time = if time_namespace { CLONE_NEWTIME } else { 0 };
    (NAMESPACES & !libc::CLONE_NEWPID) | libc::CLONE_NEWCGROUP | time
}

/// A cell whose first process is setting it up.
#[derive(Debug)]
pub(crate) struct Founding {
    init: libc::pid_t,
    pidfd: OwnedFd,
    /// Readable once the cell stands, or cannot.
    socket: OwnedFd,
    time_namespace: bool,
}

/// Begins to make a cell.
pub(crate) fn found(spec: &CellSpec<'_>) -> Result<Founding, StepError> {
    const STEP: &str = "make a cell";
    let (socket, theirs) = sys::seqpacket_pair().step(STEP)?;
    let (fork, time_namespace) = clone_init(spec.time_namespace)?;
    match fork {
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

/// Maps the ids of a cell and lets its first process go on.
fn release(spec: &CellSpec<'_>, init: libc::pid_t, socket: &OwnedFd) -> Result<(), StepError> {
    let map = format!("{GUEST_ID} {} 1\n", spec.outer_id);
    template::write_id_maps(init, &map, &map).step("map the ids of a cell")?;
    sys::send_message(socket.as_fd(), b"go", &[]).step("start a cell")
}

impl Founding {
    /// Takes the message that the cell stands, or why it does not. Waits for it if need be.
    pub(crate) fn finish(self) -> Result<Cell, StepError> {
        let output = self.receive_output().inspect_err(|_| self.kill())?;
        let Self {
            init,
            pidfd,
            time_namespace,
            ..
        } = self;
        Ok(Cell {
            init,
            pidfd,
            output,
            time_namespace,
        })
    }

    fn receive_output(&self) -> Result<OwnedFd, StepError> {
        const STEP: &str = "await a cell";
        let mut buffer = [0; 512];
        let (length, fds) = sys::receive_message(self.socket.as_fd(), &mut buffer).step(STEP)?;
        match serde_json::from_slice(&buffer[..length]) {
            Ok(Ok::<String, _>(_)) => fds.into_iter().next().ok_or_else(died).step(STEP),
            Ok(Err((step, errno))) => Err(remote_error(step, errno)),
            Err(_) => Err(died()).step(STEP),
        }
    }

    /// The cell's first process.
    pub(crate) fn init(&self) -> libc::pid_t {
        self.init
    }

    /// Kills what there is of the cell.
    pub(crate) fn kill(&self) {
        // It can fail only if the first process is dead, and everything with it.
        let _ = sys::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

impl AsFd for Founding {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Kernels before 5.6 have no time namespaces, and some are built without.
fn clone_init(time_namespace: bool) -> Result<(sys::Fork, bool), StepError> {
    const STEP: &str = "make the namespaces of a cell";
    if time_namespace {
        match sys::clone3((NAMESPACES | CLONE_NEWTIME) as u64, sys::Parentage::Own) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            fork => return Ok((fork.step(STEP)?, true)),
        }
    }
    Ok((
        sys::clone3(NAMESPACES as u64, sys::Parentage::Own).step(STEP)?,
        false,
    ))
}

fn died() -> io::Error {
    io::Error::from_raw_os_error(libc::ECHILD)
}

/// A process that should have reported ended without a word.
pub(crate) fn silence() -> StepError {
    StepError {
        step: "set a guest up",
        source: died(),
    }
}

/// An error that another process reported. Steps are literals in this very binary, so the few that are
/// leaked here are bounded by the number of failures, each of which ends a launcher or a run.
pub(crate) fn remote_error(step: String, errno: i32) -> StepError {
    StepError {
        step: Box::leak(step.into_boxed_str()),
        source: io::Error::from_raw_os_error(errno),
    }
}

/// The cell's first process.
fn run_init(spec: &CellSpec<'_>, socket: OwnedFd) -> ! {
    let outcome = set_up(spec, &socket);
    let (message, handles): (Result<&str, (&str, i32)>, Vec<OwnedFd>) = match outcome {
        Ok(output) => (Ok("ready"), vec![output]),
        Err(error) => (Err((error.step, error.errno())), Vec::new()),
    };
    let failed = message.is_err();
    let bytes = serde_json::to_vec(&message).unwrap_or_default();
    let borrowed: Vec<BorrowedFd<'_>> = handles.iter().map(AsFd::as_fd).collect();
    if sys::send_message(socket.as_fd(), &bytes, &borrowed).is_err() || failed || sys::close_from(0).is_err()
    {
        sys::exit_now(1);
    }
    reap_for_ever()
}

/// Orphans of the guest end up here. Init ends only by being killed, and takes the cell with it.
fn reap_for_ever() -> ! {
    loop {
        if sys::reap(sys::Wait::Block).is_err() {
            sys::wait_for_signal();
        }
    }
}

fn set_up(spec: &CellSpec<'_>, socket: &OwnedFd) -> Result<OwnedFd, StepError> {
    sys::die_with_parent().step("tie a cell to its launcher")?;
    let mut go = [0; 2];
    sys::receive_message(socket.as_fd(), &mut go).step("await the id map")?;
    join_control_groups(spec.groups)?;
    sys::unshare(libc::CLONE_NEWCGROUP).step("make a cgroup namespace")?;
    sys::block_child_signal().step("block the child signal")?;
    sys::set_ids(GUEST_ID, GUEST_ID).step("take the guest's user id")?;
    sys::set_dumpable().step("let the launcher open the cell's namespaces")?;
    // The change of ids has undone it.
    sys::die_with_parent().step("tie a cell to its launcher")?;
    sys::sethostname("sandbox").step("set the host name")?;
    let inner = open_inner_mounts(spec)?;
    mount_writable(spec)?;
    attach_inner_mounts(&inner)?;
    mount_proc()?;
    let output = sys::open_directory(c"/output").step("open the output directory")?;
    sys::set_no_new_privs().step("set no_new_privs")?;
    sys::drop_capabilities().step("drop all capabilities")?;
    Ok(output)
}

/// One size-limited file system in memory, seen at several places.
fn mount_writable(spec: &CellSpec<'_>) -> Result<(), StepError> {
    const STEP: &str = "mount the writable directories";
    let inodes = (spec.disk_bytes / 4096).clamp(64, 65_536);
    let size = CString::new(spec.disk_bytes.to_string())
        .map_err(io::Error::other)
        .step(STEP)?;
    let inodes = CString::new(inodes.to_string())
        .map_err(io::Error::other)
        .step(STEP)?;
    let options: &[(&CStr, &CStr)] = &[(c"mode", c"0755"), (c"size", &size), (c"nr_inodes", &inodes)];
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    let root = sys::new_filesystem(c"tmpfs", options, attributes).step(STEP)?;
    sys::move_mount(root.as_fd(), c"/cell").step(STEP)?;
    for (name, target) in WRITABLE {
        bind_below(&root, name, target).step(STEP)?;
    }
    if let Some((name, text)) = spec.code {
        bind_below(&root, c"code", c"/code").step("mount the code directory")?;
        write_code(name, text).step("write the program's text")?;
    }
    // It stays mounted at `/cell` too, where no rule lets the guest in: unmounting waits for all processors.
    Ok(())
}

/// Copies of the mounts that the writable places are about to hide.
fn open_inner_mounts<'a>(spec: &CellSpec<'a>) -> Result<Vec<(&'a CString, OwnedFd)>, StepError> {
    let open = |path: &'a CString| Ok((path, sys::open_tree(path)?));
    spec.inner_mounts
        .iter()
        .map(open)
        .collect::<io::Result<_>>()
        .step("copy a mount in a writable place")
}

fn attach_inner_mounts(mounts: &[(&CString, OwnedFd)]) -> Result<(), StepError> {
    const STEP: &str = "attach a mount in a writable place";
    for (path, mount) in mounts {
        template::make_mount_point(&template::os_path(path), mount).step(STEP)?;
        sys::move_mount(mount.as_fd(), path).step(STEP)?;
    }
    Ok(())
}

fn bind_below(root: &OwnedFd, name: &CStr, target: &CStr) -> io::Result<()> {
    sys::mkdir_at(root.as_fd(), name, 0o755)?;
    sys::move_mount(sys::open_tree_below(root.as_fd(), name)?.as_fd(), target)
}

fn write_code(name: &str, text: &OwnedFd) -> io::Result<()> {
    let mut source = std::fs::File::from(text.try_clone()?);
    let mut target = std::fs::File::create_new(std::path::Path::new("/code").join(name))?;
    io::copy(&mut source, &mut target).map(drop)
}

fn mount_proc() -> Result<(), StepError> {
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
    let proc = sys::new_filesystem(c"proc", &[(c"hidepid", c"2")], attributes).step("make a /proc")?;
    sys::move_mount(proc.as_fd(), c"/proc").step("mount /proc")
}

/// What a status pipe said of a guest's set-up, as a result.
pub(crate) fn setup_result(report: Option<SetupReport>) -> Result<crate::protocol::Applied, StepError> {
    match report {
        Some(Ok(applied)) => Ok(applied),
        Some(Err((step, errno))) => Err(remote_error(step, errno)),
        None => Err(silence()),
    }
}
