//! Deletes a file, a link or an empty directory.

use rustix::fs::{AtFlags, statat, unlinkat};
use schemars::JsonSchema;
use serde::Serialize;

use super::error::shown;
use super::resolve::{Last, Place, directory_below, kind};
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
    /// If it is outside, protected or the workspace itself, or a directory that is not empty.
    pub fn delete(&self, path: &str) -> Result<Deleted, Error> {
        self.at(path, Last::Itself, |place| {
            place.changeable()?;
            self.untrusted(place)?;
            self.check_repositories(place)?;
            self.delete_at(place)
        })
    }

    pub(super) fn delete_at(&self, place: &Place) -> Result<Deleted, Error> {
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
            _ => AtFlags::empty(),
        };
        unlinkat(&parent, name, how).map_err(&failed)?;
        Ok(Deleted { kind })
    }
}
