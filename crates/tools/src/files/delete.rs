//! Deletes a file, a link or an empty directory.

use ringfence_exec::local::MAX_RULES;
use rustix::fs::{AtFlags, statat, unlinkat};
use schemars::JsonSchema;
use serde::Serialize;

use super::error::shown;
use super::resolve::{Last, ResolvedPath, directory_below, kind};
use super::{EntryKind, Error, Root};

/// Result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Deleted {
    /// Kind of the deleted entry.
    pub kind: EntryKind,
}

impl Root {
    /// Deletes a file, an empty directory, or a link (never its target).
    ///
    /// # Errors
    /// If it is outside, protected or the workspace itself, or a directory that is not empty. Where the top
    /// directory holds too many protected names for programs to add to it, those of a pattern are deleted.
    pub fn delete(&self, path: &str) -> Result<Deleted, Error> {
        self.at(path, Last::Itself, |place| {
            if !self.is_surplus(place) {
                place.changeable()?;
            }
            self.untrusted(place)?;
            self.check_repositories(place)?;
            self.unacted(place)?;
            self.delete_at(place)
        })
    }

    /// Returns `true` for one of too many entries of the top directory that only a pattern protects.
    fn is_surplus(&self, place: &ResolvedPath) -> bool {
        let protected = &self.rules.protected;
        let [name] = &*place.names else { return false };
        if protected.names(name) {
            return false;
        }
        let top = std::fs::read_dir(&self.real).into_iter().flatten().flatten();
        let of_pattern = top.filter(|entry| protected.ends(&[entry.file_name()]));
        of_pattern.take(MAX_RULES + 1).count() > MAX_RULES
    }

    pub(super) fn delete_at(&self, place: &ResolvedPath) -> Result<Deleted, Error> {
        let failed = place.failed("delete");
        let Some((above, name)) = place.split() else {
            return Err(Error::Protected {
                path: shown(&place.given),
                why: "is the workspace itself",
            });
        };
        let parent = directory_below(&self.directory, &above).map_err(&failed)?;
        let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(&failed)?;
        let kind = kind(&stat);
        let how = match kind {
            EntryKind::Directory => AtFlags::REMOVEDIR,
            EntryKind::File
            | EntryKind::Symlink
            | EntryKind::Fifo
            | EntryKind::Socket
            | EntryKind::Device => AtFlags::empty(),
        };
        unlinkat(&parent, name, how).map_err(&failed)?;
        Ok(Deleted { kind })
    }
}
