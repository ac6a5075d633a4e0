//! Entries of an open directory.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::{check, check_int};

/// Length of the longest path that the kernel takes, with its final NUL.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Opens a name in a directory; the descriptor is closed on exec.
pub(crate) fn open_at(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: libc::c_int,
    mode: libc::mode_t,
) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the name is a live C string.
    let fd = check_int(unsafe { libc::openat(directory.as_raw_fd(), name.as_ptr(), flags, mode) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns `true` for a file of a file system of processes (proc(5)).
pub(crate) fn is_of_processes(file: BorrowedFd<'_>) -> bool {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is live and valid to write.
    let asked = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) };
    // Where the kernel does not say it, the answer that refuses more.
    check_int(asked).is_err() || found.f_type == libc::PROC_SUPER_MAGIC
}

/// Returns the number of the mount that a file was opened in (statx(2), Linux 5.8); `None` if the kernel does not say it.
pub(crate) fn mount_of(file: BorrowedFd<'_>) -> Option<u64> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the path is a live C string, and `found` a live statx to be filled.
    let done = check_int(unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            flags,
            libc::STATX_MNT_ID,
            &raw mut found,
        )
    });
    done.is_ok_and(|_| found.stx_mask & libc::STATX_MNT_ID != 0)
        .then_some(found.stx_mnt_id)
}

/// Appends the next names of a directory opened for reading, without `.` and `..`; returns `false` at its end.
/// `buffer` is scratch space, in which at least one entry must fit.
pub(crate) fn read_names(
    directory: BorrowedFd<'_>,
    buffer: &mut [u8],
    names: &mut Vec<OsString>,
) -> io::Result<bool> {
    // SAFETY: the kernel writes at most the buffer's length.
    let read = check(unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            directory.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    })?;
    let mut rest = &buffer[..read as usize];
    // Entries are `struct linux_dirent64` (getdents64(2)): inode, offset, length, type, name up to a NUL.
    while let Some(&[low, high]) = rest.get(16..18) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        let Some((entry, after)) = rest.split_at_checked(length).filter(|_| length > 19) else {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        };
        let name = entry[19..].split(|byte| *byte == 0).next().unwrap_or_default();
        if !matches!(name, b"." | b"..") {
            names.push(OsStr::from_bytes(name).to_owned());
        }
        rest = after;
    }
    Ok(read > 0)
}

/// Restarts the list of a directory's names.
pub(crate) fn rewind(directory: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor.
    let place = unsafe { libc::lseek(directory.as_raw_fd(), 0, libc::SEEK_SET) };
    check(place as libc::c_long).map(drop)
}

/// Returns the target of a symbolic link.
pub(crate) fn read_link_at(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<OsString> {
    let mut buffer = vec![0_u8; PATH_MAX];
    // SAFETY: the name is a live C string, and the kernel writes at most the buffer's length.
    let length = check(unsafe {
        libc::readlinkat(
            directory.as_raw_fd(),
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        ) as libc::c_long
    })?;
    buffer.truncate(length as usize);
    Ok(OsString::from_vec(buffer))
}

/// Creates a symbolic link.
pub(crate) fn symlink_at(target: &CStr, directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: both are live C strings.
    check_int(unsafe { libc::symlinkat(target.as_ptr(), directory.as_raw_fd(), name.as_ptr()) }).map(drop)
}

/// Creates a hard link to `old`, which is not followed if it is a symbolic link.
pub(crate) fn link_at(from: BorrowedFd<'_>, old: &CStr, to: BorrowedFd<'_>, new: &CStr) -> io::Result<()> {
    let (from, to): (RawFd, RawFd) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: both are live C strings.
    check_int(unsafe { libc::linkat(from, old.as_ptr(), to, new.as_ptr(), 0) }).map(drop)
}

/// Renames an entry, replacing an existing entry with the new name.
pub(crate) fn rename_at(from: BorrowedFd<'_>, old: &CStr, to: BorrowedFd<'_>, new: &CStr) -> io::Result<()> {
    let (from, to): (RawFd, RawFd) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: both are live C strings.
    check_int(unsafe { libc::renameat(from, old.as_ptr(), to, new.as_ptr()) }).map(drop)
}

/// Removes an entry that is not a directory.
pub(crate) fn unlink_at(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is a live C string.
    check_int(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Removes an empty directory.
pub(crate) fn remove_directory_at(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    // SAFETY: the name is a live C string.
    check_int(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) }).map(drop)
}

/// Changes the owner of an entry, which is not followed if it is a symbolic link.
pub(crate) fn change_owner_at(directory: BorrowedFd<'_>, name: &CStr, uid: u32, gid: u32) -> io::Result<()> {
    let flags = libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the name is a live C string.
    check_int(unsafe { libc::fchownat(directory.as_raw_fd(), name.as_ptr(), uid, gid, flags) }).map(drop)
}

/// Reads an extended attribute of an open file; returns its length.
pub(crate) fn attribute(file: BorrowedFd<'_>, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
    let (buffer, room) = (value.as_mut_ptr().cast(), value.len());
    // SAFETY: the name is a live C string, and the kernel writes at most the buffer's length.
    let length = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), buffer, room) };
    check(length as libc::c_long).map(|length| length as usize)
}

/// Creates a FIFO.
#[cfg(test)]
pub(crate) fn make_fifo(path: &CStr) -> io::Result<()> {
    // SAFETY: the path is a live C string.
    check_int(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }).map(drop)
}
