//! Lists directories.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Component, Path};

use serde::Serialize;

use super::directory::{Directory, Location};
use super::entry::{Entry, ListEnd};
use super::error::{At, FileError};
use super::resolve::metadata;
use super::{MAX_PATH, MAX_TREE_DEPTH};

/// Names that are held at a time. A directory holds half of what those above it leave, and at least some.
const MAX_HELD: usize = 20_000;
const MIN_HELD: usize = 64;

/// Returns the description of a file; a link is not followed.
pub(super) fn stat(path: &Path) -> Result<Entry, FileError> {
    match path.file_name() {
        Some(_) => Location::of(path)?.entry(),
        None => Ok(Entry::new(path, &metadata(path).at(path)?, None)),
    }
}

/// Writes a value as a line of JSON.
pub(super) fn line(out: &mut dyn Write, value: &impl Serialize) -> Result<(), FileError> {
    let written = serde_json::to_writer(&mut *out, value).map_err(io::Error::from);
    written.and_then(|()| out.write_all(b"\n")).at(Path::new(""))
}

/// Writes the entries of a directory, with those of directories in it down to a depth, where 1 is its own: all, or those that come
/// after `after`, the path of an entry. Directories may have any number of entries.
pub(super) fn list(
    path: &Path,
    depth: usize,
    after: Option<&Path>,
    out: &mut dyn Write,
) -> Result<(), FileError> {
    let after: Vec<&OsStr> = match after {
        Some(after) => entry_below(after, path)?.iter().collect(),
        None => Vec::new(),
    };
    let root = Directory::open_readable(path).at(path)?;
    let mut listing = Listing {
        out,
        room: MAX_HELD,
        end: ListEnd {
            complete: true,
            entries: 0,
        },
    };
    let below = Below {
        path,
        depth,
        level: 1,
    };
    listing.resume(&root, &below, &after)?;
    let names = listing.names(&root, after.first().copied()).at(path)?;
    listing.entries(&root, &below, names)?;
    line(listing.out, &listing.end)
}

/// Returns the path of an entry relative to the directory that is listed.
fn entry_below<'a>(entry: &'a Path, directory: &Path) -> Result<&'a Path, FileError> {
    let below = entry.strip_prefix(directory).ok();
    let is_name = |part| matches!(part, Component::Normal(_));
    below
        .filter(|below| below.file_name().is_some() && below.components().all(is_name))
        .ok_or_else(|| {
            let message = format!(
                "expected `after` to be the path of an entry below {}, found {}",
                directory.display(),
                entry.display()
            );
            FileError::invalid(message)
        })
}

struct Listing<'a> {
    out: &'a mut dyn Write,
    /// Number of names that may be held besides.
    room: usize,
    end: ListEnd,
}

/// A directory whose entries are listed.
struct Below<'a> {
    path: &'a Path,
    /// Remaining depth.
    depth: usize,
    /// Depth of the directory's entries below the first directory.
    level: usize,
}

impl<'a> Below<'a> {
    /// Returns the directory at `path` in this one.
    fn inner(&self, path: &'a Path) -> Self {
        Self {
            path,
            depth: self.depth - 1,
            level: self.level + 1,
        }
    }

    fn has_inner(&self) -> bool {
        self.depth > 1 && self.level < MAX_TREE_DEPTH
    }
}

/// Names in a directory, sorted.
struct Names {
    names: Vec<OsString>,
    /// Set if there are others behind them.
    more: bool,
}

impl Listing<'_> {
    /// Reads the names behind `after`, as many as there is room for.
    fn names(&mut self, directory: &Directory, after: Option<&OsStr>) -> io::Result<Names> {
        let most = (self.room / 2).max(MIN_HELD);
        let (names, complete) = directory.names_after(after, most)?;
        self.room = self.room.saturating_sub(names.len());
        Ok(Names {
            names,
            more: !complete,
        })
    }

    /// Writes what lies in the directories on the way to an entry behind it, and in the entry itself.
    fn resume(
        &mut self,
        directory: &Directory,
        below: &Below<'_>,
        after: &[&OsStr],
    ) -> Result<(), FileError> {
        let Some((name, inner)) = after.split_first().filter(|_| below.has_inner()) else {
            return Ok(());
        };
        let path = below.path.join(name);
        // It is no directory, or not any more.
        let Ok(child) = directory.readable_child(name) else {
            return Ok(());
        };
        let below = below.inner(&path);
        self.resume(&child, &below, inner)?;
        match self.names(&child, inner.first().copied()) {
            Ok(names) => self.entries(&child, &below, names),
            Err(_) => Ok(()),
        }
    }

    fn entries(
        &mut self,
        directory: &Directory,
        below: &Below<'_>,
        mut names: Names,
    ) -> Result<(), FileError> {
        loop {
            if below.depth > 0 {
                for name in &names.names {
                    self.entry(directory, name, below)?;
                }
            }
            self.room += names.names.len();
            let Some(last) = names.names.last().filter(|_| names.more) else {
                return Ok(());
            };
            match self.names(directory, Some(last)) {
                Ok(next) => names = next,
                Err(_) => {
                    self.end.complete = false;
                    return Ok(());
                }
            }
        }
    }

    fn entry(&mut self, directory: &Directory, name: &OsStr, below: &Below<'_>) -> Result<(), FileError> {
        let path = below.path.join(name);
        if path.as_os_str().len() > MAX_PATH {
            self.end.complete = false;
            return Ok(());
        }
        // It was removed meanwhile.
        let Ok(mut entry) = directory.entry(name, &path) else {
            return Ok(());
        };
        let is_listed = entry.kind == super::EntryType::Directory && below.depth > 1;
        if !is_listed {
            return self.write(&entry);
        }
        if below.level == MAX_TREE_DEPTH {
            self.end.complete = false;
            entry.unreadable = true;
            return self.write(&entry);
        }
        let opened = directory.readable_child(name);
        let opened = opened.and_then(|child| self.names(&child, None).map(|names| (child, names)));
        entry.unreadable = opened.as_ref().is_err_and(is_refusal);
        self.write(&entry)?;
        let Ok((child, names)) = opened else { return Ok(()) };
        self.entries(&child, &below.inner(&path), names)
    }

    fn write(&mut self, entry: &Entry) -> Result<(), FileError> {
        self.end.entries += 1;
        line(self.out, entry)
    }
}

/// Returns `false` if the directory has vanished or become something else.
fn is_refusal(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::super::{EntryType, FileErrorKind, ListLine};
    use super::*;

    fn listed(path: &Path, depth: usize) -> (Vec<Entry>, ListEnd) {
        listed_after(path, depth, None)
    }

    fn listed_after(path: &Path, depth: usize, after: Option<&Path>) -> (Vec<Entry>, ListEnd) {
        let mut out = Vec::new();
        list(path, depth, after, &mut out).unwrap();
        let (mut entries, mut end) = (Vec::new(), None);
        for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            assert_eq!(end, None, "nothing follows the end");
            match serde_json::from_slice(line).unwrap() {
                ListLine::Entry(entry) => entries.push(entry),
                ListLine::End(last) => end = Some(last),
            }
        }
        let end = end.unwrap();
        assert_eq!(end.entries, entries.len() as u64);
        (entries, end)
    }

    fn names(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn a_list_is_depth_first_and_sorted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c/d")).unwrap();
        for name in ["a", "b/x", "b/c/y", "z"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        symlink("b", dir.path().join("link")).unwrap();
        let (entries, end) = listed(dir.path(), 1);
        assert_eq!(names(&entries), ["a", "b", "link", "z"]);
        assert!(end.complete);
        let (entries, _) = listed(dir.path(), 2);
        assert_eq!(names(&entries), ["a", "b", "c", "x", "link", "z"]);
        let (entries, _) = listed(dir.path(), 9);
        assert_eq!(names(&entries), ["a", "b", "c", "d", "y", "x", "link", "z"]);
        assert_eq!(entries[6].target.as_deref(), Some("b"));
        assert_eq!(entries[6].kind, EntryType::Symlink);
        assert_eq!(entries[3].path, dir.path().join("b/c/d").display().to_string());
        // A directory can be named by a link.
        let (entries, _) = listed(&dir.path().join("link"), 1);
        assert_eq!(names(&entries), ["c", "x"]);
    }

    #[test]
    fn any_name_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let odd = [&b"a\nb"[..], b"\xff\xfe", b"\"}\x1b[2J", "ü".as_bytes()];
        for name in odd {
            fs::write(dir.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        let (entries, end) = listed(dir.path(), 1);
        assert_eq!(names(&entries), ["\"}\x1b[2J", "a\nb", "ü", "\u{fffd}\u{fffd}"]);
        let lossy: Vec<bool> = entries.iter().map(|entry| entry.lossy).collect();
        assert_eq!(lossy, [false, false, false, true]);
        assert!(end.complete);
    }

    #[test]
    fn a_list_is_bounded_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join(vec!["d"; MAX_TREE_DEPTH + 2].join("/"));
        fs::create_dir_all(deep).unwrap();
        let (entries, end) = listed(dir.path(), usize::MAX);
        assert_eq!(entries.len(), MAX_TREE_DEPTH);
        let marked = entries.iter().filter(|entry| entry.unreadable);
        assert_eq!(marked.collect::<Vec<_>>(), [entries.last().unwrap()]);
        assert!(!end.complete);
        let (entries, end) = listed(dir.path(), 5);
        assert_eq!((entries.len(), end.complete), (5, true));
    }

    /// However few names are held, all are listed, and from each entry the list goes on with the next.
    #[test]
    fn a_list_of_any_length_goes_on_after_any_entry() {
        let dir = tempfile::tempdir().unwrap();
        for outer in 0..3 {
            let directory = dir.path().join(format!("d{outer}/inner"));
            fs::create_dir_all(&directory).unwrap();
            for number in 0..MIN_HELD + 9 {
                fs::write(directory.join(number.to_string()), "").unwrap();
            }
        }
        fs::write(dir.path().join("e"), "").unwrap();
        let (all, _) = listed(dir.path(), 3);
        assert_eq!(all.len(), 3 * (MIN_HELD + 9 + 2) + 1);
        let root = Directory::open_readable(dir.path()).unwrap();
        let mut out = Vec::new();
        let end = ListEnd {
            complete: true,
            entries: 0,
        };
        let mut listing = Listing {
            out: &mut out,
            room: 0,
            end,
        };
        let below = Below {
            path: dir.path(),
            depth: 3,
            level: 1,
        };
        let names = listing.names(&root, None).unwrap();
        listing.entries(&root, &below, names).unwrap();
        assert_eq!(listing.end.entries, all.len() as u64);
        for (at, entry) in all.iter().enumerate() {
            let (rest, end) = listed_after(dir.path(), 3, Some(Path::new(&entry.path)));
            assert_eq!(rest, all[at + 1..], "{}", entry.path);
            assert!(end.complete);
        }
        // Entries that are gone are no obstacle.
        let gone = dir.path().join("d1/inner/99/100");
        let (rest, _) = listed_after(dir.path(), 3, Some(&gone));
        assert_eq!(names_of(&rest), ["d2", "inner"].map(str::to_owned));
        for elsewhere in ["/", "/elsewhere", "/../x"] {
            let error = list(dir.path(), 1, Some(Path::new(elsewhere)), &mut Vec::new()).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::Invalid, "{elsewhere}");
        }
    }

    fn names_of(entries: &[Entry]) -> [String; 2] {
        let directories = entries.iter().filter(|entry| entry.kind == EntryType::Directory);
        let names: Vec<String> = directories.map(|entry| entry.name.clone()).collect();
        names.try_into().unwrap()
    }

    #[test]
    fn an_entry_that_changes_meanwhile_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["gone", "link", "there"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let root = Directory::open_readable(dir.path()).unwrap();
        let (names, _) = root.names_after(None, 9).unwrap();
        fs::remove_dir(dir.path().join("gone")).unwrap();
        fs::remove_dir(dir.path().join("link")).unwrap();
        symlink("/", dir.path().join("link")).unwrap();
        let (mut out, end) = (
            Vec::new(),
            ListEnd {
                complete: true,
                entries: 0,
            },
        );
        let mut listing = Listing {
            out: &mut out,
            room: 9,
            end,
        };
        let below = Below {
            path: dir.path(),
            depth: 3,
            level: 1,
        };
        let names = Names { names, more: false };
        listing.entries(&root, &below, names).unwrap();
        assert_eq!(listing.end.entries, 2);
        assert!(root.readable_child(OsStr::new("link")).is_err());
    }

    #[test]
    fn stat_describes_and_does_not_follow() {
        let dir = tempfile::tempdir().unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        let entry = stat(&dir.path().join("loop")).unwrap();
        assert_eq!(
            (entry.kind, entry.target.as_deref()),
            (EntryType::Symlink, Some("loop"))
        );
        assert_eq!(stat(Path::new("/")).unwrap().kind, EntryType::Directory);
        assert_eq!(stat(Path::new("/dev/null")).unwrap().kind, EntryType::Device);
        let check = |name: &str, kind: FileErrorKind| {
            assert_eq!(stat(&dir.path().join(name)).unwrap_err().kind, kind, "{name}");
        };
        check("missing", FileErrorKind::NotFound);
        check("loop/x", FileErrorKind::Invalid);
        check(&"n".repeat(300), FileErrorKind::TooLong);
    }
}
