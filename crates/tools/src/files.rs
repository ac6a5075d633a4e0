//! The workspace: a directory that file tools cannot leave.
//!
//! A [`Root`] holds the directory's descriptor. A path is first resolved to names that hold no link, and then
//! opened by these names in one system call, `openat2`, which refuses every link and everything outside of
//! that descriptor. Containment therefore rests on one rule of the kernel; resolving only makes links that
//! stay inside work, and finds which names are touched. If the tree changes between the two steps, the kernel
//! refuses and we retry.
//!
//! All calls are synchronous and may block on the disk.

mod delete;
mod error;
mod kept;
mod list;
mod read;
mod repository;
mod resolve;
mod write;

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use ringfence_exec::protected::Protected;
use ringfence_policy::Trusted;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, openat2};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;

pub use delete::Deleted;
pub use error::{Error, Kind};
pub use list::{Entry, Listing};
pub use read::{Body, FileText};
pub use write::WriteMode;

/// Limits and protected paths of file tools in a workspace.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Maximum number of bytes of text that one read returns.
    pub max_read: usize,
    /// Maximum size of a written file, in bytes.
    pub max_write: u64,
    /// Maximum number of entries that a listing shows, and of a directory that an entry is added to.
    pub max_entries: usize,
    /// Read-only names.
    pub protected: Protected,
    /// Read-only paths on the host.
    pub trusted: Trusted,
}

impl Rules {
    /// Returns the default limits and protected names.
    pub fn standard() -> Self {
        Self {
            max_read: 256 << 10,
            max_write: 16 << 20,
            max_entries: 5_000,
            protected: Protected::standard(),
            trusted: Trusted::none(),
        }
    }
}

/// A workspace: the root directory of file tools.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    /// Absolute path as given.
    path: PathBuf,
    /// Path without symbolic links, as programs print it.
    real: PathBuf,
    rules: Rules,
}

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A device.
    Device,
}

/// The owner of a created directory, if it is another user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User id; the group id is the same.
    pub user: u32,
    /// Set if the owner reaches the directory by its path rather than by a mount: created parents then grant
    /// search permission.
    pub comes_by_path: bool,
}

impl Root {
    /// Opens an existing directory. Its path may contain links, but it must not be one itself.
    ///
    /// # Errors
    /// If there is no such directory, or the kernel does not support containment.
    pub fn open(path: &Path, rules: Rules) -> Result<Self, Error> {
        let path = absolute(path)?;
        let directory = open_plain(&path, OFlags::NOFOLLOW)
            .map_err(|errno| Error::root(&path, "open the workspace", errno))?;
        Self::of(directory, path, rules)
    }

    /// Opens a directory; creates it and its parents if missing. A created directory belongs to `owner`, if
    /// given.
    ///
    /// # Errors
    /// If a missing part of the path turns out to be a link, or the directory cannot be created.
    pub fn create(path: &Path, rules: Rules, owner: Option<Owner>) -> Result<Self, Error> {
        let path = absolute(path)?;
        let failed = |errno| Error::root(&path, "make the workspace", errno);
        let mut missing: Vec<&OsStr> = Vec::new();
        let mut existing = path.as_path();
        let mut follow = OFlags::NOFOLLOW;
        let directory = loop {
            match open_plain(existing, follow) {
                Err(Errno::NOENT) => {
                    missing.push(existing.file_name().ok_or_else(|| failed(Errno::NOENT))?);
                    existing = existing.parent().ok_or_else(|| failed(Errno::NOENT))?;
                    follow = OFlags::empty();
                }
                opened => break opened.map_err(failed)?,
            }
        };
        missing.reverse();
        let directory = descend(directory, &missing, owner).map_err(failed)?;
        Self::of(directory, path, rules)
    }

    /// As [`Root::create`], for a path relative to the directory `base`. Only the path of `base` may contain
    /// links, since an attacker may control its content.
    ///
    /// # Errors
    /// If a part of the path is a link or leads upwards, or the directory cannot be created.
    pub fn create_below(base: &Path, path: &Path, rules: Rules, owner: Option<Owner>) -> Result<Self, Error> {
        let whole = absolute(&base.join(path))?;
        let failed = |errno| Error::root(&whole, "make the workspace", errno);
        let names = path.components().filter(|name| *name != Component::CurDir);
        let names = names.map(|name| match name {
            Component::Normal(name) => Ok(name),
            _ => Err(failed(Errno::XDEV)),
        });
        let names: Vec<&OsStr> = names.collect::<Result<_, _>>()?;
        let base = open_plain(base, OFlags::empty()).map_err(failed)?;
        let directory = descend(base, &names, owner).map_err(failed)?;
        Self::of(directory, whole, rules)
    }

    fn of(directory: OwnedFd, path: PathBuf, rules: Rules) -> Result<Self, Error> {
        let failed = |errno| Error::root(&path, "open the workspace", errno);
        // Detects a kernel without openat2 now rather than on first use.
        resolve::open_below(&directory, Path::new("."), OFlags::PATH).map_err(failed)?;
        let real = std::fs::read_link(handle(&directory))
            .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        Ok(Self {
            directory,
            path,
            real,
            rules,
        })
    }

    /// Returns the same directory under other rules.
    pub(crate) fn under(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Returns the directory's absolute path on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path without links, so that no link that is replaced later redirects code.
    pub(crate) fn real(&self) -> &Path {
        &self.real
    }
}

/// Opens the directory `names` below another one, creating missing ones. None may be a link.
fn descend(mut directory: OwnedFd, names: &[&OsStr], owner: Option<Owner>) -> Result<OwnedFd, Errno> {
    for (index, name) in names.iter().enumerate() {
        let last = index + 1 == names.len();
        let passed = owner.is_some_and(|owner| owner.comes_by_path);
        let mode = if passed && !last { 0o711 } else { 0o700 };
        let made = match rustix::fs::mkdirat(&directory, *name, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            // It existed, or another process was faster; the open below checks that it is a directory.
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(errno),
        };
        directory = resolve::directory_below(&directory, Path::new(name))?;
        if let (true, true, Some(owner)) = (made, last, owner) {
            give_away(&directory, owner.user)?;
        }
    }
    Ok(directory)
}

fn give_away(directory: &OwnedFd, owner: u32) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
    match chownat(directory, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH) {
        // Not every root may chown, as in a user namespace; then it stays ours, and runs report what they
        // cannot do in it.
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// Opens a path of the user's choice; links on the way to it are the user's own.
fn open_plain(path: &Path, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// Makes a path absolute, without a trailing slash, which would make the kernel follow a final link.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path)
        .map(|path| path.components().collect())
        .map_err(|_| Error::InvalidPath {
            path: error::shown(&path.to_string_lossy()),
            why: "is empty",
        })
}

/// Returns a path that reopens exactly this file, even if its name was removed or replaced.
fn handle(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests;
