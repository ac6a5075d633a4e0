//! Messages with file descriptors over SOCK_SEQPACKET sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{check, check_int};

/// Maximum number of file descriptors in one message.
pub(crate) const MAX_FDS: usize = 16;

/// Room for the control data of [`MAX_FDS`] file descriptors, aligned as cmsghdr requires.
#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

/// Sends one message. Fails, rather than truncates, if it does not fit.
pub(crate) fn send_message(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(socket, bytes, fds, 0)
}

/// Sends a message like [`send_message`], but fails with `WouldBlock` instead of blocking if the peer has
/// stopped reading.
pub(crate) fn offer_message(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    send(socket, bytes, fds, libc::MSG_DONTWAIT)
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>], flags: libc::c_int) -> io::Result<()> {
    if fds.len() > MAX_FDS {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut control = ControlBuffer([0; 128]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    if !fds.is_empty() {
        let length = size_of_val(fds) as u32;
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: computes a length only.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as usize;
        // SAFETY: the buffer is aligned and holds CMSG_SPACE of MAX_FDS descriptors (16 + 64 bytes), so the
        // first header and its data lie inside it; BorrowedFd has the layout of a raw descriptor.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(length) as usize;
            ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), libc::CMSG_DATA(first), length as usize);
        }
    }
    let flags = flags | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: the header points at live buffers.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags) };
        match check(sent as libc::c_long) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives one message into `buffer`. Zero bytes mean that the peer has closed.
///
/// # Errors
/// `EMSGSIZE` if the message or its file descriptors did not fit.
pub(crate) fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive(socket, buffer, 0).map(|received| (received.length, received.fds))
}

/// Makes the kernel attach the sender's credentials to each message.
pub(crate) fn ask_for_senders(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value is live and of the size given.
    check_int(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            ptr::addr_of!(on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Receives one message, without blocking, from an untrusted peer: its length, and its sender's process id in
/// the current pid namespace. Attached file descriptors are closed.
pub(crate) fn receive_from_sender(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<libc::pid_t>)> {
    receive(socket, buffer, libc::MSG_DONTWAIT).map(|received| (received.length, received.sender))
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Received {
    /// Length in bytes; 0 if the peer has closed.
    pub(crate) length: usize,
    /// Attached file descriptors.
    pub(crate) fds: Vec<OwnedFd>,
    /// Process id of the sender, if [`ask_for_senders`] was called before the message was sent.
    pub(crate) sender: Option<libc::pid_t>,
}

/// Receives one message with everything attached, without blocking.
pub(crate) fn receive_whole(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    receive(socket, buffer, libc::MSG_DONTWAIT)
}

fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8], flags: libc::c_int) -> io::Result<Received> {
    let mut control = ControlBuffer([0; 128]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: msghdr is plain numbers and pointers, for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len();
    let received = loop {
        // SAFETY: the header points at live buffers.
        let result =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC | flags) };
        match check(result as libc::c_long) {
            Ok(received) => break received as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    let mut fds = Vec::new();
    let mut sender = None;
    // SAFETY: the kernel filled the header; the macros walk inside the control buffer, each descriptor found
    // there is new and owned by nobody else, and credentials are plain numbers of a fixed size.
    unsafe {
        let mut entry = libc::CMSG_FIRSTHDR(&header);
        while !entry.is_null() {
            if (*entry).cmsg_level == libc::SOL_SOCKET && (*entry).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*entry).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(entry).cast::<RawFd>();
                for index in 0..bytes / size_of::<RawFd>() {
                    fds.push(OwnedFd::from_raw_fd(ptr::read_unaligned(data.add(index))));
                }
            }
            if (*entry).cmsg_level == libc::SOL_SOCKET && (*entry).cmsg_type == libc::SCM_CREDENTIALS {
                let credentials = libc::CMSG_DATA(entry).cast::<libc::ucred>();
                // Zero stands for a process outside the current pid namespace.
                sender = Some(ptr::read_unaligned(credentials).pid).filter(|pid| *pid > 0);
            }
            entry = libc::CMSG_NXTHDR(&header, entry);
        }
    }
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok(Received {
        length: received,
        fds,
        sender,
    })
}
