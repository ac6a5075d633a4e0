//! Denies changes to files that Ringfence itself trusts, by inode as well as by name.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ringfence_exec::trust::{self, Acted, Conflict};
use ringfence_policy::Access;
use rustix::fs::{AtFlags, OFlags, Stat, fstat, statat};
use rustix::io::Errno;

use super::error::shown;
use super::resolve::{ResolvedPath, directory_below};
use super::{Error, Root};

/// Maximum number of parent directories to walk, in case the place is moved outside. Beyond it, access is
/// denied.
const MAX_DEPTH: usize = 1024;

/// A file by device and inode number.
type Identity = (u64, u64);

impl Root {
    /// Rejects trusted paths and everything below them: Ringfence executes, loads or relies on these.
    pub(super) fn untrusted(&self, place: &ResolvedPath) -> Result<(), Error> {
        let relied_on = || Error::Protected {
            path: shown(&place.given),
            why: "is what Ringfence itself relies on",
        };
        let mounts = trust::protected_mounts(&self.real, &self.rules.trusted);
        let mounts = mounts.map_err(|conflict| match conflict {
            Conflict::Imported { .. }
            | Conflict::Server { .. }
            | Conflict::ServerUnsearched { .. }
            | Conflict::ServerLinked { .. } => Error::Relied {
                path: shown(&place.given),
                conflict,
            },
            Conflict::Around { .. }
            | Conflict::Linked { .. }
            | Conflict::Leads { .. }
            | Conflict::Many { .. }
            | Conflict::Unkept { .. }
            | Conflict::Found { .. } => relied_on(),
        })?;
        let mounts = mounts
            .into_iter()
            .filter(|mount| mount.access == Access::ReadOnly);
        let kept: Vec<PathBuf> = mounts.map(|mount| mount.below).collect();
        if kept.is_empty() {
            return Ok(());
        }
        let path = place.path();
        if kept.iter().any(|kept| path.starts_with(kept)) {
            return Err(relied_on());
        }
        let identities: Vec<Identity> = kept
            .iter()
            .filter_map(|kept| trust::identity_at(&self.real.join(kept)))
            .collect();
        match self.passes(place, &identities).map_err(place.failed("look up"))? {
            true => Err(relied_on()),
            false => Ok(()),
        }
    }

    /// Rejects paths that programs on the host act on because a protected link at the top, or the settings of
    /// git, lead there.
    pub(super) fn unacted(&self, place: &ResolvedPath) -> Result<(), Error> {
        let acted_on = || Error::Protected {
            path: shown(&place.given),
            why: "is what a protected link or git's settings lead to: programs on the host act on it",
        };
        let top = std::fs::read_dir(&self.real).into_iter().flatten().flatten();
        let links = top.filter(|entry| self.rules.protected.ends(&[entry.file_name()]));
        let links: Vec<PathBuf> = links.map(|entry| entry.path()).collect();
        let acted = trust::acted_on(&self.real, &Acted::find(&self.real, &links)).map_err(|_| acted_on())?;
        let path = place.path();
        if acted.covers(&path) {
            return Err(acted_on());
        }
        let identities = acted.identities(&self.real);
        match self.passes(place, &identities).map_err(place.failed("look up"))? {
            true => Err(acted_on()),
            false => Ok(()),
        }
    }

    /// Returns `true` if a place is one of these files, or inside one.
    fn passes(&self, place: &ResolvedPath, identities: &[Identity]) -> Result<bool, Errno> {
        let mut above = place.path();
        let mut directory = loop {
            let name = above.file_name().map(ToOwned::to_owned);
            let is_top = !above.pop() || above.as_os_str().is_empty();
            let parent = if is_top { ".".into() } else { above.clone() };
            match directory_below(&self.directory, &parent) {
                Err(Errno::NOENT | Errno::NOTDIR) if !is_top => {}
                opened => {
                    let opened = opened?;
                    let last = name.map(|name| statat(&opened, &*name, AtFlags::SYMLINK_NOFOLLOW));
                    if last.is_some_and(|last| last.is_ok_and(|last| identities.contains(&identity(&last)))) {
                        return Ok(true);
                    }
                    break opened;
                }
            }
        };
        let root = identity(&fstat(&self.directory)?);
        for _ in 0..MAX_DEPTH {
            let here = identity(&fstat(&directory)?);
            if identities.contains(&here) {
                return Ok(true);
            }
            if here == root {
                return Ok(false);
            }
            directory = upwards(&directory)?;
        }
        Ok(true)
    }
}

fn upwards(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, "..", flags, rustix::fs::Mode::empty())
}

fn identity(found: &Stat) -> Identity {
    (found.st_dev, found.st_ino)
}
