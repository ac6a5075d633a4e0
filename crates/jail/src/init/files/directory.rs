//! Handles to directories, in which names are looked up without following links.

use std::collections::BinaryHeap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, FileTimes, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::entry::Entry;
use super::error::{At, FileError, FileErrorKind};
use super::resolve::resolve;
use crate::sys;

/// Size of a buffer for names; one alone needs less than 300 bytes.
const NAMES_BUFFER: usize = 16 * 1024;

/// User and group that own a file.
#[derive(Debug, Clone, Copy)]
pub(in crate::init) struct FileOwner {
    pub(in crate::init) user: u32,
    pub(in crate::init) group: u32,
}

/// An open directory. Other programs can rename it or its entries at any time, so a name resolves to an entry
/// of this directory or to an error, never to another path.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    /// Opens the root directory.
    pub(super) fn root() -> io::Result<Self> {
        sys::open_path(c"/").map(Self)
    }

    /// Opens a directory by its path, following links. If the path is not a directory, every operation on a
    /// name in it fails with [`libc::ENOTDIR`].
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let found = resolve(path)?;
        found.directory.child_of_any_type(&found.name)
    }

    /// Opens a directory by its path, following links, to read its names.
    pub(super) fn open_readable(path: &Path) -> io::Result<Self> {
        let found = resolve(path)?;
        found.directory.readable_child(&found.name)
    }

    /// Opens a directory by a handle of it, to read its names.
    pub(super) fn of_handle(handle: &OwnedFd) -> io::Result<Self> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        sys::open_at(handle.as_fd(), c".", flags, 0).map(Self)
    }

    /// Opens a directory in this one.
    pub(super) fn child(&self, name: &OsStr) -> io::Result<Self> {
        self.open_child(name, libc::O_PATH)
    }

    /// Opens an entry of this directory as a handle. If it is not a directory, every operation on a name in it fails with
    /// [`libc::ENOTDIR`].
    pub(super) fn child_of_any_type(&self, name: &OsStr) -> io::Result<Self> {
        self.open_entry(name, libc::O_PATH, 0).map(Self)
    }

    /// Opens a directory in this one, to read its names or set its attributes.
    pub(super) fn readable_child(&self, name: &OsStr) -> io::Result<Self> {
        self.open_child(name, libc::O_RDONLY)
    }

    /// Opens the directory that this one is in.
    pub(super) fn above(&self) -> io::Result<Self> {
        self.child(OsStr::new(".."))
    }

    fn open_child(&self, name: &OsStr, flags: libc::c_int) -> io::Result<Self> {
        self.open_entry(name, flags | libc::O_DIRECTORY, 0).map(Self)
    }

    /// Opens an entry, which is not followed if it is a symbolic link.
    fn open_entry(&self, name: &OsStr, flags: libc::c_int, mode: libc::mode_t) -> io::Result<OwnedFd> {
        if is_own_id(name) && self.is_of_processes() {
            return Err(refusal());
        }
        sys::open_at(self.0.as_fd(), &c_string(name)?, flags | libc::O_NOFOLLOW, mode)
    }

    /// Returns `true` for a directory of `/proc`.
    pub(super) fn is_of_processes(&self) -> bool {
        sys::is_of_processes(self.0.as_fd())
    }

    /// Returns the metadata of the directory itself.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.0.try_clone()?).metadata()
    }

    /// Returns the number of the mount that the directory is in; `None` if the kernel does not say it.
    pub(super) fn mount(&self) -> Option<u64> {
        sys::mount_of(self.0.as_fd())
    }

    /// Returns `true` if the directory, opened for reading, hides the lower directories of an overlay
    /// ("opaque").
    pub(super) fn is_opaque(&self) -> bool {
        let mut value = [0];
        let read = sys::attribute(self.0.as_fd(), c"user.overlay.opaque", &mut value);
        read.is_ok_and(|length| value[..length] == *b"y")
    }

    /// Returns the metadata of an entry.
    pub(super) fn stat(&self, name: &OsStr) -> io::Result<Metadata> {
        File::from(self.open_entry(name, libc::O_PATH, 0)?).metadata()
    }

    /// Returns the description of an entry, whose path is `path`.
    pub(super) fn entry(&self, name: &OsStr, path: &Path) -> io::Result<Entry> {
        let found = self.stat(name)?;
        let target = match found.is_symlink() {
            true => Some(self.link_target(name)?),
            false => None,
        };
        Ok(Entry::new(path, &found, target.as_deref()))
    }

    pub(super) fn link_target(&self, name: &OsStr) -> io::Result<OsString> {
        sys::read_link_at(self.0.as_fd(), &c_string(name)?)
    }

    /// Returns the names in a directory opened for reading, sorted, and `true` if there are no more than `most`.
    pub(super) fn names(&self, most: usize) -> io::Result<(Vec<OsString>, bool)> {
        let (mut names, mut buffer) = (Vec::new(), vec![0; NAMES_BUFFER]);
        sys::rewind(self.0.as_fd())?;
        while names.len() <= most && sys::read_names(self.0.as_fd(), &mut buffer, &mut names)? {}
        let complete = names.len() <= most;
        names.truncate(most);
        names.sort_unstable();
        Ok((names, complete))
    }

    /// Returns the first `most` names in a directory opened for reading that come behind `after`, sorted, and `true` if there are no
    /// more than these. Holds no others.
    pub(super) fn names_after(
        &self,
        after: Option<&OsStr>,
        most: usize,
    ) -> io::Result<(Vec<OsString>, bool)> {
        let (mut first, mut complete) = (BinaryHeap::new(), true);
        self.each_name(|name| {
            if after.is_some_and(|after| name <= after) {
                return Ok(());
            }
            if first.len() < most {
                first.push(name.to_owned());
                return Ok(());
            }
            complete = false;
            if let Some(mut last) = first.peek_mut().filter(|last| name < last.as_os_str()) {
                *last = name.to_owned();
            }
            Ok(())
        })?;
        Ok((first.into_sorted_vec(), complete))
    }

    /// Calls a function with the names in a directory opened for reading, some at a time.
    pub(super) fn each_name(&self, mut each: impl FnMut(&OsStr) -> io::Result<()>) -> io::Result<()> {
        let (mut names, mut buffer) = (Vec::new(), vec![0; NAMES_BUFFER]);
        sys::rewind(self.0.as_fd())?;
        while sys::read_names(self.0.as_fd(), &mut buffer, &mut names)? {
            names.drain(..).try_for_each(|name| each(&name))?;
        }
        Ok(())
    }

    /// Opens a regular file for reading. Never blocks on a FIFO or on a file with a lease.
    pub(super) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        self.open_entry(name, flags, 0).map(File::from)
    }

    /// Creates a file that only its owner can open.
    pub(super) fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        self.open_entry(name, flags, 0o600).map(File::from)
    }

    pub(super) fn create_directory(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        sys::mkdir_at(self.0.as_fd(), &c_string(name)?, mode)
    }

    pub(super) fn create_link(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        sys::symlink_at(&c_string(target)?, self.0.as_fd(), &c_string(name)?)
    }

    /// Gives an entry a second name, in the directory `to`.
    pub(super) fn create_hard_link(&self, name: &OsStr, to: &Self, second: &OsStr) -> io::Result<()> {
        sys::link_at(self.0.as_fd(), &c_string(name)?, to.0.as_fd(), &c_string(second)?)
    }

    /// Renames an entry to another one of the directory `to`.
    pub(super) fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> io::Result<()> {
        sys::rename_at(self.0.as_fd(), &c_string(name)?, to.0.as_fd(), &c_string(new)?)
    }

    /// Removes an entry that is not a directory.
    pub(super) fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        sys::unlink_at(self.0.as_fd(), &c_string(name)?)
    }

    /// Removes an empty directory.
    pub(super) fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        sys::remove_directory_at(self.0.as_fd(), &c_string(name)?)
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Gives a directory opened for reading to an owner, if there is one.
    pub(super) fn give_to_owner(&self, owner: Option<FileOwner>) -> io::Result<()> {
        match owner {
            None => Ok(()),
            Some(FileOwner { user, group }) => fchown(&self.0, Some(user), Some(group)),
        }
    }

    /// Gives a directory opened for reading to another owner, if we may.
    pub(super) fn give_to(&self, user: u32, group: u32) {
        let _ = fchown(&self.0, Some(user), Some(group));
    }

    /// Gives an entry, which is not followed if it is a symbolic link, to another owner.
    pub(super) fn give_entry_to(&self, name: &OsStr, owner: FileOwner) -> io::Result<()> {
        sys::change_owner_at(self.0.as_fd(), &c_string(name)?, owner.user, owner.group)
    }

    /// Returns the descriptor.
    pub(super) fn into_file(self) -> File {
        self.0.into()
    }

    /// Sets the attributes of a directory opened for reading.
    pub(super) fn set_attributes(&self, mode: u32, modified: SystemTime) -> io::Result<()> {
        set_attributes(&File::from(self.0.try_clone()?), mode, modified)
    }
}

/// Sets permission bits and modification time.
pub(super) fn set_attributes(file: &File, mode: u32, modified: SystemTime) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))?;
    file.set_times(FileTimes::new().set_modified(modified))
}

/// Returns `true` if both describe the same file.
pub(super) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// An entry of an open directory, which may be missing.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) parent: Directory,
    pub(super) name: OsString,
    /// The path by which it was found.
    pub(super) path: PathBuf,
}

impl Location {
    /// Finds the entry of a path. Links on the way are followed, a final one is not.
    pub(super) fn of(path: &Path) -> Result<Self, FileError> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            let message = "the path must end in a name, found the root directory or `..`";
            return Err(FileError::new(FileErrorKind::Invalid, path, message));
        };
        Ok(Self {
            parent: Directory::open(above).at(path)?,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Finds the entry of a path, and creates the directories on the way.
    pub(super) fn making_parents(path: &Path) -> Result<Self, FileError> {
        if let (Some(above), true) = (path.parent(), path.file_name().is_some()) {
            create_all(above)?;
        }
        Self::of(path)
    }

    pub(super) fn stat(&self) -> io::Result<Metadata> {
        self.parent.stat(&self.name)
    }

    pub(super) fn entry(&self) -> Result<Entry, FileError> {
        self.parent.entry(&self.name, &self.path).at(&self.path)
    }
}

/// Creates a directory, and those on the way to it; returns `true` if it was not there.
pub(super) fn create_all(path: &Path) -> Result<bool, FileError> {
    let found = resolve(path).at(path)?;
    match &found.found {
        Some(found) if found.is_dir() => return Ok(false),
        None if !found.is_behind_link(false) => {}
        // What is there is no directory, or a link that leads nowhere.
        _ => return Err(io::Error::from_raw_os_error(libc::ENOTDIR)).at(path),
    }
    found.make_directories(None).at(path).map(|_| true)
}

/// Returns `true` for the name that the process itself has in `/proc`.
fn is_own_id(name: &OsStr) -> bool {
    let is_number = name.as_bytes().first().is_some_and(u8::is_ascii_digit);
    is_number && name.as_bytes() == sys::process_ids().0.to_string().as_bytes()
}

/// Returns the error of a path that leads to a process by a link of `/proc`, or to the process of the operation itself.
pub(super) fn refusal() -> io::Error {
    let message = "links of /proc, and the process of a file operation, are closed to file operations";
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directories_are_made_but_not_through_links_that_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("old")).unwrap();
        symlink("old", path("link")).unwrap();
        assert!(create_all(&path("old/new/deep")).unwrap());
        assert!(!create_all(&path("old/new")).unwrap());
        assert!(create_all(&path("link/other")).unwrap());
        assert!(path("old/new/deep").is_dir() && path("old/other").is_dir());
        symlink("nowhere", path("dangling")).unwrap();
        fs::write(path("file"), "").unwrap();
        for taken in ["dangling", "dangling/below", "file", "file/below"] {
            let error = create_all(&path(taken)).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::NotADirectory, "{taken}");
        }
        assert!(!path("nowhere").exists());
    }
}
