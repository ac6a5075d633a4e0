//! The descriptors that the engine makes for a guest.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys;

/// A pipe for a guest's output or input: read end, write end.
///
/// # Errors
/// If no more descriptors can be had.
pub fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    sys::pipe()
}

/// The two ends of a control channel; the first one, the engine's, does not block.
///
/// # Errors
/// If no more descriptors can be had.
pub fn control_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = sys::stream_pair()?;
    sys::set_nonblocking(ours.as_fd())?;
    Ok((ours, theirs))
}

/// Sends a descriptor to a guest, beside one byte on its control channel.
///
/// # Errors
/// If the guest has gone, or, without blocking, there is no room.
pub fn hand_over(channel: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    sys::send_message(channel, &[0], &[descriptor])
}

/// Takes over a descriptor that comes beside one byte on a channel.
///
/// # Errors
/// If none comes, or, without blocking, not yet.
pub fn take_over(channel: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (_, descriptors) = sys::receive_message(channel, &mut [0])?;
    let mut descriptors = descriptors.into_iter();
    match (descriptors.next(), descriptors.next()) {
        (Some(descriptor), None) => Ok(descriptor),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// An anonymous file that holds `bytes`, to be handed to a launcher.
///
/// # Errors
/// If no more descriptors or memory can be had.
pub fn code_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(sys::memfd(c"ringfence-code")?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}
