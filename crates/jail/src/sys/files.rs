//! File descriptors and pipes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{check, check_int};

/// Returns a pipe: read end, write end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    // SAFETY: the array has room for both descriptors.
    check_int(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the call filled both with new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Returns a connected pair of sockets that preserve message boundaries and can carry file descriptors.
pub(crate) fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    socket_pair(libc::SOCK_SEQPACKET)
}

/// Returns a connected pair of stream sockets.
pub(crate) fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    socket_pair(libc::SOCK_STREAM)
}

fn socket_pair(kind: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    // SAFETY: the array has room for both descriptors.
    check_int(unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) })?;
    // SAFETY: the call filled both with new descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Returns an anonymous file in memory. `name` is visible in `/proc` only.
pub(crate) fn memfd(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the name is a live C string.
    let fd = check_int(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes `target` refer to the same file as `source`; it is not closed on exec.
pub(crate) fn dup2(source: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    // SAFETY: callers pass a target number that they own or that is free.
    check_int(unsafe { libc::dup2(source.as_raw_fd(), target) }).map(drop)
}

/// Duplicates a file descriptor to a number of at least `least`, so that low numbers stay free.
pub(crate) fn dup_above(source: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a plain call on an open descriptor.
    let fd = check_int(unsafe { libc::fcntl(source.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every file descriptor from `first` on.
pub(crate) fn close_from(first: RawFd) -> io::Result<()> {
    // SAFETY: callers own all descriptors of the process and use none of them afterwards.
    let closed = check(unsafe { libc::syscall(libc::SYS_close_range, first, RawFd::MAX, 0) });
    match closed {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => close_each_from(first),
        closed => closed.map(drop),
    }
}

/// Does the same as [`close_from`], for kernels without close_range.
fn close_each_from(first: RawFd) -> io::Result<()> {
    let entries = std::fs::read_dir("/proc/self/fd")?.collect::<io::Result<Vec<_>>>()?;
    let numbers = entries
        .iter()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number >= first) {
        // SAFETY: as above. The descriptor by which the list was read is closed, and its number is refused.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Takes over a file descriptor inherited under a number agreed with the parent.
pub(crate) fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks whether the number is open.
    check_int(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    // SAFETY: the number is open, and by agreement nobody else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a path as a handle only (`O_PATH`).
pub(crate) fn open_path(path: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: the path is a live C string.
    let fd = check_int(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens a path as a handle only, if none of its components is a symbolic link.
pub(crate) fn open_without_links(directory: BorrowedFd<'_>, path: &CStr) -> io::Result<OwnedFd> {
    open_path_without_links(directory, path, 0)
}

/// Opens a path as a handle only, if no component but the last one is a symbolic link. That one is opened
/// itself.
pub(crate) fn open_entry(directory: BorrowedFd<'_>, path: &CStr) -> io::Result<OwnedFd> {
    open_path_without_links(directory, path, libc::O_NOFOLLOW)
}

fn open_path_without_links(directory: BorrowedFd<'_>, path: &CStr, more: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC | more) as u64;
    how.resolve = libc::RESOLVE_NO_SYMLINKS;
    // SAFETY: the path is a live C string, and `how` a live open_how of the size given.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            directory.as_raw_fd(),
            path.as_ptr(),
            std::ptr::addr_of!(how),
            size_of::<libc::open_how>(),
        )
    })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Makes reads and writes on a file descriptor non-blocking.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor.
    let flags = check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: a plain call on an open descriptor.
    check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Creates a directory in another one.
pub(crate) fn mkdir_at(directory: BorrowedFd<'_>, name: &CStr, mode: libc::mode_t) -> io::Result<()> {
    // SAFETY: the name is a live C string.
    check_int(unsafe { libc::mkdirat(directory.as_raw_fd(), name.as_ptr(), mode) }).map(drop)
}

/// Creates an empty file in a directory, under a free name.
pub(crate) fn make_file_at(directory: BorrowedFd<'_>, name: &CStr, mode: libc::mode_t) -> io::Result<()> {
    // SAFETY: the name is a live C string.
    check_int(unsafe { libc::mknodat(directory.as_raw_fd(), name.as_ptr(), libc::S_IFREG | mode, 0) })
        .map(drop)
}

/// Opens a directory for reading.
pub(crate) fn open_directory(path: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path is a live C string.
    let fd = check_int(unsafe { libc::open(path.as_ptr(), flags) })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Replaces an open file by `/dev/null` under the same number.
pub(crate) fn replace_by_null(fd: BorrowedFd<'_>) -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    dup2(std::os::fd::AsFd::as_fd(&null), fd.as_raw_fd())
}

/// Shuts down a socket in both directions, for all processes that hold it.
pub(crate) fn hang_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor.
    check_int(unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) }).map(drop)
}

/// Takes the byte that waits in the control channel of a guest, number 3, if there is one.
pub(crate) fn take_start_byte() -> io::Result<()> {
    let mut byte = [0u8];
    // SAFETY: the buffer is live and of the size given; the guest's set-up has put the control descriptor under this number.
    check(unsafe { libc::recv(3, byte.as_mut_ptr().cast(), byte.len(), libc::MSG_DONTWAIT) as libc::c_long })
        .map(drop)
}

/// Marks the control channel of a guest, number 3, as close-on-exec.
pub(crate) fn close_control() -> io::Result<()> {
    // SAFETY: a plain call; the guest's set-up has put the control descriptor under this number.
    check_int(unsafe { libc::fcntl(3, libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

/// Duplicates a descriptor like [`dup2`], but closed on exec.
pub(crate) fn place(source: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    // SAFETY: callers pass a target number that they own, that is free, or whose owner must lose what it
    // refers to.
    check_int(unsafe { libc::dup3(source.as_raw_fd(), target, libc::O_CLOEXEC) }).map(drop)
}

/// Returns `true` if a file descriptor is open.
pub(crate) fn is_open(number: RawFd) -> bool {
    // SAFETY: F_GETFD only asks.
    unsafe { libc::fcntl(number, libc::F_GETFD) != -1 }
}

/// Returns the start and end of the data at or after an offset; `None` if there are only holes. A file system
/// without holes has data everywhere, as in gVisor.
pub(crate) fn next_data(file: BorrowedFd<'_>, from: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |offset: u64, whence| {
        // SAFETY: a plain call on an open descriptor.
        let place = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, whence) };
        check(place as libc::c_long).map(|place| place as u64)
    };
    match seek(from, libc::SEEK_DATA) {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(Some((from, u64::MAX))),
        start => {
            let start = start?;
            Ok(Some((start, seek(start, libc::SEEK_HOLE)?)))
        }
    }
}
