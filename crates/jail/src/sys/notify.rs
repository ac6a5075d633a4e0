//! Notifications of a seccomp filter: system calls that wait for the holder of the filter's listener.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{check_int, set_filter};

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notification {
    /// Number of the notification, never reused.
    pub(crate) id: u64,
    /// Id of the calling thread in the caller's pid namespace; 0 outside of it.
    pub(crate) thread: libc::pid_t,
    /// The call's first argument.
    pub(crate) argument: u64,
}

/// Loads a filter like [`super::load_filter`], with calls that wait for an answer. Returns the listener.
///
/// Once such a call has been received, only a fatal signal ends it (Linux 5.19). `EBUSY`: there is a listener
/// already.
pub(crate) fn load_filter_with_listener(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = set_filter(program, flags)?;
    // SAFETY: with the first flag the call returns a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Returns `true` if a call waits that has not been received. `BrokenPipe`: all processes of the filter have
/// exited.
pub(crate) fn has_notification(listener: BorrowedFd<'_>) -> io::Result<bool> {
    let mut polled = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `polled` is one live structure; without a timeout no signal interrupts the call.
    check_int(unsafe { libc::poll(&mut polled, 1, 0) })?;
    match (polled.revents & libc::POLLIN, polled.revents & libc::POLLHUP) {
        (0, 0) => Ok(false),
        // The next receive would wait for ever.
        (0, _) => Err(io::ErrorKind::BrokenPipe.into()),
        _ => Ok(true),
    }
}

/// Receives a waiting call. Blocks if there is none: see [`has_notification`]. `ENOENT`: a signal has just ended it.
pub(crate) fn receive_notification(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    // SAFETY: the structure is plain numbers, for which all zeroes is a valid value, and what the kernel wants.
    let mut received: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the place is valid to write and of the size that the request's number carries.
    check_int(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            ptr::addr_of_mut!(received),
        )
    })?;
    Ok(Notification {
        id: received.id,
        thread: received.pid.cast_signed(),
        argument: received.data.args[0],
    })
}

/// Succeeds if a received call still waits.
pub(crate) fn check_notification(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    // SAFETY: the number is live and of the size that the request's number carries.
    check_int(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            ptr::addr_of!(id),
        )
    })
    .map(drop)
}

/// Lets a received call proceed as if there were no filter.
pub(crate) fn continue_call(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let answer = libc::seccomp_notif_resp {
        id,
        val: 0,
        error: 0,
        flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
    };
    // SAFETY: the answer is live and of the size that the request's number carries.
    check_int(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            ptr::addr_of!(answer),
        )
    })
    .map(drop)
}
