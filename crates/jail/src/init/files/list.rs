//! Lists directories.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::directory::{Directory, Location};
use super::entry::{Entry, ListEnd};
use super::error::{At, FileError};
use super::resolve::metadata;
use super::{MAX_PATH, MAX_TREE_DEPTH};

/// Maximum number of entries of a list, and of names that are held for it.
pub const MAX_LISTED: usize = 100_000;

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

/// Writes the entries of a directory, with those of directories in it down to a depth, where 1 is its own.
pub(super) fn list(path: &Path, depth: usize, out: &mut dyn Write) -> Result<(), FileError> {
    let root = Directory::open_readable(path).at(path)?;
    let mut listing = Listing {
        out,
        left: MAX_LISTED,
        end: ListEnd {
            complete: true,
            entries: 0,
        },
    };
    let names = listing.names(&root).at(path)?;
    listing.entries(
        &root,
        &names,
        &Below {
            path,
            depth,
            level: 1,
        },
    )?;
    line(listing.out, &listing.end)
}

struct Listing<'a> {
    out: &'a mut dyn Write,
    /// Remaining budget of names. Counted when they are read, since names of many levels are held at once.
    left: usize,
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

impl Listing<'_> {
    fn names(&mut self, directory: &Directory) -> io::Result<Vec<std::ffi::OsString>> {
        let (names, complete) = directory.names(self.left)?;
        self.left -= names.len();
        self.end.complete &= complete;
        Ok(names)
    }

    fn entries(
        &mut self,
        directory: &Directory,
        names: &[std::ffi::OsString],
        below: &Below<'_>,
    ) -> Result<(), FileError> {
        if below.depth == 0 {
            return Ok(());
        }
        for name in names {
            self.entry(directory, name, below)?;
        }
        Ok(())
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
            return self.write(&entry);
        }
        let opened = directory.readable_child(name);
        let opened = opened.and_then(|child| self.names(&child).map(|names| (child, names)));
        entry.unreadable = opened.as_ref().is_err_and(is_refusal);
        self.write(&entry)?;
        let Ok((child, names)) = opened else { return Ok(()) };
        let below = Below {
            path: &path,
            depth: below.depth - 1,
            level: below.level + 1,
        };
        self.entries(&child, &names, &below)
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
        let mut out = Vec::new();
        list(path, depth, &mut out).unwrap();
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
        assert!(!end.complete);
        let (entries, end) = listed(dir.path(), 5);
        assert_eq!((entries.len(), end.complete), (5, true));

        let many = tempfile::tempdir().unwrap();
        for number in 0..10 {
            fs::write(many.path().join(number.to_string()), "").unwrap();
        }
        let root = Directory::open_readable(many.path()).unwrap();
        let (mut out, end) = (
            Vec::new(),
            ListEnd {
                complete: true,
                entries: 0,
            },
        );
        let mut listing = Listing {
            out: &mut out,
            left: 7,
            end,
        };
        assert_eq!(listing.names(&root).unwrap().len(), 7);
        assert_eq!((listing.left, listing.end.complete), (0, false));
        assert_eq!(listing.names(&root).unwrap().len(), 0);
    }

    #[test]
    fn an_entry_that_changes_meanwhile_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["gone", "link", "there"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let root = Directory::open_readable(dir.path()).unwrap();
        let (names, _) = root.names(9).unwrap();
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
            left: 9,
            end,
        };
        let below = Below {
            path: dir.path(),
            depth: 3,
            level: 1,
        };
        listing.entries(&root, &names, &below).unwrap();
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
