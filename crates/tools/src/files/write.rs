//! Writes a file atomically, or appends to it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, Gid, Mode, OFlags, Stat, Uid, chownat, fchmod, fstat, mkdirat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::error::shown;
use super::resolve::{Last, ResolvedPath, directory_below, kind, make_below, open_below};
use super::{EntryKind, Error, Root};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// Replaces the whole file atomically: no reader sees a part of it.
    Replace,
    Append,
}

impl Root {
    /// Writes a file, creates missing parent directories, and returns the number of bytes written.
    ///
    /// # Errors
    /// If it is outside, protected, no regular file, or would be too large.
    pub fn write(&self, path: &str, content: &[u8], mode: WriteMode) -> Result<u64, Error> {
        let written = content.len() as u64;
        self.fits(path, written)?;
        self.at(path, Last::Target, |place| {
            place.changeable()?;
            self.untrusted(place)?;
            self.check_repositories(place)?;
            self.unacted(place)?;
            match mode {
                WriteMode::Replace => self.replace(place, content),
                WriteMode::Append => match self.append(place, content) {
                    Err(Error::NotFound { .. }) => self.replace(place, content),
                    done => done,
                },
            }
        })?;
        Ok(written)
    }

    fn fits(&self, path: &str, bytes: u64) -> Result<(), Error> {
        if bytes > self.rules.max_write {
            return Err(Error::TooLarge {
                path: shown(path),
                what: "the file would hold",
                limit: self.rules.max_write,
            });
        }
        Ok(())
    }

    /// Renames a new file over the old one, so that other hard links to the old one keep their content.
    pub(super) fn replace(&self, place: &ResolvedPath, content: &[u8]) -> Result<(), Error> {
        let failed = place.failed("write");
        let (Some(name), false) = (place.names.last(), place.directory) else {
            return Err(Error::directory(&place.given, "a file"));
        };
        let parent = self.parents(place)?;
        let old = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => None,
            found => Some(found.map_err(&failed)?),
        };
        match &old {
            Some(old) => replaceable(place, old)?,
            None => self.room(place, &parent)?,
        }
        // A new file gets its mode from the umask; one that replaces another is private until it is complete.
        let mode = if old.is_some() { 0o600 } else { 0o666 };
        let mut file = Temporary::create(&parent, mode).map_err(&failed)?;
        let io = |error: io::Error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        file.file.write_all(content).map_err(io)?;
        let above = fstat(&parent).map_err(&failed)?;
        give(&file.file, old.as_ref().unwrap_or(&above)).map_err(&failed)?;
        if let Some(old) = old {
            // As on a write in place, set-user-ID and set-group-ID bits are lost.
            fchmod(&file.file, Mode::from_raw_mode(old.st_mode & 0o777)).map_err(&failed)?;
        }
        file.file.sync_all().map_err(io)?;
        file.rename(name).map_err(&failed)
    }

    pub(super) fn append(&self, place: &ResolvedPath, content: &[u8]) -> Result<(), Error> {
        let (_, found) = self.look(place)?;
        replaceable(place, &found)?;
        let (mut file, found) = self.regular(place, OFlags::WRONLY | OFlags::APPEND)?;
        // The other link may be outside, where a package manager keeps files that projects share.
        if found.st_nlink > 1 {
            return Err(Error::WrongKind {
                path: shown(&place.given),
                is: "a file with several hard links",
                wanted: "one that can be added to; write it as a whole, which gives it a content of its own",
            });
        }
        self.fits(
            &place.given,
            (found.st_size.max(0) as u64).saturating_add(content.len() as u64),
        )?;
        // Only for a writer without CAP_FSETID does the kernel take set-user-ID and set-group-ID bits away.
        if found.st_mode & 0o6000 != 0 {
            fchmod(&file, Mode::from_raw_mode(found.st_mode & 0o777)).map_err(place.failed("write"))?;
        }
        let written = file.write_all(content).and_then(|()| file.sync_all());
        written.map_err(|error| place.failed("write")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Opens the parent directory of a place, and creates it if missing.
    fn parents(&self, place: &ResolvedPath) -> Result<OwnedFd, Error> {
        let failed = place.failed("make the directory of");
        let mut directory = directory_below(&self.directory, Path::new(".")).map_err(&failed)?;
        let above = place.names.len().saturating_sub(1);
        for name in place.names[..above].iter().map(Path::new) {
            directory = match directory_below(&directory, name) {
                Err(Errno::NOENT) => {
                    self.room(place, &directory)?;
                    make_directory(&directory, name)
                }
                opened => opened,
            }
            .map_err(&failed)?;
        }
        Ok(directory)
    }

    /// Rejects another entry in a directory that has as many as a listing shows.
    fn room(&self, place: &ResolvedPath, directory: &OwnedFd) -> Result<(), Error> {
        let failed = place.failed("look into the directory of");
        let readable =
            open_below(directory, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY).map_err(&failed)?;
        // Plus `.` and `..`.
        let most = self.rules.max_entries + 2;
        if Dir::new(readable).map_err(&failed)?.take(most).count() < most {
            return Ok(());
        }
        Err(Error::Limit {
            path: shown(&place.given),
            limit: self.rules.max_entries,
        })
    }
}

impl ResolvedPath {
    /// Rejects a protected place.
    pub(super) fn changeable(&self) -> Result<(), Error> {
        if self.protected {
            return Err(Error::Protected {
                path: shown(&self.given),
                why: "is configuration that programs on the host act on",
            });
        }
        Ok(())
    }
}

fn replaceable(place: &ResolvedPath, old: &Stat) -> Result<(), Error> {
    match kind(old) {
        EntryKind::File if old.st_mode & 0o222 == 0 => Err(Error::Protected {
            path: shown(&place.given),
            why: "may be written by nobody",
        }),
        EntryKind::File => Ok(()),
        EntryKind::Symlink => Err(place.changing()),
        kind => Err(Error::WrongKind {
            path: shown(&place.given),
            is: kind.named(),
            wanted: "a regular file",
        }),
    }
}

fn make_directory(above: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    match mkdirat(above, name, Mode::from_raw_mode(0o777)) {
        // Another process was faster; the open below checks that it is a directory.
        Err(Errno::EXIST) => directory_below(above, name),
        made => {
            made?;
            let directory = directory_below(above, name)?;
            give(&directory, &fstat(above)?)?;
            Ok(directory)
        }
    }
}

/// Gives a new file or directory the owner of the file that it replaces, or of its parent, so that code and
/// users can continue to change it.
fn give(made: impl AsFd, like: &Stat) -> Result<(), Errno> {
    let own = fstat(&made)?;
    if (own.st_uid, own.st_gid) == (like.st_uid, like.st_gid) {
        return Ok(());
    }
    let (owner, group) = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
    match chownat(&made, "", Some(owner), Some(group), AtFlags::EMPTY_PATH) {
        // An unprivileged user owns what it creates, and may not chown.
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// A temporary file, deleted on drop unless renamed.
struct Temporary<'a> {
    directory: &'a OwnedFd,
    name: OsString,
    file: File,
    renamed: bool,
}

impl<'a> Temporary<'a> {
    fn create(directory: &'a OwnedFd, mode: u32) -> Result<Self, Errno> {
        // The standard library's hash keys are random.
        let name = format!(".ringfence-{:016x}", RandomState::new().build_hasher().finish());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = make_below(directory, Path::new(&name), flags, Mode::from_raw_mode(mode))?;
        Ok(Self {
            directory,
            name: name.into(),
            file: file.into(),
            renamed: false,
        })
    }

    fn rename(mut self, name: &OsStr) -> Result<(), Errno> {
        renameat(self.directory, &self.name, self.directory, name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = unlinkat(self.directory, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("taken")).unwrap();
        let handle: OwnedFd = File::open(directory.path()).unwrap().into();
        drop(Temporary::create(&handle, 0o600).unwrap());
        let unnamed = Temporary::create(&handle, 0o600).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
        assert_eq!(unnamed.rename(OsStr::new("taken")), Err(Errno::ISDIR));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
