//! The listener of a guest's filter: reports the guest's exit before the kernel tears the process down.
//!
//! The guest's set-up sends it to the server as the first message on the control channel, before any code of
//! the guest runs. It is the only one that the kernel makes for a filter, and the guest keeps no copy.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use crate::sys;

/// Number of a guest's control channel.
pub(crate) const CONTROL_FD: RawFd = 3;

/// The listener of a guest's filter.
///
/// Dropping it makes every announced exit fail in the guest, which then runs on: drop it only once the guest
/// is dead.
#[derive(Debug)]
pub struct ExitListener {
    listener: OwnedFd,
    /// Process id of the guest's first process.
    leader: libc::pid_t,
}

/// A marked call of `exit_group` that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCall {
    id: u64,
    thread: libc::pid_t,
    /// Exit status passed to the call.
    pub status: i32,
}

impl ExitListener {
    /// Prepares a new control channel, so that the kernel names the sender of the listener.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn expect(control: BorrowedFd<'_>) -> io::Result<()> {
        sys::ask_for_senders(control)
    }

    /// Receives the listener that a guest's set-up has sent; `None` if the kernel created no listener.
    ///
    /// # Errors
    /// If there is no such message.
    pub fn receive(control: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let received = sys::receive_whole(control, &mut [0])?;
        match (received.fds.into_iter().next(), received.sender) {
            (Some(listener), Some(leader)) => {
                sys::set_nonblocking(listener.as_fd())?;
                Ok(Some(Self { listener, leader }))
            }
            (None, Some(_)) => Ok(None),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns the next call that waits.
    ///
    /// # Errors
    /// `WouldBlock` if there is none yet, `BrokenPipe` once there can be none.
    pub fn next_call(&self) -> io::Result<ExitCall> {
        while sys::has_notification(self.listener.as_fd())? {
            match sys::receive_notification(self.listener.as_fd()) {
                // A signal ended it after the look.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                received => {
                    let sys::Notification { id, thread, argument } = received?;
                    let status = i32::from(argument as u8);
                    return Ok(ExitCall { id, thread, status });
                }
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Returns `true` if a call is that of the guest's first thread, and still waits. From then on that thread
    /// does nothing more: only a fatal signal ends the call, and the thread with it.
    pub fn is_last(&self, call: &ExitCall) -> bool {
        call.thread == self.leader && sys::check_notification(self.listener.as_fd(), call.id).is_ok()
    }

    /// Lets a call proceed.
    pub fn resume(&self, call: &ExitCall) {
        // Fails if a signal has ended it.
        let _ = sys::continue_call(self.listener.as_fd(), call.id);
    }
}

impl AsFd for ExitListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Sends the server the listener of the calling process's filter, or that there is none.
pub(crate) fn send(listener: Option<&OwnedFd>) -> io::Result<()> {
    // Stays open: the guest gets its job there.
    let control = ManuallyDrop::new(sys::inherited(CONTROL_FD)?);
    let fds: Vec<BorrowedFd<'_>> = listener.iter().map(|listener| listener.as_fd()).collect();
    sys::send_message(control.as_fd(), &[0], &fds)
}
