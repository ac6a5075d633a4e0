//! Changes in directories, as the kernel reports them (inotify(7)).

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use super::{check, check_int};

/// Size of a buffer for some hundred events; one alone needs less than 300 bytes.
const BUFFER: usize = 32 * 1024;

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The watch's number, -1 for an overflow.
    pub(crate) watch: i32,
    /// Bits of `IN_*`.
    pub(crate) mask: u32,
    /// The entry of the watched directory; empty if the event is the directory's own.
    pub(crate) name: OsString,
}

/// A queue of events, with its watches.
#[derive(Debug)]
pub(crate) struct Inotify(OwnedFd);

impl Inotify {
    /// Returns a queue that is read without blocking.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: a plain call.
        let fd = check_int(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: the call returned a new descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches a path; returns the number that the file's watch has already, if it has one.
    pub(crate) fn watch(&self, path: &CStr, mask: u32) -> io::Result<i32> {
        // SAFETY: the path is a live C string.
        check_int(unsafe { libc::inotify_add_watch(self.0.as_raw_fd(), path.as_ptr(), mask) })
    }

    /// Removes a watch.
    pub(crate) fn forget(&self, watch: i32) -> io::Result<()> {
        // SAFETY: a plain call on an open descriptor.
        check_int(unsafe { libc::inotify_rm_watch(self.0.as_raw_fd(), watch) }).map(drop)
    }

    /// Returns pending events, none if there are none.
    pub(crate) fn read(&self) -> io::Result<Vec<Notice>> {
        let mut buffer = vec![0_u8; BUFFER];
        // SAFETY: the kernel writes at most the buffer's length.
        let read = check(unsafe {
            libc::read(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) as libc::c_long
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Vec::new()),
            read => Ok(notices(&buffer[..read? as usize])),
        }
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Decodes `struct inotify_event`: watch, mask, cookie, length, and a name of that length padded with NULs.
fn notices(mut bytes: &[u8]) -> Vec<Notice> {
    let mut notices = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<16>() {
        let number =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let Some((name, rest)) = rest.split_at_checked(number(12) as usize) else {
            break;
        };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        notices.push(Notice {
            watch: number(0).cast_signed(),
            mask: number(4),
            name: OsStr::from_bytes(name).to_owned(),
        });
        bytes = rest;
    }
    notices
}
