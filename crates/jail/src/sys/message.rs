//! Messages with descriptors over a SOCK_SEQPACKET socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::check;

/// The most descriptors in one message.
pub(crate) const MAX_FDS: usize = 16;

/// Room for the control data of [`MAX_FDS`] descriptors, aligned as cmsghdr wants it.
#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

/// Sends one message. It is refused, not cut, if it does not fit.
pub(crate) fn send_message(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
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
    loop {
        // SAFETY: the header points at live buffers.
        match check(unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL) } as libc::c_long)
        {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives one message into `buffer`. Zero bytes mean that the other side has closed.
///
/// # Errors
/// `EMSGSIZE` if the message or its descriptors did not fit.
pub(crate) fn receive_message(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
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
        let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
        match check(result as libc::c_long) {
            Ok(received) => break received as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the header; the macros walk inside the control buffer, and each descriptor
    // found there is new and owned by nobody else.
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
            entry = libc::CMSG_NXTHDR(&header, entry);
        }
    }
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok((received, fds))
}
