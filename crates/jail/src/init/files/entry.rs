//! Descriptions of files, as file operations return them.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A file of any type, as stat(2) describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Last component of the path; `/` for the root directory.
    pub name: String,
    /// Absolute path in the sandbox: the operation's own, followed by names.
    pub path: String,
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// Length in bytes (`st_size`): of a link, that of its target's text.
    pub size: u64,
    /// Permission bits with set-user-ID, set-group-ID and sticky (`st_mode & 0o7777`).
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Modification time (`st_mtim`) in nanoseconds since 1970, at most what `i64` holds: the year 2262.
    pub modified: i64,
    /// Text of a symbolic link (readlink(2)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Set if `path` or `target` is not UTF-8, so that its text here names no file.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub lossy: bool,
    /// Set for a directory whose entries were requested, but may not be read, or are too deep.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub unreadable: bool,
    /// `None` where the file system does not know when files were created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<FileIdentity>,
}

/// Identity of a file, which follows it under other names: a file that is created later has another, also with the same inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
    /// Creation time (`stx_btime`) in nanoseconds since 1970.
    pub created: u64,
}

impl FileIdentity {
    /// Returns the identity of a file.
    pub(super) fn of(found: &Metadata) -> Option<Self> {
        let created: SystemTime = found.created().ok()?;
        let created = created.duration_since(UNIX_EPOCH).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            created: u64::try_from(created.as_nanos()).ok()?,
        })
    }
}

/// A file that was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    #[serde(flatten)]
    pub entry: Entry,
    /// The file that it replaced, unless that has other names left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<FileIdentity>,
}

/// Type of a file (`st_mode & S_IFMT`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryType {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Device,
}

/// A line of a list: its entries, depth first, and then its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ListLine {
    End(ListEnd),
    Entry(Entry),
}

/// Last line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEnd {
    /// Set if nothing is missing but entries of directories that are marked as unreadable.
    pub complete: bool,
    /// Number of entries before this line.
    pub entries: u64,
}

/// A created directory, or the one that was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeDirectory {
    /// Set if the directory did not exist.
    pub created: bool,
    pub entry: Entry,
}

/// A copied file or tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copied {
    /// The copy.
    pub entry: Entry,
    /// Number of copied entries, the first one included.
    pub entries: u64,
    /// Number of sockets, FIFOs and devices, which are not copied.
    pub skipped: u64,
}

impl Entry {
    /// Returns the description of a file, with the text of a link.
    pub(super) fn new(path: &Path, found: &Metadata, target: Option<&OsStr>) -> Self {
        let name = path.file_name().unwrap_or(OsStr::new("/"));
        let is_text = |text: &OsStr| text.to_str().is_some();
        Self {
            name: name.to_string_lossy().into_owned(),
            path: path.to_string_lossy().into_owned(),
            kind: EntryType::of(found),
            size: found.len(),
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            modified: nanoseconds(found.mtime(), found.mtime_nsec()),
            target: target.map(|target| target.to_string_lossy().into_owned()),
            lossy: !is_text(path.as_os_str()) || !target.is_none_or(is_text),
            unreadable: false,
            identity: FileIdentity::of(found),
        }
    }
}

impl EntryType {
    /// Returns the type of a file.
    pub(super) fn of(found: &Metadata) -> Self {
        let kind = found.file_type();
        if kind.is_file() {
            Self::File
        } else if kind.is_dir() {
            Self::Directory
        } else if kind.is_symlink() {
            Self::Symlink
        } else if kind.is_fifo() {
            Self::Fifo
        } else if kind.is_socket() {
            Self::Socket
        } else {
            Self::Device
        }
    }
}

fn nanoseconds(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_unset(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_entry_or_the_end() {
        let entry = Entry::new(Path::new("/"), &std::fs::metadata("/").unwrap(), None);
        assert_eq!((entry.name.as_str(), entry.kind), ("/", EntryType::Directory));
        let end = ListEnd {
            complete: true,
            entries: 3,
        };
        for line in [ListLine::Entry(entry), ListLine::End(end)] {
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<ListLine>(&text).unwrap(), line);
        }
    }

    #[test]
    fn an_identity_follows_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let identity = |name: &str| FileIdentity::of(&path(name).symlink_metadata().unwrap()).unwrap();
        std::fs::write(path("a"), "1").unwrap();
        let first = identity("a");
        std::fs::rename(path("a"), path("b")).unwrap();
        std::fs::hard_link(path("b"), path("c")).unwrap();
        std::fs::write(path("b"), "changed").unwrap();
        assert_eq!([identity("b"), identity("c")], [first; 2]);
        std::fs::remove_file(path("b")).unwrap();
        std::fs::write(path("b"), "2").unwrap();
        assert_ne!(identity("b"), first);
    }

    #[test]
    fn times_beyond_the_range_are_its_ends() {
        assert_eq!(nanoseconds(1, 5), 1_000_000_005);
        assert_eq!(nanoseconds(-1, 5), -999_999_995);
        assert_eq!(nanoseconds(i64::MAX, 999_999_999), i64::MAX);
        assert_eq!(nanoseconds(i64::MIN, 0), i64::MIN);
    }
}
