//! Watches directories for changes.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::directory::{Directory, is_same};
use super::error::{At, FileError};
use super::list::line;
use super::resolve::metadata;
use super::staged::is_temporary;
use super::{MAX_PATH, MAX_TREE_DEPTH};
use crate::sys::{self, Inotify, Notice};

/// Maximum number of watched directories.
pub const MAX_WATCHES: usize = 8_192;
/// Maximum number of entries of a new directory that are reported.
const MAX_SCANNED: usize = 65_536;
/// Interval at which the watched path is compared with the watched directory. The kernel does not report that
/// a directory above was renamed, and reports a removal only once no process has the directory open.
const RECHECK_MS: i32 = if cfg!(test) { 20 } else { 2_000 };

const CHANGES: u32 = libc::IN_CREATE
    | libc::IN_MODIFY
    | libc::IN_ATTRIB
    | libc::IN_DELETE
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF;

/// Part of a tree that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchDepth {
    /// A directory's own entries.
    Flat,
    /// Also those of all directories in it, however new, except below links.
    Recursive,
}

impl WatchDepth {
    /// Returns the word for it in arguments.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Recursive => "recursive",
        }
    }

    pub(super) fn of_word(word: &str) -> Option<Self> {
        [Self::Flat, Self::Recursive]
            .into_iter()
            .find(|depth| depth.word() == word)
    }
}

/// A change in a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    #[serde(rename = "type")]
    pub kind: EventType,
    /// Path relative to the watched directory, which itself is `.`.
    pub path: String,
    /// Set if the path is not UTF-8, so that its text here names no file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
}

/// Type of an event, with its sources in inotify(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventType {
    /// The first event: changes from here on are reported.
    Ready,
    /// An entry is new (`IN_CREATE`), came by a rename (`IN_MOVED_TO`), or was found in a new directory. A file that was
    /// written as a whole, new or in place of another, is created, and then has changes of its metadata and its content.
    Create,
    /// A file's content was changed (`IN_MODIFY`).
    Write,
    /// An entry was removed (`IN_DELETE`).
    Remove,
    /// An entry lost this name by a rename (`IN_MOVED_FROM`). If the new name is watched, it is created.
    Rename,
    /// Metadata changed: mode, owner, times, extended attributes, number of links (`IN_ATTRIB`).
    Chmod,
    /// Changes were lost (`IN_Q_OVERFLOW`), or a new directory has too many entries: list the directory
    /// again.
    Overflow,
    /// This directory and others are not watched: there are too many, or it is too deep or forbidden. Sent once.
    Limit,
    /// The watched directory was removed, moved or unmounted. The last event.
    Gone,
}

/// Writes the changes in a directory until `stop` ends or the directory is gone.
pub(super) fn watch(
    path: &Path,
    depth: WatchDepth,
    stop: &mut (impl Read + AsFd),
    out: &mut dyn Write,
) -> Result<(), FileError> {
    let found = metadata(path).at(path)?;
    let mut watcher = Watcher {
        inotify: Inotify::new().at(path)?,
        root: path.to_owned(),
        depth,
        watches: HashMap::new(),
        was_staged: false,
        found: HashSet::new(),
        is_limited: false,
        first: -1,
        out,
    };
    watcher.first = watcher.add(Path::new("")).at(path)?;
    watcher.scan(Path::new(""), Scan::Silent)?;
    watcher.send(EventType::Ready, Path::new(""))?;
    watcher.flush()?;
    while watcher.step(&found, stop)? == Progress::Continues {
        watcher.flush()?;
    }
    watcher.flush()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Continues,
    Over,
}

/// Treatment of entries that a scan finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// The entries existed before the watch.
    Silent,
    /// The entries are reported as events, for changes from before the watch was set.
    Reported,
}

struct Watcher<'a> {
    inotify: Inotify,
    root: PathBuf,
    depth: WatchDepth,
    /// Relative paths of the watched directories, by number.
    watches: HashMap<i32, PathBuf>,
    /// Set between the two notices by which an entry under construction gets its name.
    was_staged: bool,
    /// Entries reported by a scan, of which the queue may hold the creation, too.
    found: HashSet<PathBuf>,
    is_limited: bool,
    /// Number of the first directory's watch.
    first: i32,
    out: &'a mut dyn Write,
}

impl Watcher<'_> {
    /// Waits for changes and reports them.
    fn step(&mut self, root: &Metadata, stop: &mut (impl Read + AsFd)) -> Result<Progress, FileError> {
        let ready = sys::poll(&[self.inotify.as_fd(), stop.as_fd()], Some(RECHECK_MS));
        let ready = ready.at(Path::new(""))?;
        if ready.get(1) == Some(&true) && is_over(stop) {
            return Ok(Progress::Over);
        }
        loop {
            let notices = self.inotify.read().at(Path::new(""))?;
            if notices.is_empty() {
                break;
            }
            for notice in notices {
                if self.notice(&notice)? == Progress::Over {
                    return Ok(Progress::Over);
                }
            }
        }
        // What scans found has no event in the queue any more.
        self.found.clear();
        if metadata(&self.root).is_ok_and(|found| is_same(&found, root)) {
            return Ok(Progress::Continues);
        }
        self.gone()
    }

    fn gone(&mut self) -> Result<Progress, FileError> {
        self.send(EventType::Gone, Path::new(""))?;
        Ok(Progress::Over)
    }

    fn notice(&mut self, notice: &Notice) -> Result<Progress, FileError> {
        let has = |bits: u32| notice.mask & bits != 0;
        if has(libc::IN_Q_OVERFLOW) {
            self.send(EventType::Overflow, Path::new(""))?;
            // Directories may be among what was lost.
            self.scan(Path::new(""), Scan::Silent)?;
            return Ok(Progress::Continues);
        }
        // A watch that was removed; its last events are not wanted.
        let Some(directory) = self.watches.get(&notice.watch) else {
            return Ok(Progress::Continues);
        };
        if notice.name.is_empty() {
            let ends = libc::IN_DELETE_SELF | libc::IN_MOVE_SELF | libc::IN_UNMOUNT | libc::IN_IGNORED;
            if has(ends) && notice.watch == self.first {
                return self.gone();
            }
            if has(libc::IN_IGNORED) {
                self.watches.remove(&notice.watch);
            }
            return Ok(Progress::Continues);
        }
        // Changes under a temporary name are not reported.
        if is_temporary(&notice.name) && !has(libc::IN_ISDIR) {
            self.was_staged = has(libc::IN_MOVED_FROM);
            return Ok(Progress::Continues);
        }
        let was_staged = std::mem::take(&mut self.was_staged) && has(libc::IN_MOVED_TO);
        let path = directory.join(&notice.name);
        self.change(notice.mask, &path)?;
        if was_staged {
            self.send(EventType::Chmod, &path)?;
            self.send(EventType::Write, &path)?;
        }
        Ok(Progress::Continues)
    }

    fn change(&mut self, mask: u32, path: &Path) -> Result<(), FileError> {
        let is = |bits: u32| mask & bits != 0;
        if is(libc::IN_CREATE | libc::IN_MOVED_TO) {
            // A scan has reported it and what is in it.
            if self.found.remove(path) {
                return Ok(());
            }
            self.send(EventType::Create, path)?;
            if is(libc::IN_ISDIR) && self.depth == WatchDepth::Recursive {
                self.follow(path)?;
                self.scan(path, Scan::Reported)?;
            }
        } else if is(libc::IN_MODIFY) {
            self.send(EventType::Write, path)?;
        } else if is(libc::IN_ATTRIB) {
            self.send(EventType::Chmod, path)?;
        } else if is(libc::IN_DELETE) {
            self.found.remove(path);
            self.send(EventType::Remove, path)?;
        } else if is(libc::IN_MOVED_FROM) {
            self.found.remove(path);
            self.send(EventType::Rename, path)?;
            if is(libc::IN_ISDIR) {
                self.forget(path);
            }
        }
        Ok(())
    }

    /// Watches the directories below a watched one, and reports their entries.
    fn scan(&mut self, below: &Path, scan: Scan) -> Result<(), FileError> {
        if self.depth == WatchDepth::Flat {
            return Ok(());
        }
        let (mut pending, mut left) = (vec![below.to_owned()], MAX_SCANNED);
        while let Some(directory) = pending.pop() {
            let Ok(listed) = scanned(&self.root.join(&directory), scan) else {
                continue;
            };
            for (name, is_directory) in listed {
                let path = directory.join(&name);
                if scan == Scan::Reported && (is_directory || !is_temporary(&name)) {
                    let Some(rest) = left.checked_sub(1) else {
                        return self.send(EventType::Overflow, below);
                    };
                    left = rest;
                    self.found.insert(path.clone());
                    self.send(EventType::Create, &path)?;
                }
                if is_directory && self.follow(&path)? {
                    pending.push(path);
                }
            }
        }
        Ok(())
    }

    /// Watches a directory; returns `false` if it is not watched.
    fn follow(&mut self, path: &Path) -> Result<bool, FileError> {
        let is_beyond = self.watches.len() >= MAX_WATCHES
            || path.components().count() >= MAX_TREE_DEPTH
            || self.root.as_os_str().len() + path.as_os_str().len() + 1 > MAX_PATH;
        let added = match is_beyond {
            true => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            false => self.add(path),
        };
        match added {
            Ok(_) => return Ok(true),
            // It was removed or replaced meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(_) if self.is_limited => {}
            Err(_) => {
                self.is_limited = true;
                self.send(EventType::Limit, path)?;
            }
        }
        Ok(false)
    }

    fn add(&mut self, path: &Path) -> io::Result<i32> {
        let at = match path.as_os_str().is_empty() {
            true => self.root.clone(),
            false => self.root.join(path),
        };
        let at = CString::new(at.as_os_str().as_bytes()).map_err(|_| ErrorKind::InvalidInput)?;
        // The path itself may be a link, what is found in it is none.
        let links = match path.as_os_str().is_empty() {
            true => 0,
            false => libc::IN_DONT_FOLLOW,
        };
        let mask = CHANGES | libc::IN_ONLYDIR | libc::IN_EXCL_UNLINK | links;
        let number = self.inotify.watch(&at, mask)?;
        self.watches.insert(number, path.to_owned());
        Ok(number)
    }

    /// Ends the watches of a directory that was renamed, and of those in it.
    fn forget(&mut self, path: &Path) {
        let inside = self
            .watches
            .iter()
            .filter(|(_, watched)| watched.starts_with(path));
        let inside: Vec<i32> = inside.map(|(number, _)| *number).collect();
        for number in inside {
            // It may be gone.
            let _ = self.inotify.forget(number);
            self.watches.remove(&number);
        }
    }

    fn send(&mut self, kind: EventType, path: &Path) -> Result<(), FileError> {
        let text = match path.as_os_str().is_empty() {
            true => OsStr::new("."),
            false => path.as_os_str(),
        };
        let event = Event {
            kind,
            path: text.to_string_lossy().into_owned(),
            lossy: text.to_str().is_none(),
        };
        line(self.out, &event)
    }

    fn flush(&mut self) -> Result<(), FileError> {
        self.out.flush().at(Path::new(""))
    }
}

/// Returns the entries of a directory that a scan needs, with `true` for directories: to report them it needs all, otherwise
/// the directories alone.
fn scanned(path: &Path, scan: Scan) -> io::Result<Vec<(OsString, bool)>> {
    let (opened, mut found) = (Directory::open_readable(path)?, Vec::new());
    opened.each_name(|name| {
        let is_directory = opened.stat(name).is_ok_and(|found| found.is_dir());
        let is_reported = scan == Scan::Reported && found.len() <= MAX_SCANNED;
        if is_directory || is_reported {
            found.push((name.to_owned(), is_directory));
        }
        Ok(())
    })?;
    Ok(found)
}

/// Discards input; returns `true` at its end.
fn is_over(stop: &mut impl Read) -> bool {
    stop.read(&mut [0; 512]).unwrap_or_default() == 0
}

#[cfg(test)]
mod tests;
