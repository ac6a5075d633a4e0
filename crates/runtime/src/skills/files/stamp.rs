//! By what it is known that a file of skills, its manifest, or what it may import, has changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::beside::Beside;
use super::manifest;

/// Two files, and the modules beside them, as they are at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    files: [Option<One>; 2],
    pub(super) beside: Arc<Beside>,
}

/// Which file it is, how long, and when it was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct One {
    inode: (u64, u64),
    length: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file in a directory of skills, and of its manifest.
    pub(super) fn of(directory: &Path, file: &str, beside: &Arc<Beside>) -> Self {
        let one = |path: &Path| {
            let meta = path.metadata().ok()?;
            Some(One {
                inode: (meta.dev(), meta.ino()),
                length: meta.len(),
                changed: (meta.ctime(), meta.ctime_nsec()),
            })
        };
        Self {
            files: [one(&directory.join(file)), one(&manifest::path(directory, file))],
            beside: Arc::clone(beside),
        }
    }
}
