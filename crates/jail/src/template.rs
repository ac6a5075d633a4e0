//! The root file system that all cells of a launcher share: built once, read-only from then on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::attach::{attach_at, c_path, metadata, os_path};
use crate::id_map::guest_id_map;
use crate::places::{ASSEMBLY, CELL_MOUNT_POINTS, DEVICES, HIDDEN};
use crate::protocol::{Bind, HostIds, Template};
use crate::step_error::{Step, StepError};
use crate::{sys, writable_root};

const MOUNT_ATTR_RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
const NODEV: u64 = libc::MOUNT_ATTR_NODEV;

/// Moves the calling process into a mount namespace whose root is built from the template.
pub(crate) fn build(template: &Template) -> Result<(), StepError> {
    sys::unshare(libc::CLONE_NEWNS).step("make a mount namespace")?;
    sys::make_mounts_private().step("make the mounts private")?;
    // Sources first: they may lie below the directory where the new root is assembled.
    let sources = open_sources(template)?;
    let image = writable_root::open_image(template)?;
    let devices = open_devices()?;
    let proc = sys::open_tree(c"/proc").step("copy the /proc mount")?;
    let root = attach_root()?;
    let base = writable_root::open_base(template)?;
    lay_out_directories(&template.directories)?;
    for (bind, source) in sources {
        let attached = match bind.itself {
            true => attach_over(root.as_fd(), &bind.guest, &source),
            false => attach_at(root.as_fd(), &bind.guest, &source),
        };
        attached.step("attach a host path")?;
    }
    for (path, device) in devices {
        attach_at(root.as_fd(), &path, &device).step("attach the devices")?;
    }
    // The kernel allows cells to mount a /proc of their own only if one is visible already
    // (mount_namespaces(7)).
    attach_at(root.as_fd(), Path::new("/proc"), &proc).step("attach /proc")?;
    write_files(template)?;
    for layer in base.iter().chain(&image) {
        layer.attach(root.as_fd(), template.host_ids)?;
    }
    enter_root(root)
}

fn open_sources(template: &Template) -> Result<Vec<(&Bind, OwnedFd)>, StepError> {
    let mut sources = Vec::new();
    let mut maps = IdMaps::default();
    for bind in &template.binds {
        match open_source(bind, template.host_ids, &mut maps) {
            Ok(source) => sources.push((bind, source)),
            Err(error) if bind.optional && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).step("copy the mount of a host path"),
        }
    }
    Ok(sources)
}

/// User namespaces that map an owner of files to the guest, one for each owner: creating one takes longer
/// than a mount.
type IdMaps = HashMap<(u32, u32), OwnedFd>;

fn open_source(bind: &Bind, host_ids: Option<HostIds>, maps: &mut IdMaps) -> io::Result<OwnedFd> {
    let (tree, owner) = copy_tree(bind)?;
    let read_only = if bind.writable { 0 } else { MOUNT_ATTR_RDONLY };
    let set = NOSUID | NODEV | read_only;
    sys::set_mount_attributes(tree.as_fd(), &sys::MountAttributes { set, id_map: None })?;
    if let (true, Some(ids)) = (bind.guest_owns, host_ids) {
        let map = match maps.entry(owner) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(guest_id_map(owner.0, owner.1, ids)?),
        };
        let mapped = sys::MountAttributes {
            set: 0,
            id_map: Some(map.as_fd()),
        };
        match sys::set_mount_attributes(tree.as_fd(), &mapped) {
            Ok(()) => {}
            // This file system cannot map ids: the guest then has the access rights of others, which are
            // less.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(tree)
}

/// Returns a copy of the mount tree at a host path, and the user and group that own it.
///
/// Other guests may be modifying files that a guest owns: a symbolic link that replaced the chosen path would
/// expose its target.
fn copy_tree(bind: &Bind) -> io::Result<(OwnedFd, (u32, u32))> {
    let path = c_path(&bind.host)?;
    let place = if bind.itself {
        sys::open_entry(sys::open_path(c"/")?.as_fd(), &path)?
    } else if bind.guest_owns {
        sys::open_without_links(sys::open_path(c"/")?.as_fd(), &path)?
    } else {
        sys::open_path(&path)?
    };
    let owner = metadata(&place)?;
    Ok((sys::open_tree_of(place.as_fd())?, (owner.uid(), owner.gid())))
}

fn open_devices() -> Result<Vec<(PathBuf, OwnedFd)>, StepError> {
    DEVICES
        .iter()
        .map(|path| Ok((PathBuf::from(path), open_device(Path::new(path))?)))
        .collect::<io::Result<_>>()
        .step("copy the mounts of the devices")
}

/// Copies the mount of a device. It is read-only: guests read and write the device, and its times and modes, which are the
/// host's, stay.
fn open_device(path: &Path) -> io::Result<OwnedFd> {
    let device = sys::open_tree(&c_path(path)?)?;
    let attributes = sys::MountAttributes {
        set: NOSUID | MOUNT_ATTR_RDONLY,
        id_map: None,
    };
    sys::set_mount_attributes(device.as_fd(), &attributes)?;
    Ok(device)
}

fn attach_root() -> Result<OwnedFd, StepError> {
    let options: &[(&CStr, &CStr)] = &[
        (c"mode", c"0755"),
        (c"size", c"4m"),
        (c"nr_inodes", c"4096"),
        (c"source", c"ringfence"),
    ];
    let root = sys::new_filesystem(c"tmpfs", options, NOSUID | NODEV).step("make the root file system")?;
    sys::move_mount(
        root.as_fd(),
        &c_path(Path::new(ASSEMBLY)).step("attach the root file system")?,
    )
    .step("attach the root file system")?;
    Ok(root)
}

fn lay_out_directories(more: &[PathBuf]) -> Result<(), StepError> {
    const STEP: &str = "lay out the root file system";
    let fixed = CELL_MOUNT_POINTS.iter().chain(&["/etc", "/run"]).map(Path::new);
    for path in fixed.chain(more.iter().map(PathBuf::as_path)) {
        fs::create_dir_all(assembled(path)).step(STEP)?;
    }
    let hidden = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o000)
        .open(assembled(&os_path(HIDDEN)));
    hidden.map(drop).step(STEP)
}

/// Attaches a mount over an entry that exists, which may be a symbolic link.
fn attach_over(root: BorrowedFd<'_>, guest: &Path, mount: &OwnedFd) -> io::Result<()> {
    let below = guest.strip_prefix("/").unwrap_or(guest);
    let place = sys::open_entry(root, &c_path(below)?)?;
    sys::move_mount_onto(mount.as_fd(), place.as_fd())
}

fn write_files(template: &Template) -> Result<(), StepError> {
    const STEP: &str = "write the files of the root file system";
    for file in &template.files {
        let path = assembled(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).step(STEP)?;
        }
        fs::write(path, &file.content).step(STEP)?;
    }
    for path in &template.copies {
        copy_file(path).step(STEP)?;
    }
    for (link, target) in &template.links {
        let link = assembled(link);
        if let Some(parent) = link.parent() {
            fs::create_dir_all(parent).step(STEP)?;
        }
        std::os::unix::fs::symlink(target, link).step(STEP)?;
    }
    Ok(())
}

/// Largest file that is copied: the root file system lies in memory.
const MAX_COPY: u64 = 1 << 20;

fn copy_file(path: &Path) -> io::Result<()> {
    let Ok(mut source) = fs::File::open(path) else {
        return Ok(());
    };
    let target = assembled(path);
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut copy = fs::File::create(target)?;
    io::copy(&mut io::Read::take(&mut source, MAX_COPY), &mut copy).map(drop)
}

fn enter_root(root: OwnedFd) -> Result<(), StepError> {
    std::env::set_current_dir(ASSEMBLY).step("enter the root file system")?;
    sys::pivot_root_to_working_directory().step("make it the root")?;
    std::env::set_current_dir("/").step("enter the root file system")?;
    sys::set_mount_read_only(root.as_fd()).step("make the root read-only")
}

fn assembled(guest: &Path) -> PathBuf {
    Path::new(ASSEMBLY).join(guest.strip_prefix("/").unwrap_or(guest))
}
