//! Resolves a tool's path to names below the root, and opens them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, readlinkat};
use rustix::io::Errno;

use super::error::shown;
use super::{EntryKind, Error, Root, handle};

/// Path of the workspace inside the fence.
const GUEST: &str = "/workspace";
/// Maximum length of a path in the kernel, with its NUL byte.
const PATH_MAX: usize = 4096;
/// Maximum number of names visited to resolve a path, including those in links.
const MAX_NAMES: usize = 1024;
/// Maximum number of links to follow, as in the kernel.
const MAX_LINKS: usize = 40;
/// Number of attempts to resolve a path if the tree changes.
const ATTEMPTS: usize = 64;

/// Every open stays below its directory and follows no link of any kind.
const BELOW: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS);

/// Treatment of a link at the end of a path: follow it, or operate on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Target,
    Itself,
}

/// Names below the root, free of links when they were resolved.
#[derive(Debug)]
pub(super) struct ResolvedPath {
    pub(super) names: Vec<OsString>,
    /// Set if a name visited on the way is protected.
    pub(super) protected: bool,
    /// Set if the path's syntax can only mean a directory.
    pub(super) directory: bool,
    /// Path as given, for messages.
    pub(super) given: String,
}

impl ResolvedPath {
    pub(super) fn path(&self) -> PathBuf {
        joined(&self.names)
    }

    /// Splits into parent directory and name. `None` for the root.
    pub(super) fn split(&self) -> Option<(PathBuf, &OsStr)> {
        let (name, above) = self.names.split_last()?;
        Some((joined(above), name))
    }

    pub(super) fn failed(&self, doing: &'static str) -> impl Fn(Errno) -> Error {
        move |errno| Error::of(&self.given, doing, errno)
    }

    pub(super) fn changing(&self) -> Error {
        Error::of(&self.given, "look up", Errno::LOOP)
    }
}

impl Root {
    /// Resolves a path and acts on it; retries if the tree changed before the action began.
    pub(super) fn at<T>(
        &self,
        path: &str,
        last: Last,
        act: impl Fn(&ResolvedPath) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut tried = self.resolve(path, last).and_then(|place| act(&place));
        for _ in 1..ATTEMPTS {
            if !matches!(tried, Err(Error::Changing { .. })) {
                break;
            }
            tried = self.resolve(path, last).and_then(|place| act(&place));
        }
        tried
    }

    /// Resolves the links of a path. Nothing outside is ever accessed: a link that leads out is an error.
    pub(super) fn resolve(&self, path: &str, last: Last) -> Result<ResolvedPath, Error> {
        let outside = || Error::Outside { path: shown(path) };
        let invalid = |why| Error::InvalidPath {
            path: shown(path),
            why,
        };
        let (mut todo, directory) = self.names(path)?;
        let mut place = ResolvedPath {
            names: Vec::new(),
            protected: false,
            directory,
            given: path.to_owned(),
        };
        let (mut looked, mut links) = (0, 0);
        while let Some(name) = todo.pop() {
            looked += 1;
            if looked > MAX_NAMES {
                return Err(invalid("holds too many names"));
            }
            // The names so far contain no link, so `..` leads to the same directory in the kernel.
            if name == ".." {
                place.names.pop().ok_or_else(outside)?;
                continue;
            }
            place.names.push(name);
            place.protected |= self.rules.protected.ends(&place.names);
            if todo.is_empty() && last == Last::Itself {
                break;
            }
            if let Some(target) = self.link(&place)? {
                links += 1;
                if links > MAX_LINKS {
                    return Err(invalid("leads through too many links"));
                }
                place.names.pop();
                let target = Path::new(&target);
                if target.is_absolute() {
                    place.names.clear();
                }
                todo.extend(backwards(self.below(target).ok_or_else(outside)?));
            }
        }
        Ok(place)
    }

    /// Splits a path into names, last one first, and returns whether it can only mean a directory.
    fn names(&self, path: &str) -> Result<(Vec<OsString>, bool), Error> {
        let invalid = |why| {
            Err(Error::InvalidPath {
                path: shown(path),
                why,
            })
        };
        if path.is_empty() {
            return invalid("names nothing: it is empty");
        }
        if path == "~" || path.starts_with("~/") {
            return invalid("begins with `~`, which means a home directory to shells only");
        }
        if path.contains('\0') {
            return invalid("holds NUL");
        }
        if path.len() >= PATH_MAX {
            return invalid("is too long");
        }
        let Some(below) = self.below(Path::new(path)) else {
            return Err(Error::Outside { path: shown(path) });
        };
        let end = path.rsplit('/').next().unwrap_or_default();
        Ok((backwards(below), matches!(end, "" | "." | "..")))
    }

    /// Strips the root from a path: an absolute one may begin with the root's path inside the fence or on the
    /// host.
    fn below<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        if !path.is_absolute() {
            return Some(path);
        }
        // If one prefix contains another, the longest match wins.
        let mut known = [Path::new(GUEST), &self.path, &self.real];
        known.sort_by_key(|prefix| std::cmp::Reverse(prefix.components().count()));
        known.iter().find_map(|prefix| path.strip_prefix(prefix).ok())
    }

    /// Returns the target of the last name of a place, if it is a link.
    fn link(&self, place: &ResolvedPath) -> Result<Option<OsString>, Error> {
        let handle = match open_below(&self.directory, &place.path(), OFlags::PATH) {
            // A path that does not exist yet is not a link.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            opened => opened.map_err(place.failed("look up"))?,
        };
        let stat = fstat(&handle).map_err(place.failed("look up"))?;
        if kind(&stat) != EntryKind::Symlink {
            return Ok(None);
        }
        let target = readlinkat(&handle, "", Vec::new()).map_err(place.failed("look up"))?;
        Ok(Some(OsString::from_vec(target.into_bytes())))
    }

    /// Opens a place with `O_PATH`, which has no side effect on a device or a pipe.
    pub(super) fn look(&self, place: &ResolvedPath) -> Result<(OwnedFd, Stat), Error> {
        let handle =
            open_below(&self.directory, &place.path(), OFlags::PATH).map_err(place.failed("open"))?;
        let stat = fstat(&handle).map_err(place.failed("open"))?;
        if kind(&stat) == EntryKind::Symlink {
            return Err(place.changing());
        }
        Ok((handle, stat))
    }

    /// Opens the regular file at a place.
    pub(super) fn regular(&self, place: &ResolvedPath, access: OFlags) -> Result<(File, Stat), Error> {
        let (found, stat) = self.look(place)?;
        if kind(&stat) != EntryKind::File || place.directory {
            return Err(Error::WrongKind {
                path: shown(&place.given),
                is: if kind(&stat) == EntryKind::File {
                    "written like a directory"
                } else {
                    kind(&stat).named()
                },
                wanted: "a regular file",
            });
        }
        // Through the handle rather than by name: another file could have taken the name. `NONBLOCK` does not
        // wait for a lease to be released.
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = rustix::fs::open(handle(&found), flags, Mode::empty()).map_err(place.failed("open"))?;
        let opened = fstat(&file).map_err(place.failed("open"))?;
        if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(place.changing());
        }
        Ok((file.into(), opened))
    }
}

/// Opens names that must contain no link and stay below a directory.
pub(super) fn open_below(directory: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    make_below(directory, path, flags, Mode::empty())
}

/// As [`open_below`], for flags that create a file.
pub(super) fn make_below(
    directory: impl AsFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut opened = openat2(&directory, path, flags, mode, BELOW);
    // The kernel returns EAGAIN if a rename raced with the look-up.
    for _ in 1..ATTEMPTS {
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
        opened = openat2(&directory, path, flags, mode, BELOW);
    }
    opened
}

/// Opens a directory with `O_PATH`. The trailing dot makes the kernel reject a link as a link, and a file as
/// a file.
pub(super) fn directory_below(directory: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    open_below(directory, &path.join("."), OFlags::PATH | OFlags::DIRECTORY)
}

fn joined(names: &[OsString]) -> PathBuf {
    if names.is_empty() {
        return PathBuf::from(".");
    }
    names.iter().collect()
}

/// Returns the names of a relative path, last one first.
fn backwards(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|name| match name {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    names.collect()
}

pub(super) fn kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        FileType::Fifo => EntryKind::Fifo,
        FileType::Socket => EntryKind::Socket,
        FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => EntryKind::Device,
    }
}

impl EntryKind {
    /// Returns the kind with its article, for messages.
    pub(super) const fn named(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a link",
            Self::Fifo => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
        }
    }
}

/// Converts a name to UTF-8, and returns whether bytes were replaced.
pub(super) fn text(name: &OsStr) -> (String, bool) {
    let text = String::from_utf8_lossy(name.as_bytes());
    let lossy = matches!(text, std::borrow::Cow::Owned(_));
    (text.into_owned(), lossy)
}
