//! Mounts, through the descriptor-based calls of Linux 5.2 and later.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{check, check_int};

const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Makes all mounts of the namespace private: nothing propagates in or out.
pub(crate) fn make_mounts_private() -> io::Result<()> {
    // SAFETY: propagation changes read the target only.
    check_int(unsafe {
        libc::mount(
            ptr::null(),
            c"/".as_ptr(),
            ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            ptr::null(),
        )
    })
    .map(drop)
}

/// Returns a detached copy of the mount tree at `path`.
pub(crate) fn open_tree(path: &CStr) -> io::Result<OwnedFd> {
    open_tree_at(libc::AT_FDCWD, path, 0)
}

/// Returns a detached copy of the mount tree at an open file.
pub(crate) fn open_tree_of(place: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    open_tree_at(place.as_raw_fd(), c"", libc::AT_EMPTY_PATH as libc::c_uint)
}

/// Returns a detached copy of the mount tree at `name` in `directory`.
pub(crate) fn open_tree_below(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    open_tree_at(directory.as_raw_fd(), name, 0)
}

fn open_tree_at(directory: RawFd, path: &CStr, extra: libc::c_uint) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as libc::c_uint | extra;
    // SAFETY: the path is a live C string.
    let fd = check(unsafe { libc::syscall(libc::SYS_open_tree, directory, path.as_ptr(), flags) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Attaches a detached mount at `target`.
pub(crate) fn move_mount(mount: BorrowedFd<'_>, target: &CStr) -> io::Result<()> {
    // SAFETY: both paths are live C strings.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Attaches a detached mount at an open file.
pub(crate) fn move_mount_onto(mount: BorrowedFd<'_>, place: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both paths are live C strings.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            place.as_raw_fd(),
            c"".as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Creates a detached file system. An option with an empty value is a flag.
pub(crate) fn new_filesystem(
    kind: &CStr,
    options: &[(&CStr, &CStr)],
    attributes: u64,
) -> io::Result<OwnedFd> {
    // SAFETY: the name is a live C string.
    let context = check(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    let context = unsafe { OwnedFd::from_raw_fd(context as RawFd) };
    for (key, value) in options {
        let (command, value) = match value.is_empty() {
            true => (FSCONFIG_SET_FLAG, ptr::null()),
            false => (FSCONFIG_SET_STRING, value.as_ptr()),
        };
        // SAFETY: the key is a live C string; so is the value, except for a flag, which has none.
        check(unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                context.as_raw_fd(),
                command,
                key.as_ptr(),
                value,
                0,
            )
        })?;
    }
    // SAFETY: CMD_CREATE takes null key and value.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            ptr::null::<u8>(),
            ptr::null::<u8>(),
            0,
        )
    })?;
    // SAFETY: a plain call on an open descriptor.
    let mount = check(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            1,
            attributes as libc::c_uint,
        )
    })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(mount as RawFd) })
}

/// The changes of [`set_mount_attributes`] to a mount tree.
#[derive(Debug)]
pub(crate) struct MountAttributes<'a> {
    /// MOUNT_ATTR_* bits to set.
    pub(crate) set: u64,
    /// A user namespace whose id map the mount applies, if any.
    pub(crate) id_map: Option<BorrowedFd<'a>>,
}

/// Changes the attributes of a mount and of those below it.
pub(crate) fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    attributes: &MountAttributes<'_>,
) -> io::Result<()> {
    let mapped = attributes.id_map.map_or(0, |_| libc::MOUNT_ATTR_IDMAP);
    let values = libc::mount_attr {
        attr_set: attributes.set | mapped,
        attr_clr: 0,
        propagation: 0,
        userns_fd: attributes.id_map.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    // SAFETY: `values` is a live mount_attr of the size given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            ptr::addr_of!(values),
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Makes the working directory the root of the mount namespace and detaches the old root.
pub(crate) fn pivot_root_to_working_directory() -> io::Result<()> {
    // SAFETY: both paths are live C strings. "." twice stacks the old root on the new one (pivot_root(2)).
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: the path is a live C string.
    check_int(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }).map(drop)
}

/// Detaches the mount at `target`. Files opened and mounts bound from it stay usable.
pub(crate) fn detach_mount(target: &CStr) -> io::Result<()> {
    // SAFETY: the path is a live C string.
    check_int(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) }).map(drop)
}

/// Makes one mount read-only; those below it are unchanged.
pub(crate) fn set_mount_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    let values = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: `values` is a live mount_attr of the size given.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            ptr::addr_of!(values),
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}
