//! The tree that layers are unpacked into. No name leads out of it, not even through links.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, linkat, mkdirat, openat, openat2, readlinkat, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

/// Maximum number of directories on the way to an entry: removing and listing keep one open for each.
pub(crate) const MAX_DEPTH: usize = 128;

/// Links are followed as if the tree were the root: as a program in the image would find it.
const INSIDE: ResolveFlags = ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS);

/// Maximum number of attempts at a look-up.
const ATTEMPTS: usize = 128;

/// A tree of which this process alone changes the entries.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    /// The kernel's path of the root.
    path: PathBuf,
}

/// An open directory of a tree.
#[derive(Debug)]
pub(crate) struct Directory {
    handle: OwnedFd,
    /// Path below the root, without links.
    pub(crate) path: PathBuf,
}

impl Tree {
    /// Opens a tree by its root, which is the caller's.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let path = path_of(&root)?;
        Ok(Self { root, path })
    }

    /// Opens a directory; `None` if it is missing.
    pub(crate) fn directory(&self, path: &Path) -> io::Result<Option<Directory>> {
        let name = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let plain = INSIDE.union(ResolveFlags::NO_SYMLINKS);
        let (handle, path) = match open_with(&self.root, name, flags, plain) {
            Ok(handle) => (handle, path.to_owned()),
            Err(Errno::LOOP) => {
                let handle = match open_inside(&self.root, name, flags) {
                    Err(Errno::NOENT) => return Ok(None),
                    handle => handle?,
                };
                let path = path_of(&handle)?;
                let below = path.strip_prefix(&self.path).map_err(io::Error::other)?;
                (handle, below.to_owned())
            }
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if path.components().count() >= MAX_DEPTH {
            return Err(io::Error::other("directories are nested too deeply"));
        }
        Ok(Some(Directory { handle, path }))
    }

    /// Opens a directory, and makes it and those on the way if they are missing. Calls `made` for each.
    pub(crate) fn make(
        &self,
        path: &Path,
        made: &mut dyn FnMut(&Path) -> io::Result<()>,
    ) -> io::Result<Directory> {
        if let Some(found) = self.directory(path)? {
            return Ok(found);
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(ErrorKind::NotFound.into());
        };
        let parent = self.make(above, made)?;
        made(&parent.path.join(name))?;
        mkdirat(&parent.handle, name, Mode::from_raw_mode(0o755))?;
        self.directory(&parent.path.join(name))?
            .ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Directory {
    /// Returns the type of an entry; `None` if it is missing.
    pub(crate) fn kind(&self, name: &OsStr) -> io::Result<Option<FileType>> {
        match statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a new file, closed to other users.
    pub(crate) fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(&self.handle, name, flags, Mode::from_raw_mode(0o600))?;
        Ok(File::from(handle))
    }

    pub(crate) fn create_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(mkdirat(&self.handle, name, Mode::from_raw_mode(0o755))?)
    }

    /// Sets the permission bits of a directory in this one.
    pub(crate) fn set_directory_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let child = self.readable(name)?;
        Ok(rustix::fs::fchmod(child, Mode::from_raw_mode(mode))?)
    }

    pub(crate) fn create_symlink(&self, name: &OsStr, target: &[u8]) -> io::Result<()> {
        Ok(symlinkat(OsStr::from_bytes(target), &self.handle, name)?)
    }

    /// Gives an entry a second name, in the directory `to`. A symbolic link is not followed.
    pub(crate) fn create_hard_link(&self, name: &OsStr, to: &Self, second: &OsStr) -> io::Result<()> {
        Ok(linkat(&self.handle, name, &to.handle, second, AtFlags::empty())?)
    }

    /// Removes an entry with all that is in it, if it is there.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        remove_at(self.handle.as_fd(), name)
    }

    /// Removes an entry with its contents, except for entries for which `keep` returns `true`, and their
    /// parent directories. An error of `keep` ends the removal.
    pub(crate) fn remove_but(
        &self,
        name: &OsStr,
        keep: &mut dyn FnMut(&Path) -> io::Result<bool>,
    ) -> io::Result<()> {
        let path = self.path.join(name);
        if !keep(&path)? {
            return self.remove(name);
        }
        if self.kind(name)? != Some(FileType::Directory) {
            return Ok(());
        }
        let child = Self {
            handle: self.readable(name)?,
            path,
        };
        child.clear_but(keep)
    }

    /// Removes the entries of a directory, as [`Self::remove_but`] does.
    pub(crate) fn clear_but(&self, keep: &mut dyn FnMut(&Path) -> io::Result<bool>) -> io::Result<()> {
        for name in names(self.readable(OsStr::new("."))?)? {
            self.remove_but(&name, keep)?;
        }
        Ok(())
    }

    fn readable(&self, name: &OsStr) -> io::Result<OwnedFd> {
        readable_at(self.handle.as_fd(), name)
    }
}

/// Opens a path below `root` as if `root` were the root directory. Links cannot lead out of it.
pub(crate) fn open_inside(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    open_with(root, path, flags, INSIDE)
}

fn open_with(root: &OwnedFd, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let open = || openat2(root, path, flags, Mode::empty(), resolve);
    let mut opened = open();
    // The kernel returns EAGAIN if any rename or mount of the machine raced with a `..` on the way.
    for _ in 1..ATTEMPTS {
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
        opened = open();
    }
    opened
}

fn readable_at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(directory, name, flags, Mode::empty())?)
}

fn remove_at(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let child = readable_at(directory, name)?;
    for name in names(child.try_clone()?)? {
        remove_at(child.as_fd(), &name)?;
    }
    Ok(unlinkat(directory, name, AtFlags::REMOVEDIR)?)
}

fn names(directory: OwnedFd) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = Vec::new();
    for entry in Dir::new(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(std::ffi::OsString::from_vec(name.to_vec()));
        }
    }
    Ok(names)
}

pub(crate) fn path_of(handle: &OwnedFd) -> io::Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let target = readlinkat(rustix::fs::CWD, link, Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
}

/// Returns the path of a member, relative to the tree's root. `None` if it is too long or contains `..`.
pub(crate) fn plain(bytes: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(bytes));
    if bytes.len() >= 4096 || path.components().count() > MAX_DEPTH {
        return None;
    }
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}
