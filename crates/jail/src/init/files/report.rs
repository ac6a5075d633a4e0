//! Summaries of operations on whole trees.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// Maximum number of skipped entries that are named.
const MAX_NAMED: usize = 100;

/// Summary of an archive that was written or unpacked.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeReport {
    /// Number of members.
    pub entries: u64,
    /// Total size of the members' contents, in bytes.
    pub bytes: u64,
    /// Number of entries left out.
    pub skipped: u64,
    /// The first entries left out.
    pub named: Vec<SkippedEntry>,
}

/// An entry that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedEntry {
    /// Path relative to the tree; text that is not UTF-8 is replaced.
    pub path: String,
    pub reason: SkipReason,
}

/// A reason to leave out an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A FIFO, socket or device, or a member of an unknown type.
    Special,
    /// Not readable.
    Denied,
    /// A file that changed while it was read: it is there, with the length that it had at first.
    Changed,
    /// Deeper, or with a longer path, than trees may be.
    TooLong,
}

impl TreeReport {
    /// Counts an entry that was left out.
    pub(super) fn skip(&mut self, path: &Path, reason: SkipReason) {
        self.skipped += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(SkippedEntry {
                path: path.to_string_lossy().into_owned(),
                reason,
            });
        }
    }
}
