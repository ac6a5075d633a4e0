//! Answers about files. A sandbox wrote them: what has not their shape is an error and passed on to nobody.
//!
//! They repeat the types of `ringfence_jail::init::files` with schemas: the jail is in every launcher, and has no use for
//! a generator of schemas. A test compares the two.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct FileEntry {
    name: String,
    /// Absolute path in the sandbox.
    path: String,
    #[serde(rename = "type")]
    kind: FileType,
    /// Length in bytes.
    size: u64,
    /// Permission bits, as a number.
    mode: u32,
    uid: u32,
    gid: u32,
    /// Time of its last change, in nanoseconds since 1970.
    modified: i64,
    /// Text of a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Set if `path` or `target` is not UTF-8, so that its text here names no file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lossy: bool,
    /// Set for a directory whose entries were asked for and may not be read, or lie too deep.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unreadable: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FileType {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

/// The entries of a directory.
#[derive(Debug, Serialize, JsonSchema)]
#[allow(dead_code, reason = "describes what the listing of a sandbox has")]
pub(super) struct FileList {
    entries: Vec<FileEntry>,
    /// Set if nothing is missing behind these but entries of directories that cannot be read.
    complete: bool,
    /// `after` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A created directory, or the one that was there.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct MadeDirectory {
    /// Set if it did not exist.
    created: bool,
    entry: FileEntry,
}

/// A copied file or tree.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct CopiedTree {
    /// The copy.
    entry: FileEntry,
    /// Number of copied entries, the first one included.
    entries: u64,
    /// Number of sockets, FIFOs and devices, which are not copied.
    skipped: u64,
}

/// An unpacked archive.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct UnpackedTree {
    /// Number of members.
    entries: u64,
    /// Bytes of their contents.
    bytes: u64,
    /// Number of members left out.
    skipped: u64,
    /// The first of them.
    named: Vec<SkippedMember>,
}

/// A member of an archive that was left out.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct SkippedMember {
    /// Path in the archive.
    path: String,
    reason: SkipReason,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SkipReason {
    /// A FIFO, socket or device, or a member of an unknown type.
    Special,
    /// Not readable.
    Denied,
    /// A file that changed while it was read.
    Changed,
    /// Deeper, or with a longer path, than trees may be.
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_sandbox::files::{Entry, EntryType};
    use serde_json::json;

    #[test]
    fn an_entry_of_a_sandbox_is_passed_on_in_full_and_nothing_else_is() {
        use EntryType::{Device, Directory, Fifo, File, Socket, Symlink};
        for kind in [File, Directory, Symlink, Fifo, Socket, Device] {
            let entry = Entry {
                name: "a".to_owned(),
                path: "/workspace/a".to_owned(),
                kind,
                size: u64::MAX,
                mode: 0o7777,
                uid: 1000,
                gid: u32::MAX,
                modified: i64::MIN,
                target: Some("b".to_owned()),
                lossy: true,
                unreadable: true,
                identity: None,
            };
            let mut told = json!(entry);
            let passed = |told| serde_json::from_value::<FileEntry>(told).map(|entry| json!(entry));
            assert_eq!(passed(told.clone()).unwrap(), told);
            told["more"] = 1.into();
            assert_eq!(passed(told).unwrap(), json!(entry));
            assert!(passed(json!({"name": "a"})).is_err());
        }
    }
}
