//! Cells: fresh namespaces, an init that reaps, private writable directories.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::protocol::GUEST_ID;
use crate::steps::{SetupReport, Step, StepError, join_control_groups};
use crate::{clock, copy, nest, shares, sys, template};

/// Namespaces of every cell. The cell's init creates the cgroup namespace, once it has joined its cgroups.
const NAMESPACES: libc::c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// Directories below `/cell` and their mount points.
pub(crate) const PLACES: &[(&CStr, &CStr)] = &[
    (c"tmp", c"/tmp"),
    (c"workspace", c"/workspace"),
    (c"output", c"/output"),
    (c"shm", c"/dev/shm"),
];

/// The same mount points, as paths.
pub(crate) const WRITABLE_PLACES: &[&str] = &["/tmp", "/workspace", "/output", "/dev/shm"];

/// Specification of a cell.
#[derive(Debug)]
pub(crate) struct CellSpec<'a> {
    /// Id in the launcher's user namespace that the guest's id maps to.
    pub(crate) outer_id: u32,
    /// Template mounts to stack on the cell's own file systems.
    pub(crate) inner_mounts: &'a [CString],
    /// Total bytes in the writable directories.
    pub(crate) disk_bytes: u64,
    /// Source code, and its file name below `/code`.
    pub(crate) code: Option<(&'a str, &'a OwnedFd)>,
    /// Cgroups to join.
    pub(crate) groups: &'a [OwnedFd],
    /// Set to create a time namespace, if the kernel supports it.
    pub(crate) time_namespace: bool,
    /// Loopback port on which the server listens.
    pub(crate) listen: Option<u16>,
    /// Occupant of the cell.
    pub(crate) tenant: Tenant<'a>,
}

/// The occupant of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tenant<'a> {
    /// A guest that stays in this cell.
    Guest,
    /// A session, whose forks get cells nested in this one.
    Session,
    /// A fork of the session with this home. Also a session.
    Fork(&'a Home),
}

/// A cell that has been set up.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Process id of its init, if that is the launcher's child.
    pub(crate) init: Option<libc::pid_t>,
    /// Pidfd of its init, through which its namespaces can be joined.
    pub(crate) pidfd: OwnedFd,
    /// Its output directory.
    pub(crate) output: OwnedFd,
    /// The server's listening socket, until it is handed over.
    pub(crate) listener: Option<OwnedFd>,
    /// Set if it has its own time namespace.
    pub(crate) time_namespace: bool,
    /// Socket to its init, if that creates cells for forks.
    pub(crate) nest: Option<OwnedFd>,
    /// Handles of its namespaces, for a session's fork to join.
    pub(crate) namespaces: Vec<OwnedFd>,
}

impl Cell {
    /// Returns the namespaces that a process joins itself; joining the pid namespace affects only its
    /// children.
    fn joined(&self) -> libc::c_int {
        joined_namespaces(self.time_namespace)
    }

    /// Forks a child into the cell's pid namespace, but into none of the others yet.
    pub(crate) fn fork_into(&self, own: BorrowedFd<'_>) -> Result<sys::Fork, StepError> {
        sys::setns(self.pidfd.as_fd(), libc::CLONE_NEWPID).step("join the cell's pid namespace")?;
        let fork = sys::clone3(0, sys::Parentage::Own);
        if !matches!(fork, Ok(sys::Fork::Child)) {
            // Back to the own pid namespace: new namespaces can be created only below the current one.
            sys::setns(own, libc::CLONE_NEWPID).step("leave the cell's pid namespace")?;
        }
        fork.step("fork a guest")
    }

    /// Joins the cell's other namespaces.
    pub(crate) fn join(&self) -> Result<(), StepError> {
        sys::setns(self.pidfd.as_fd(), self.joined()).step("join the cell's namespaces")
    }

    /// Kills everything in the cell. The caller must still reap.
    pub(crate) fn kill(&self) {
        // Fails only if the cell's init is dead, and everything with it.
        let _ = sys::pidfd_send_signal(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

/// Returns the namespaces that a process joins itself.
pub(crate) fn joined_namespaces(time_namespace: bool) -> libc::c_int {
    let time = if time_namespace { clock::CLONE_NEWTIME } else { 0 };
    (NAMESPACES & !libc::CLONE_NEWPID) | libc::CLONE_NEWCGROUP | time
}

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
    match sys::clone3(NAMESPACES as u64, sys::Parentage::Own).step("make the namespaces of a cell")? {
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
    let map = format!("{GUEST_ID} {} 1\n", spec.outer_id);
    template::write_id_maps(init, &map, &map).step("map the ids of a cell")?;
    sys::send_message(socket.as_fd(), b"go", &[]).step("start a cell")
}

impl Founding {
    /// Receives the outcome of the set-up. Blocks if necessary.
    pub(crate) fn finish(self) -> Result<Cell, StepError> {
        let received = receive_handles(&self.socket).and_then(|fds| {
            let mut fds = fds.into_iter();
            let output = fds.next().ok_or_else(died).step("await a cell")?;
            Ok((output, fds.next()))
        });
        let (output, listener) = received.inspect_err(|_| self.kill())?;
        Ok(Cell {
            init: Some(self.init),
            pidfd: self.pidfd,
            output,
            listener,
            time_namespace: self.time_namespace,
            nest: self.nests.then_some(self.socket),
            namespaces: Vec::new(),
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

/// Receives the outcome of a cell's set-up from its init: handles, or an error.
pub(crate) fn receive_handles(socket: &OwnedFd) -> Result<Vec<OwnedFd>, StepError> {
    const STEP: &str = "await a cell";
    let mut buffer = [0; 512];
    let (length, fds) = sys::receive_message(socket.as_fd(), &mut buffer).step(STEP)?;
    match serde_json::from_slice(&buffer[..length]) {
        Ok(Ok::<String, _>(_)) => Ok(fds),
        Ok(Err((step, errno))) => Err(remote_error(step, errno)),
        Err(_) => Err(died()).step(STEP),
    }
}

/// Clones the init of a nested cell. Its clocks are the caller's.
pub(crate) fn clone_init(time_namespace: bool) -> Result<sys::Fork, StepError> {
    let time = if time_namespace { clock::CLONE_NEWTIME } else { 0 };
    sys::clone3((NAMESPACES | time) as u64, sys::Parentage::Own).step("make the namespaces of a cell")
}

fn died() -> io::Error {
    io::Error::from_raw_os_error(libc::ECHILD)
}

/// Returns the error for a process that exited without a report.
pub(crate) fn silence() -> StepError {
    StepError {
        step: "set a guest up",
        source: died(),
    }
}

/// Converts an error reported by another process. Steps are literals in this very binary, so the few that are
/// leaked here are bounded by the number of failures, each of which ends a launcher or a run.
pub(crate) fn remote_error(step: String, errno: i32) -> StepError {
    StepError {
        step: Box::leak(step.into_boxed_str()),
        source: io::Error::from_raw_os_error(errno),
    }
}

pub(crate) fn run_init(spec: &CellSpec<'_>, socket: OwnedFd) -> ! {
    let outcome = set_up(spec, &socket);
    let (message, handles) = match &outcome {
        Ok(stands) => (Ok("ready"), stands.handles.as_slice()),
        Err(error) => (Err((error.step, error.errno())), [].as_slice()),
    };
    let bytes = serde_json::to_vec(&message).unwrap_or_default();
    let borrowed: Vec<BorrowedFd<'_>> = handles.iter().map(AsFd::as_fd).collect();
    let told = sys::send_message(socket.as_fd(), &bytes, &borrowed).is_ok();
    match outcome {
        Ok(CellSetup { home: Some(home), .. }) if told => nest::serve(spec, &socket, &home),
        Ok(CellSetup { home: None, .. }) if told && sys::close_from(0).is_ok() => reap_for_ever(),
        _ => sys::exit_now(1),
    }
}

/// Reaps orphans of the guest. The init ends only by being killed, and takes the cell with it.
fn reap_for_ever() -> ! {
    loop {
        if sys::reap(sys::Wait::Block).is_err() {
            sys::wait_for_signal();
        }
    }
}

/// The descriptors of a cell that was set up.
struct CellSetup {
    /// Handles for the launcher: the output directory and, for a fork, the rest of [`Cell`].
    handles: Vec<OwnedFd>,
    /// Handles with which the init creates cells for forks.
    home: Option<Home>,
}

/// Mounts of a cell that only its init can reach.
#[derive(Debug)]
pub(crate) struct Home {
    /// The root of the writable file system.
    pub(crate) files: OwnedFd,
    /// A writable `/proc` that shows every process.
    pub(crate) proc: OwnedFd,
}

fn set_up(spec: &CellSpec<'_>, socket: &OwnedFd) -> Result<CellSetup, StepError> {
    sys::die_with_parent().step("tie a cell to its launcher")?;
    match spec.tenant {
        Tenant::Fork(original) => nest::map_own_id(original)?,
        Tenant::Guest | Tenant::Session => {
            let mut go = [0; 2];
            sys::receive_message(socket.as_fd(), &mut go).step("await the id map")?;
        }
    }
    join_control_groups(spec.groups)?;
    sys::unshare(libc::CLONE_NEWCGROUP).step("make a cgroup namespace")?;
    sys::block_child_signal().step("block the child signal")?;
    sys::set_ids(GUEST_ID, GUEST_ID).step("take the guest's user id")?;
    sys::set_dumpable().step("let the launcher open the cell's namespaces")?;
    // The change of ids has cleared it.
    sys::die_with_parent().step("tie a cell to its launcher")?;
    sys::sethostname("sandbox").step("set the host name")?;
    // Usage of a fork counts against its session.
    if !matches!(spec.tenant, Tenant::Fork(_)) {
        shares::bound_cell()?;
    }
    let home = mount(spec)?;
    let mut handles = vec![sys::open_directory(c"/output").step("open the output directory")?];
    if let Tenant::Fork(_) = spec.tenant {
        handles.extend(nest::own_handles()?);
    }
    handles.extend(spec.listen.map(listen).transpose()?);
    sys::set_no_new_privs().step("set no_new_privs")?;
    // The bounding set stays: this process never executes a program, and each guest drops its own.
    sys::drop_held_capabilities().step("drop all capabilities")?;
    Ok(CellSetup { handles, home })
}

fn mount(spec: &CellSpec<'_>) -> Result<Option<Home>, StepError> {
    let inner = open_inner_mounts(spec.inner_mounts)?;
    let files = mount_writable(spec)?;
    if let Tenant::Fork(original) = spec.tenant {
        copy::places(&original.files, &files)?;
    }
    attach_inner_mounts(&inner)?;
    if let Tenant::Guest = spec.tenant {
        mount_proc(0)?;
        return Ok(None);
    }
    let proc = nest::hide_home(&files)?;
    // Sessions may write wherever the mounts allow it, which must not include this one.
    mount_proc(libc::MOUNT_ATTR_RDONLY)?;
    Ok(Some(Home { files, proc }))
}

/// Opens a listening socket on the cell's loopback. Its owner controls the only way out of the cell.
fn listen(port: u16) -> Result<OwnedFd, StepError> {
    sys::raise_loopback().step("raise the cell's loopback")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).step("listen on the cell's loopback")?;
    Ok(listener.into())
}

/// Creates one size-limited tmpfs and mounts it at several places.
fn mount_writable(spec: &CellSpec<'_>) -> Result<OwnedFd, StepError> {
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
    for (name, target) in PLACES {
        bind_below(&root, name, target).step(STEP)?;
    }
    if let Some((name, text)) = spec.code {
        bind_below(&root, c"code", c"/code").step("mount the code directory")?;
        write_code(name, text).step("write the program's text")?;
    }
    // Stays mounted at `/cell`, too, where no rule admits the guest: unmounting waits for all processors.
    Ok(root)
}

/// Opens copies of the mounts that the writable directories are about to cover.
pub(crate) fn open_inner_mounts<'a>(
    paths: impl IntoIterator<Item = &'a CString>,
) -> Result<Vec<(&'a CString, OwnedFd)>, StepError> {
    let open = |path: &'a CString| Ok((path, sys::open_tree(path)?));
    paths
        .into_iter()
        .map(open)
        .collect::<io::Result<_>>()
        .step("copy a mount in a writable place")
}

/// Attaches them again, on top of what covers them.
pub(crate) fn attach_inner_mounts(mounts: &[(&CString, OwnedFd)]) -> Result<(), StepError> {
    const STEP: &str = "attach a mount in a writable place";
    let root = sys::open_path(c"/").step(STEP)?;
    for (path, mount) in mounts {
        template::attach_at(root.as_fd(), &template::os_path(path), mount).step(STEP)?;
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

fn mount_proc(more: u64) -> Result<(), StepError> {
    let attributes = PROC_ATTRIBUTES | more;
    let proc = sys::new_filesystem(c"proc", &[(c"hidepid", c"2")], attributes).step("make a /proc")?;
    sys::move_mount(proc.as_fd(), c"/proc").step("mount /proc")?;
    for path in HIDDEN {
        match sys::open_tree(template::HIDDEN).and_then(|nothing| sys::move_mount(nothing.as_fd(), path)) {
            // This kernel does not have the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            covered => covered.step("cover what /proc tells of the machine")?,
        }
    }
    Ok(())
}

/// Files of `/proc` about the machine's boot and activity that programs do not need. Each costs a mount in
/// every cell; SECURITY.md lists what stays visible.
const HIDDEN: &[&CStr] = &[
    c"/proc/cmdline",
    c"/proc/config.gz",
    c"/proc/diskstats",
    c"/proc/interrupts",
    c"/proc/partitions",
    c"/proc/softirqs",
    c"/proc/sys/kernel/random/boot_id",
];

/// Mount attributes of every `/proc`.
pub(crate) const PROC_ATTRIBUTES: u64 =
    libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;

/// Converts the report of a guest's set-up to a result.
pub(crate) fn setup_result(report: Option<SetupReport>) -> Result<crate::protocol::Applied, StepError> {
    match report {
        Some(Ok(applied)) => Ok(applied),
        Some(Err((step, errno))) => Err(remote_error(step, errno)),
        None => Err(silence()),
    }
}
