//! Identities of paths, by device and inode.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the device and inode of a path, without following a link.
pub fn identity_at(path: &Path) -> Option<(u64, u64)> {
    look(path).as_ref().map(identity)
}

/// Returns `true` if a path is a directory or lies in it, by device and inode.
pub fn holds(directory: &Path, path: &Path) -> bool {
    let Some(found) = look(directory) else {
        return false;
    };
    let above = path.ancestors().filter_map(look);
    above
        .into_iter()
        .any(|above| identity(&above) == identity(&found))
}

/// Returns the metadata of a path, without following a link.
pub(super) fn look(path: &Path) -> Option<Metadata> {
    fs::symlink_metadata(path).ok()
}

/// Returns the device and inode.
pub(super) fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}
