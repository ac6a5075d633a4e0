//! Denies creating or changing a bare git repository: git executes its configuration in place.

use std::path::PathBuf;

use ringfence_exec::trust::git;
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use super::resolve::{ResolvedPath, directory_below};
use super::{Error, Root};

impl Root {
    /// Rejects a place that is in a bare repository, or would complete one.
    pub(super) fn check_repositories(&self, place: &ResolvedPath) -> Result<(), Error> {
        let mut above = PathBuf::from(".");
        for name in &place.names {
            let directory = match directory_below(&self.directory, &above) {
                Ok(directory) => directory,
                // A directory that does not exist has no entries.
                Err(Errno::NOENT | Errno::NOTDIR) => break,
                Err(errno) => return Err(place.failed("look up")(errno)),
            };
            let is_there = |mark: &str| {
                name.eq_ignore_ascii_case(mark) || statat(&directory, mark, AtFlags::SYMLINK_NOFOLLOW).is_ok()
            };
            let never = git::NEVER.iter().any(|never| name.eq_ignore_ascii_case(never));
            if never || git::is_repository(is_there) {
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
