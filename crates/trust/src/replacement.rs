//! Replacement of a file at a resolved path: readers see the old file or the new one, never a part.

use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::named::names;
use super::resolve::is_own_descriptor;

/// Flags of every step. A component that has become a link since it was resolved is an error (ELOOP, ENOTDIR).
pub(super) const FIXED: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// New content of a file, which takes its place at [`Replacement::commit`]. Dropped before, it leaves the file as it was.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    /// `None` for a device or pipe, which is written in place.
    pending: Option<Pending>,
}

/// A temporary file beside its destination. Removed on drop.
#[derive(Debug)]
struct Pending {
    directory: OwnedFd,
    temporary: OsString,
    name: OsString,
}

impl Replacement {
    /// Opens new content for a resolved path. Directories above it that do not exist are made.
    ///
    /// # Errors
    /// If a file that is there may not be written, is a directory, or nothing can be made beside it.
    pub fn begin(path: &Path) -> io::Result<Self> {
        if is_own_descriptor(path) {
            let file = File::options().write(true).open(path)?;
            return Ok(Self { file, pending: None });
        }
        let names = names(path);
        let Some((name, above)) = names.split_last() else {
            return Err(io::ErrorKind::IsADirectory.into());
        };
        let directory = enter(above)?;
        let flags = FIXED | OFlags::WRONLY | OFlags::NOCTTY;
        let replaced = match openat(&directory, *name, flags, Mode::empty()) {
            Ok(found) => Some(File::from(found)),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        match replaced {
            Some(file) if !file.metadata()?.is_file() => Ok(Self { file, pending: None }),
            Some(file) => match Self::beside(directory, name, Some(&file)) {
                // Where nothing can be put beside it, it is written in place.
                Err(error) if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) => {
                    file.set_len(0)?;
                    Ok(Self { file, pending: None })
                }
                begun => begun,
            },
            None => Self::beside(directory, name, None),
        }
    }

    /// Opens a temporary file of at most this mode.
    pub(super) fn new_beside(directory: OwnedFd, name: &OsStr, mode: u32) -> io::Result<Self> {
        let temporary = unused_name();
        let flags = FIXED | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = openat(&directory, &temporary, flags, Mode::from_raw_mode(mode))?;
        Ok(Self {
            file: File::from(file),
            pending: Some(Pending {
                directory,
                temporary,
                name: name.to_owned(),
            }),
        })
    }

    /// Opens a temporary file with the permissions and, where allowed, the owner of the one that it replaces.
    fn beside(directory: OwnedFd, name: &OsStr, replaced: Option<&File>) -> io::Result<Self> {
        let new = Self::new_beside(directory, name, 0o666)?;
        if let Some(replaced) = replaced {
            let meta = replaced.metadata()?;
            // Only root may give a file away. Anybody else's copy is their own, and nobody's beside.
            let mode = match fchown(&new.file, Some(meta.uid()), Some(meta.gid())) {
                Ok(()) => meta.mode() & 0o777,
                Err(_) => meta.mode() & 0o700,
            };
            new.file.set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(new)
    }

    /// Lets those execute the file who may read it.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn make_executable(&self) -> io::Result<()> {
        if self.pending.is_none() {
            return Ok(());
        }
        let mode = self.file.metadata()?.mode() & 0o777;
        let permissions = Permissions::from_mode(mode | (mode & 0o444) >> 2);
        self.file.set_permissions(permissions)
    }

    /// Returns the metadata of the new content.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Sets the time of the last change.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.file.set_times(FileTimes::new().set_modified(time))
    }

    /// Puts the new content into the file's place.
    ///
    /// # Errors
    /// If the file system refuses; the old file stays.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.flush()?;
        let Some(pending) = self.pending.take() else {
            return Ok(());
        };
        let directory = &pending.directory;
        renameat(directory, &pending.temporary, directory, &pending.name)?;
        // Nothing of that name is left for its drop.
        Ok(())
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // After a commit there is none.
        let _ = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
    }
}

/// Opens a directory by its names from the root, and makes those that do not exist.
pub(super) fn enter(names: &[&OsStr]) -> io::Result<OwnedFd> {
    let flags = FIXED | OFlags::PATH | OFlags::DIRECTORY;
    let mut directory = openat(CWD, "/", flags, Mode::empty())?;
    for name in names {
        directory = match openat(&directory, *name, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                match mkdirat(&directory, *name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
                openat(&directory, *name, flags, Mode::empty())?
            }
            entered => entered?,
        };
    }
    Ok(directory)
}

pub(super) fn unused_name() -> OsString {
    format!(".ringfence-{:016x}", RandomState::new().build_hasher().finish()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn entries(directory: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(name).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn a_file_is_as_it_was_until_the_commit() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let file = root.join("file");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let mut dropped = Replacement::begin(&file).unwrap();
        dropped.write_all(b"a part").unwrap();
        assert_eq!(entries(&root).len(), 2);
        drop(dropped);
        assert_eq!(entries(&root), ["file"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        let mut new = Replacement::begin(&file).unwrap();
        new.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        new.commit().unwrap();
        assert_eq!(entries(&root), ["file"]);
        assert_eq!(
            (fs::read_to_string(&file).unwrap(), mode(&file)),
            ("new".to_owned(), 0o640)
        );
    }

    #[test]
    fn a_new_file_has_the_usual_mode_and_its_parents() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::write(root.join("usual"), "").unwrap();
        let usual = mode(&root.join("usual"));
        let file = root.join("a/b/file");
        Replacement::begin(&file).unwrap().commit().unwrap();
        assert_eq!(mode(&file), usual);
        let executable = Replacement::begin(&file).unwrap();
        executable.make_executable().unwrap();
        executable.commit().unwrap();
        assert_eq!(mode(&file), usual | (usual & 0o444) >> 2);
    }

    #[test]
    fn no_link_is_followed_and_no_directory_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/file"), "old").unwrap();
        symlink("real", root.join("link")).unwrap();
        symlink("real/file", root.join("last")).unwrap();
        for name in ["link/file", "last", "real"] {
            // Each can be opened outside of these rules.
            assert!(File::open(root.join(name)).is_ok());
            assert!(Replacement::begin(&root.join(name)).is_err(), "{name}");
        }
        // A link that takes the file's place meanwhile is replaced itself.
        let mut new = Replacement::begin(&root.join("new")).unwrap();
        new.write_all(b"new").unwrap();
        symlink("real/file", root.join("new")).unwrap();
        new.commit().unwrap();
        assert_eq!(fs::read_to_string(root.join("new")).unwrap(), "new");
        assert_eq!(fs::read_to_string(root.join("real/file")).unwrap(), "old");
    }

    #[test]
    fn a_device_is_written_in_place() {
        let mut null = Replacement::begin(Path::new("/dev/null")).unwrap();
        null.write_all(b"gone").unwrap();
        null.make_executable().unwrap();
        null.commit().unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
    }
}
