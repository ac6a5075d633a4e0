//! From the path that a tool was given to a place below the root, and to an open file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, readlinkat};
use rustix::io::Errno;

use super::error::shown;
use super::{EntryKind, Error, Root, handle};

/// Where code in the fence sees the workspace.
const GUEST: &str = "/workspace";
/// The longest path that the kernel takes, with the byte at its end.
const PATH_MAX: usize = 4096;
/// How many names are looked at on the way to one file, those in links included.
const MAX_NAMES: usize = 1024;
/// As in the kernel.
const MAX_LINKS: usize = 40;
/// How often a path is looked up again when the tree has changed meanwhile.
const ATTEMPTS: usize = 64;

/// Every open stays below the directory it starts from, and follows no link of any kind.
const BELOW: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS);

/// Whether a link at the end of a path stands for its target or for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Target,
    Itself,
}

/// Names below the root, with no link among them when they were looked up.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) names: Vec<OsString>,
    /// One of the names that were met on the way is protected.
    pub(super) protected: bool,
    /// The path was written so that it can only mean a directory.
    pub(super) directory: bool,
    /// As the tool wrote it, for messages.
    pub(super) given: String,
}

impl Place {
    pub(super) fn path(&self) -> PathBuf {
        joined(&self.names)
    }

    /// The directory that it lies in and its name there; `None` for the root.
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
    /// Does something at the place of a path, again where the tree changed before it could begin.
    pub(super) fn at<T>(
        &self,
        path: &str,
        last: Last,
        act: impl Fn(&Place) -> Result<T, Error>,
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

    /// Follows the links of a path. Nothing outside is ever looked at: a link that leads out ends the search.
    pub(super) fn resolve(&self, path: &str, last: Last) -> Result<Place, Error> {
        let outside = || Error::Outside { path: shown(path) };
        let invalid = |why| Error::InvalidPath {
            path: shown(path),
            why,
        };
        let (mut todo, directory) = self.names(path)?;
        let mut place = Place {
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
            // The names so far hold no link, so this is where `..` leads for the kernel, too.
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

    /// The names of a path in the order in which they are popped, and whether it can only mean a directory.
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

    /// What a path is relative to the root: absolute ones are known by where code sees the root, and by where it lies.
    fn below<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        if !path.is_absolute() {
            return Some(path);
        }
        // Where one lies below another, the longer one says more.
        let mut known = [Path::new(GUEST), &self.path, &self.real];
        known.sort_by_key(|prefix| std::cmp::Reverse(prefix.components().count()));
        known.iter().find_map(|prefix| path.strip_prefix(prefix).ok())
    }

    /// Where the last name of a place leads, if it is a link.
    fn link(&self, place: &Place) -> Result<Option<OsString>, Error> {
        let handle = match open_below(&self.directory, &place.path(), OFlags::PATH) {
            // What does not exist yet is no link.
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

    /// A handle of what lies at a place; opening it has no effect on a device or a pipe.
    pub(super) fn look(&self, place: &Place) -> Result<(OwnedFd, Stat), Error> {
        let handle =
            open_below(&self.directory, &place.path(), OFlags::PATH).map_err(place.failed("open"))?;
        let stat = fstat(&handle).map_err(place.failed("open"))?;
        if kind(&stat) == EntryKind::Symlink {
            return Err(place.changing());
        }
        Ok((handle, stat))
    }

    /// Opens the regular file that lies at a place.
    pub(super) fn regular(&self, place: &Place, access: OFlags) -> Result<(File, Stat), Error> {
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
        // Not by its name once more: another file could have come to bear it. Without waiting for whoever has a lease.
        let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = rustix::fs::open(handle(&found), flags, Mode::empty()).map_err(place.failed("open"))?;
        let opened = fstat(&file).map_err(place.failed("open"))?;
        if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(place.changing());
        }
        Ok((file.into(), opened))
    }
}

/// Opens by names that must hold no link and stay below a directory.
pub(super) fn open_below(directory: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    make_below(directory, path, flags, Mode::empty())
}

/// As [`open_below`], for flags that make a file.
pub(super) fn make_below(
    directory: impl AsFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut opened = openat2(&directory, path, flags, mode, BELOW);
    // The kernel asks for another try where something was renamed just then.
    for _ in 1..ATTEMPTS {
        if !matches!(opened, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
        opened = openat2(&directory, path, flags, mode, BELOW);
    }
    opened
}

/// A handle of a directory. The dot makes the kernel refuse a link in its place as a link, and a file as a file.
pub(super) fn directory_below(directory: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    open_below(directory, &path.join("."), OFlags::PATH | OFlags::DIRECTORY)
}

fn joined(names: &[OsString]) -> PathBuf {
    if names.is_empty() {
        return PathBuf::from(".");
    }
    names.iter().collect()
}

/// The names of a relative path, the last one first.
fn backwards(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|name| match name {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    names.collect()
}

/// What the system says lies there.
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
    /// The kind in a sentence.
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

/// A name as text, and whether something was lost on the way.
pub(super) fn text(name: &OsStr) -> (String, bool) {
    let text = String::from_utf8_lossy(name.as_bytes());
    let lossy = matches!(text, std::borrow::Cow::Owned(_));
    (text.into_owned(), lossy)
}
