//! The set-up of a cell by its init: ids, control groups, mounts.

use std::ffi::{CStr, CString};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::boot_id::{self, BootId};
use crate::cell::{CellSpec, Home, PROC_ATTRIBUTES, Tenant};
use crate::step_error::{Step, StepError};
use crate::steps::join_control_groups;
use crate::{attach, copy, nest, places, shares, sys};

/// Directories below `/cell` and their mount points.
const WRITABLE: &[(&CStr, &CStr)] = &[
    (c"tmp", c"/tmp"),
    (c"workspace", c"/workspace"),
    (c"output", c"/output"),
    (c"shm", c"/dev/shm"),
];

/// The descriptors of a cell that was set up.
pub(crate) struct CellSetup {
    /// Handles for the launcher: the output directory and, for a fork, the rest of [`Cell`].
    pub(crate) handles: Vec<OwnedFd>,
    /// Mounts that only the init reaches.
    pub(crate) mounts: InitMounts,
    /// Its boot id, which its init may replace.
    pub(crate) boot_id: BootId,
}

/// Mounts of a cell that only its init can reach.
#[derive(Debug, Default)]
pub(crate) struct InitMounts {
    /// Handles with which the init creates cells for forks.
    pub(crate) home: Option<Home>,
    /// Upper directory of the root's overlay, if programs may change the root.
    pub(crate) changes: Option<OwnedFd>,
}

pub(crate) fn set_up(spec: &CellSpec<'_>, socket: &OwnedFd) -> Result<CellSetup, StepError> {
    sys::die_with_parent().step("tie a cell to its launcher")?;
    match spec.tenant {
        Tenant::Fork(original) => nest::map_own_id(original)?,
        Tenant::Guest | Tenant::Session | Tenant::Sandbox(_) => {
            let mut go = [0; 2];
            sys::receive_message(socket.as_fd(), &mut go).step("await the id map")?;
        }
    }
    join_control_groups(spec.groups)?;
    sys::unshare(libc::CLONE_NEWCGROUP).step("make a cgroup namespace")?;
    sys::block_child_signal().step("block the child signal")?;
    let id = spec.inner_id();
    sys::set_ids(id, id).step("take the guest's user id")?;
    sys::set_dumpable().step("let the launcher open the cell's namespaces")?;
    // The change of ids has cleared it.
    sys::die_with_parent().step("tie a cell to its launcher")?;
    sys::sethostname("sandbox").step("set the host name")?;
    // Usage of a fork counts against its session.
    if !matches!(spec.tenant, Tenant::Fork(_)) {
        shares::bound_cell()?;
    }
    let (mounts, boot_id) = mount(spec)?;
    let mut handles = vec![sys::open_directory(c"/output").step("open the output directory")?];
    if let Tenant::Fork(_) = spec.tenant {
        handles.extend(nest::own_handles()?);
    }
    handles.extend(spec.listen.map(listen).transpose()?);
    sys::set_no_new_privs().step("set no_new_privs")?;
    if let Tenant::Sandbox(_) = spec.tenant {
        // Its init drops all, with the bounding set, when it confines itself.
        return Ok(CellSetup {
            handles,
            mounts,
            boot_id,
        });
    }
    // The bounding set stays: this process never executes a program, and each guest drops its own.
    sys::drop_held_capabilities().step("drop all capabilities")?;
    Ok(CellSetup {
        handles,
        mounts,
        boot_id,
    })
}

fn mount(spec: &CellSpec<'_>) -> Result<(InitMounts, BootId), StepError> {
    let inner = open_inner_mounts(spec.inner_mounts)?;
    let files = mount_writable(spec)?;
    // Now: another root is without the path of these files.
    let (id, boot_id) = BootId::create(&files).step("make a boot id")?;
    if let Tenant::Fork(original) = spec.tenant {
        copy::directories(&original.files, &files, WRITABLE.iter().map(|(name, _)| *name))?;
    }
    attach_inner_mounts(&inner)?;
    mount_for_tenant(spec, files, &boot_id).map(|mounts| (mounts, id))
}

/// Mounts `/proc` and what else depends on the tenant.
fn mount_for_tenant(spec: &CellSpec<'_>, files: OwnedFd, boot_id: &OwnedFd) -> Result<InitMounts, StepError> {
    match spec.tenant {
        Tenant::Guest => return mount_proc(0, Others::Hidden, boot_id).map(|()| InitMounts::default()),
        Tenant::Sandbox(sandbox) => {
            mount_terminals()?;
            if let Some(root) = spec.root {
                share_temporary_directories().step("open the temporary directories to all users")?;
                mount_proc(0, Others::Shown, boot_id)?;
                return Ok(InitMounts {
                    changes: Some(root.enter(&files)?),
                    home: None,
                });
            }
            if let Some(home) = sandbox.home {
                mount_home(&files, home).step("mount the home directory")?;
            }
            return mount_proc(0, Others::Hidden, boot_id).map(|()| InitMounts::default());
        }
        Tenant::Session | Tenant::Fork(_) => {}
    }
    let proc = nest::hide_home(&files)?;
    // Sessions may write wherever the mounts allow it, which must not include this one.
    mount_proc(libc::MOUNT_ATTR_RDONLY, Others::Hidden, boot_id)?;
    Ok(InitMounts {
        home: Some(Home { files, proc }),
        changes: None,
    })
}

/// Gives the directories for temporary files the mode that they have where there are several users.
fn share_temporary_directories() -> io::Result<()> {
    ["/tmp", "/dev/shm"]
        .into_iter()
        .try_for_each(|path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o1777)))
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
    // The file beside the guest's does not count as its own.
    let inodes = (spec.disk_bytes / 4096).clamp(64, 65_536) + 1;
    let size = spec.disk_bytes.saturating_add(boot_id::BYTES);
    let size = CString::new(size.to_string())
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

/// Attaches the inner mounts again, on top of the mounts that cover them.
pub(crate) fn attach_inner_mounts(mounts: &[(&CString, OwnedFd)]) -> Result<(), StepError> {
    const STEP: &str = "attach a mount in a writable place";
    let root = sys::open_path(c"/").step(STEP)?;
    for (path, mount) in mounts {
        attach::attach_at(root.as_fd(), &attach::os_path(path), mount).step(STEP)?;
    }
    Ok(())
}

fn bind_below(root: &OwnedFd, name: &CStr, target: &CStr) -> io::Result<()> {
    sys::mkdir_at(root.as_fd(), name, 0o755)?;
    sys::move_mount(sys::open_tree_below(root.as_fd(), name)?.as_fd(), target)
}

/// Mounts the workspace at another place.
fn mount_home(files: &OwnedFd, home: &Path) -> io::Result<()> {
    let workspace = sys::open_tree_below(files.as_fd(), c"workspace")?;
    sys::move_mount(workspace.as_fd(), &attach::c_path(home)?)
}

fn write_code(name: &str, text: &OwnedFd) -> io::Result<()> {
    let mut source = std::fs::File::from(text.try_clone()?);
    let mut target = std::fs::File::create_new(Path::new("/code").join(name))?;
    io::copy(&mut source, &mut target).map(drop)
}

/// Mounts terminals of the cell's own; `/dev/ptmx` is a link to theirs. They are few: the machine has some 3,000 for all cells.
fn mount_terminals() -> Result<(), StepError> {
    const STEP: &str = "mount the terminals";
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    let options: &[(&CStr, &CStr)] = &[(c"mode", c"0620"), (c"ptmxmode", c"0666"), (c"max", c"64")];
    let terminals = sys::new_filesystem(c"devpts", options, attributes).step(STEP)?;
    sys::move_mount(terminals.as_fd(), c"/dev/pts").step(STEP)
}

/// Visibility of other users' processes in `/proc`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Shown,
    Hidden,
}

fn mount_proc(more: u64, others: Others, boot_id: &OwnedFd) -> Result<(), StepError> {
    let attributes = PROC_ATTRIBUTES | more;
    let hidden: &[(&CStr, &CStr)] = match others {
        Others::Shown => &[],
        Others::Hidden => &[(c"hidepid", c"2")],
    };
    let proc = sys::new_filesystem(c"proc", hidden, attributes).step("make a /proc")?;
    sys::move_mount(proc.as_fd(), c"/proc").step("mount /proc")?;
    for path in HIDDEN {
        match sys::open_tree(places::HIDDEN).and_then(|nothing| sys::move_mount(nothing.as_fd(), path)) {
            // This kernel does not have the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            covered => covered.step("cover what /proc tells of the machine")?,
        }
    }
    boot_id::cover(boot_id).step("cover the machine's boot id")
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
];
