//! Events that a launcher sends to the server.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::protocol::Event;
use crate::sys;

/// Sends an event to the server. If it has exited, the next receive reports that.
pub(crate) fn send(server: &OwnedFd, event: &Event, fds: &[BorrowedFd<'_>]) {
    if let Ok(bytes) = serde_json::to_vec(event) {
        let _ = sys::send_message(server.as_fd(), &bytes, fds);
    }
}
