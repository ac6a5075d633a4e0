//! Detects changes of a skill file, its manifest, or the modules that it may import.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::beside::Beside;
use super::manifest;

/// A snapshot of a skill file, its manifest and its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamp {
    files: [Option<FileStamp>; 2],
    pub(super) beside: Arc<Beside>,
}

/// Identity, length and change time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: (u64, u64),
    length: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Takes a snapshot of a file in a directory of skills.
    pub(super) fn of(directory: &Path, file: &str, beside: &Arc<Beside>) -> Self {
        let one = |path: &Path| {
            let meta = path.metadata().ok()?;
            Some(FileStamp {
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
