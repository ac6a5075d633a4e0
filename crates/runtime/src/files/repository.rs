//! Refuses to make, or to change, a git repository without a working tree: git obeys its settings where it stands.

use std::path::PathBuf;

use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::resolve::{Place, directory_below};
use super::{Error, Root};

/// Entries by which git takes a directory for such a repository.
pub(crate) const MARKS: &[&str] = &["HEAD", "objects", "refs"];

impl Root {
    /// Refuses what lies in such a repository, or would complete one.
    pub(super) fn check_repositories(&self, place: &Place) -> Result<(), Error> {
        let mut above = PathBuf::from(".");
        for name in &place.names {
            let directory = match directory_below(&self.directory, &above) {
                Ok(directory) => directory,
                // What is not there holds nothing.
                Err(Errno::NOENT | Errno::NOTDIR) => break,
                Err(errno) => return Err(place.failed("look up")(errno)),
            };
            let is_there = |mark: &&str| {
                name.eq_ignore_ascii_case(mark)
                    || statat(&directory, *mark, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            };
            if MARKS.iter().all(is_there) {
                return Err(Error::Protected {
                    path: place.given.clone(),
                    why: "is in a git repository without a working tree, or would make one: git runs what its settings name",
                });
            }
            above.push(name);
        }
        Ok(())
    }
}
