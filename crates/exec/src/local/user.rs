//! The user that we run as, and the one that guests run as.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

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

/// Set if we are root of the initial user namespace.
pub(super) static MAPS_ANY_ID: LazyLock<bool> = LazyLock::new(|| {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let initial = map.split_whitespace().eq(["0", "0", "4294967295"]);
    initial && effective_uid() == Some(0)
});
