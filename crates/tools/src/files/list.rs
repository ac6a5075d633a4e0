//! Lists a directory.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, OFlags, readlinkat, statat};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;

use super::error::shown;
use super::resolve::{Last, ResolvedPath, kind, open_below, text};
use super::{EntryKind, Error, Root};

/// Maximum number of entries scanned for the first ones by name.
const MAX_SCAN: usize = 1_000_000;
/// Maximum length of a shown link target.
const MAX_TARGET: usize = 256;

/// A directory listing, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Listing {
    /// The first entries.
    pub entries: Vec<Entry>,
    /// Number of entries left out, at least.
    pub more: u64,
}

/// A directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Entry {
    /// Name of the entry.
    pub name: String,
    /// Set if the name is not UTF-8: invalid bytes are replaced, and no tool can open it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Size of a regular file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Target of a link, unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl fmt::Display for Listing {
    /// Writes one entry a line, as `ls -F` does, with sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries.is_empty() && self.more == 0 {
            return f.write_str("[empty]");
        }
        for entry in &self.entries {
            let name = entry.name.escape_debug();
            match (entry.kind, entry.bytes, &entry.target) {
                (EntryKind::Directory, ..) => writeln!(f, "{name}/")?,
                (_, Some(bytes), _) => writeln!(f, "{name}  {bytes} bytes")?,
                (_, None, Some(target)) => writeln!(f, "{name} -> {}", target.escape_debug())?,
                (kind, None, None) => writeln!(f, "{name}  {kind:?}")?,
            }
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "[at least {more} more]"),
        }
    }
}

impl Root {
    /// Lists a directory; `.` is the workspace itself.
    ///
    /// # Errors
    /// If it is not a directory inside the workspace, or cannot be read.
    pub fn list(&self, path: &str) -> Result<Listing, Error> {
        self.at(path, Last::Target, |place| self.list_at(place))
    }

    pub(super) fn list_at(&self, place: &ResolvedPath) -> Result<Listing, Error> {
        let failed = place.failed("list");
        let (found, stat) = self.look(place)?;
        if kind(&stat) != EntryKind::Directory {
            return Err(Error::WrongKind {
                path: shown(&place.given),
                is: kind(&stat).named(),
                wanted: "a directory",
            });
        }
        let readable =
            open_below(&found, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY).map_err(&failed)?;
        let (mut names, mut count) = (BTreeSet::new(), 0_u64);
        for entry in Dir::new(readable).map_err(&failed)?.take(MAX_SCAN) {
            let entry = entry.map_err(&failed)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            count += 1;
            names.insert(name.to_owned());
            if names.len() > self.rules.max_entries {
                names.pop_last();
            }
        }
        let more = count - names.len() as u64;
        let entries: Result<Vec<_>, Errno> = names
            .into_iter()
            .filter_map(|name| entry(&found, &name).transpose())
            .collect();
        Ok(Listing {
            entries: entries.map_err(&failed)?,
            more,
        })
    }
}

/// Returns the entry with this name, or `None` if it no longer exists.
fn entry(directory: impl std::os::fd::AsFd, name: &OsString) -> Result<Option<Entry>, Errno> {
    let stat = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        found => found?,
    };
    let target = readlinkat(&directory, name, Vec::new())
        .ok()
        .map(|target| text(&OsString::from_vec(target.into_bytes())).0);
    let kind = kind(&stat);
    let (name, lossy) = text(name);
    Ok(Some(Entry {
        name,
        lossy,
        kind,
        bytes: (kind == EntryKind::File).then_some(stat.st_size.max(0) as u64),
        target: target.map(|target| target.chars().take(MAX_TARGET).collect()),
    }))
}
