//! Boot ids of cells: random ones, in place of the machine's.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::sys;

const PATH: &CStr = c"/proc/sys/kernel/random/boot_id";

/// Bytes of a file system that an id takes: one page. Where pages are larger, a cell's disk is that much smaller.
pub(crate) const BYTES: u64 = 4096;

/// The boot id of a cell: a file in its own file system, open for its init alone.
#[derive(Debug)]
pub(crate) struct BootId(File);

impl BootId {
    /// Writes a boot id to `files`, the file system that is mounted at `/cell`. Returns its read-only mount, too.
    pub(crate) fn create(files: &OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let mut options = File::options();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open("/cell/boot_id")?;
        let mut id = Self(file);
        id.renew()?;
        let mount = sys::open_tree_below(files.as_fd(), c"boot_id")?;
        let read_only = sys::MountAttributes {
            set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC,
            id_map: None,
        };
        sys::set_mount_attributes(mount.as_fd(), &read_only)?;
        Ok((id, mount))
    }

    /// Takes over the open file of an id.
    pub(crate) fn of(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// Replaces the id, as a boot does.
    pub(crate) fn renew(&mut self) -> io::Result<()> {
        // In the format of the other file, to the line's end.
        let id = fs::read("/proc/sys/kernel/random/uuid")?;
        self.0.rewind()?;
        self.0.write_all(&id)
    }
}

impl AsFd for BootId {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Covers the machine's boot id by that of a cell.
pub(crate) fn cover(mount: &OwnedFd) -> io::Result<()> {
    sys::move_mount(mount.as_fd(), PATH)
}
