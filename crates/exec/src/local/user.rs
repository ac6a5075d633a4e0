//! The user that we run as, and the one that guests run as.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// User id of guests without namespaces, if we are root.
pub const NOBODY: u32 = 65_534;

/// Returns `true` if we are root, in any user namespace.
pub fn is_root() -> bool {
    effective_uid() == Some(0)
}

/// Returns our user id, from the owner of our entry in /proc.
pub(super) fn effective_uid() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
}
