//! Cancellation of operations that stage an entry.
//!
//! The init ends an operation with SIGKILL, at which nothing is removed. To one that stages an entry it sends SIGTERM before,
//! and closes its input. A file without a name (`O_TMPFILE`) would need neither, but an operation may not give it one: it is
//! undumpable, so that `/proc/self/fd` is closed to it.

use std::io;

use crate::sys;

/// Makes SIGTERM a request that [`refuse_if_cancelled`] finds.
pub(super) fn accept() -> io::Result<()> {
    sys::block_signals(&[libc::SIGTERM]).map(drop)
}

/// Fails once the operation is cancelled.
pub(super) fn refuse_if_cancelled() -> io::Result<()> {
    match sys::is_pending(libc::SIGTERM) {
        true => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        false => Ok(()),
    }
}
