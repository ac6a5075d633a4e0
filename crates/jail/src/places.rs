//! Paths of the root that cells see.

use std::ffi::CStr;

/// Mount point of the new root during assembly. Any directory will do: this mount namespace is private.
pub(crate) const ASSEMBLY: &str = "/tmp";

/// Directories that cells mount their own file systems on.
pub(crate) const CELL_MOUNT_POINTS: &[&str] = &[
    "/cell",
    "/tmp",
    "/workspace",
    "/output",
    "/code",
    "/proc",
    "/dev/shm",
    "/dev/pts",
];

/// Mount points of the writable directories of a cell.
pub(crate) const WRITABLE_DIRS: &[&str] = &["/tmp", "/workspace", "/output", "/dev/shm"];

pub(crate) const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// An empty directory that no guest may change, to cover others with.
pub(crate) const EMPTY: &CStr = c"/run";

/// A file that no guest may open, to cover others with.
pub(crate) const HIDDEN: &CStr = c"/dev/.hidden";
