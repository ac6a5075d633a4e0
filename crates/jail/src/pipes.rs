//! File descriptors that the server creates for a guest.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys;

/// Returns a pipe for a guest's output or input: read end, write end.
///
/// # Errors
/// If no more file descriptors are available.
pub fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    sys::pipe()
}

/// Returns the two ends of a control channel; the first one, the server's, does not block.
///
/// # Errors
/// If no more file descriptors are available.
pub fn control_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = sys::stream_pair()?;
    sys::set_nonblocking(ours.as_fd())?;
    Ok((ours, theirs))
}

/// Sends a file descriptor to a guest, with one byte on its control channel.
///
/// # Errors
/// If the guest has exited, or, without blocking, there is no room.
pub fn hand_over(channel: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    sys::send_message(channel, &[0], &[descriptor])
}

/// Receives a file descriptor, with one byte on a channel.
///
/// # Errors
/// If there is none, or, without blocking, nothing has arrived.
pub fn take_over(channel: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (_, descriptors) = sys::receive_message(channel, &mut [0])?;
    let mut descriptors = descriptors.into_iter();
    match (descriptors.next(), descriptors.next()) {
        (Some(descriptor), None) => Ok(descriptor),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Returns an anonymous file that contains `bytes`, to be passed to a launcher.
///
/// # Errors
/// If no more file descriptors or memory are available.
pub fn code_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(sys::memfd(c"ringfence-code")?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}
