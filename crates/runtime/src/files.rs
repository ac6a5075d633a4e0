//! The workspace: a directory that file tools cannot leave.
//!
//! A [`Root`] holds the directory's descriptor. A path is first resolved to names that hold no link, and then opened by
//! these names in one system call, `openat2`, which refuses every link and everything outside of that descriptor. So
//! what decides is one rule of the kernel; resolving only makes links that stay inside work, and says which names are
//! touched. Where the tree changes between the two steps, the kernel refuses and we look again.
//!
//! All calls are synchronous, and each may wait for a disk.

mod delete;
mod error;
mod kept;
mod list;
mod protected;
mod read;
mod repository;
mod resolve;
mod write;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use ringfence_policy::Trusted;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, openat2};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;

pub use delete::Deleted;
pub use error::{Error, Kind};
pub use list::{Entry, Listing};
pub use protected::{PROTECTED, Protected};
pub use read::{Body, FileText};
pub(crate) use repository::MARKS as REPOSITORY;
pub use write::WriteMode;

/// Opens a file by a path without links. One on the way, a pipe or a device is an error.
///
/// # Errors
/// If it is none, or cannot be opened.
pub(crate) fn open_without_links(path: &Path) -> io::Result<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let file = std::fs::File::from(opened);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// What file tools may do in a workspace.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The most bytes of text that one read returns.
    pub max_read: usize,
    /// The largest file that is written.
    pub max_write: u64,
    /// The most entries that a listing shows, and that a directory may hold when one is added.
    pub max_entries: usize,
    /// What may be read, but not changed.
    pub protected: Protected,
    /// The same, by its path on the host.
    pub trusted: Trusted,
}

impl Rules {
    /// Limits for an agent's work, and the usual names protected.
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

/// A directory that file tools work in.
#[derive(Debug)]
pub struct Root {
    directory: OwnedFd,
    /// As it was asked for, absolute.
    path: PathBuf,
    /// Without links, as programs print it.
    real: PathBuf,
    rules: Rules,
}

/// What lies under a name.
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

/// The user that a directory is made for, where that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Its id; that of its group is the same.
    pub user: u32,
    /// It comes there through the directories above, and not by a mount: those that are made let it pass.
    pub comes_by_path: bool,
}

impl Root {
    /// Opens a directory that exists. Links may lead to it, but it must not be one itself.
    ///
    /// # Errors
    /// If there is no such directory, or the kernel cannot keep us in it.
    pub fn open(path: &Path, rules: Rules) -> Result<Self, Error> {
        let path = absolute(path)?;
        let directory = open_plain(&path, OFlags::NOFOLLOW)
            .map_err(|errno| Error::root(&path, "open the workspace", errno))?;
        Self::of(directory, path, rules)
    }

    /// Opens a directory, which is made, with its parents, where it does not exist. What is made belongs to `owner`,
    /// if that is somebody else.
    ///
    /// # Errors
    /// If a part of the path that is missing turns out to be a link, or the directory cannot be made.
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

    /// As [`Root::create`], for a path that is relative to the directory `base`. Links may lead to that, and no further:
    /// what lies in it may come from somebody who wants us elsewhere.
    ///
    /// # Errors
    /// If a part of the path is a link or leads upwards, or the directory cannot be made.
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
        // Refuses a kernel without openat2 at once, and not at the first use.
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

    /// The same directory under other rules.
    pub(crate) fn under(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// The directory's path on the host, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same without links, so that nothing that is put in the place of one leads code elsewhere.
    pub(crate) fn real(&self) -> &Path {
        &self.real
    }
}

/// A handle of a directory some names below another one. None of them is a link; those that are missing are made.
fn descend(mut directory: OwnedFd, names: &[&OsStr], owner: Option<Owner>) -> Result<OwnedFd, Errno> {
    for (index, name) in names.iter().enumerate() {
        let last = index + 1 == names.len();
        let passed = owner.is_some_and(|owner| owner.comes_by_path);
        let mode = if passed && !last { 0o711 } else { 0o700 };
        let made = match rustix::fs::mkdirat(&directory, *name, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            // It was there, or somebody else was faster; whether it is a directory shows next.
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
        // Not every root may; then it stays ours, and runs say what they cannot do in it.
        Err(Errno::PERM | Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// Opens a path of our user's choice; links on the way to it are the user's own.
fn open_plain(path: &Path, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
}

/// Without a trailing slash, which would have the kernel follow a link after all.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path)
        .map(|path| path.components().collect())
        .map_err(|_| Error::InvalidPath {
            path: error::shown(&path.to_string_lossy()),
            why: "is empty",
        })
}

/// An open file as a path: opening that opens the very same file, whatever has become of its name.
fn handle(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

#[cfg(test)]
mod tests;
