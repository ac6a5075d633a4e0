//! Collects a directory into records.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{
    Attributes, FilePath, MAX_DEPTH, MAX_ENTRIES, Reason, Record, TreeState, copy_content, identity,
};

/// Writes the contents of the directory `root`: files listed in `input` as [`Record::Known`] and unchanged by
/// reference, all others in full. The files have at most `limit` bytes in total.
///
/// Symbolic links are reported and not followed. The directory's [`Record::State`] comes last, unless an entry
/// was missed or changed since it was listed.
///
/// # Errors
/// If the input is invalid, or the output cannot be written.
pub fn collect(root: &Path, limit: u64, mut input: impl Read, out: impl Write) -> io::Result<()> {
    let mut known = BTreeMap::new();
    loop {
        match Record::read(&mut input)? {
            Record::Known { path, identity } => known.insert(path, identity),
            Record::End { .. } => break,
            other => return Err(io::Error::other(format!("{other:?} is not to be known"))),
        };
    }
    let mut collector = Collector {
        root,
        known,
        bytes: limit,
        entries: MAX_ENTRIES,
        tree: TreeState::new(),
        moving: false,
        out,
    };
    let complete = collector.directory(Path::new(""))?;
    if complete && !collector.moving {
        Record::State(collector.tree.0).write(&mut collector.out)?;
    }
    Record::End { complete }.write(&mut collector.out)?;
    collector.out.flush()
}

struct Collector<'a, W> {
    root: &'a Path,
    known: BTreeMap<FilePath, u64>,
    /// Remaining budget in bytes.
    bytes: u64,
    /// Remaining budget of entries.
    entries: usize,
    /// Fingerprint of the entries as they were listed.
    tree: TreeState,
    /// Set if an entry is no longer as it was listed.
    moving: bool,
    out: W,
}

impl<W: Write> Collector<'_, W> {
    /// Collects a directory tree; returns `true` if every entry was reported.
    fn directory(&mut self, below: &Path) -> io::Result<bool> {
        let listed = retried(&self.root.join(below), 0o500, |path| fs::read_dir(path));
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) if below != Path::new("") && is_absence(&error) => {
                self.moving = true;
                return Ok(true);
            }
            Err(_) => return self.left(below.to_path_buf(), Reason::Denied).map(|()| false),
        };
        let mut found: Vec<DirEntry> = listed.flatten().take(self.entries + 1).collect();
        found.sort_by_key(DirEntry::file_name);
        let mut complete = true;
        for entry in found {
            let Some(left) = self.entries.checked_sub(1) else {
                return Ok(false);
            };
            self.entries = left;
            complete &= self.entry(below.join(entry.file_name()), &entry)?;
        }
        Ok(complete)
    }

    fn entry(&mut self, below: PathBuf, entry: &DirEntry) -> io::Result<bool> {
        let Ok(found) = entry.metadata() else {
            // It was removed meanwhile.
            return Ok(true);
        };
        self.tree.add(&below, identity(&found));
        let Some(path) = FilePath::new(&below) else {
            return self.left(below, Reason::Path).map(|()| true);
        };
        if found.is_dir() {
            Record::Directory(path).write(&mut self.out)?;
            if below.components().count() == MAX_DEPTH {
                return self.left(below, Reason::Path).map(|()| true);
            }
            return self.directory(&below);
        }
        if found.is_file() {
            self.file(path, &found)?;
        } else {
            self.left(below, Reason::Kind)?;
        }
        Ok(true)
    }

    /// Sends a file, which may have changed or gone since it was `listed`.
    fn file(&mut self, path: FilePath, listed: &Metadata) -> io::Result<()> {
        let left = |path: &FilePath| path.as_path().to_path_buf();
        if self.bytes.checked_sub(listed.len()).is_none() {
            return self.left(left(&path), Reason::Room);
        }
        if self.known.get(&path) == Some(&identity(listed)) {
            self.bytes -= listed.len();
            return Record::Same(path).write(&mut self.out);
        }
        let place = self.root.join(path.as_path());
        let opened = retried(&place, 0o400, open);
        let Ok((file, found)) = opened.and_then(|file| file.metadata().map(|found| (file, found))) else {
            if fs::symlink_metadata(&place).is_ok_and(|found| identity(&found) == identity(listed)) {
                return self.left(left(&path), Reason::Denied);
            }
            self.moving = true;
            return Ok(());
        };
        self.moving |= identity(&found) != identity(listed);
        let Some(rest) = self.bytes.checked_sub(found.len()).filter(|_| found.is_file()) else {
            return self.left(left(&path), Reason::Changed);
        };
        self.bytes = rest;
        let record = Record::File {
            path: path.clone(),
            identity: identity(&found),
            size: found.len(),
            attributes: Attributes::of(&found),
        };
        record.write(&mut self.out)?;
        match copy_content(found.len(), Lasting(file), &mut self.out)? {
            true => Ok(()),
            false => {
                self.moving = true;
                self.left(left(&path), Reason::Changed)
            }
        }
    }

    fn left(&mut self, path: PathBuf, why: Reason) -> io::Result<()> {
        Record::Left { path, why }.write(&mut self.out)
    }
}

/// A file whose read errors count as its end: the rest is padded.
struct Lasting(File);

impl Read for Lasting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(buffer).unwrap_or_default())
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Opens a file without blocking on a FIFO that may have replaced it.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Retries with the permissions in `mode`, which the owner may have removed from itself.
fn retried<T>(path: &Path, mode: u32, open: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    match open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let present = fs::symlink_metadata(path)?;
            if present.is_symlink() {
                return Err(error);
            }
            fs::set_permissions(path, Permissions::from_mode(present.mode() & 0o777 | mode))?;
            open(path)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    //! Entries that change or vanish between their listing and their reading.

    use super::super::state;
    use super::*;

    /// Output that calls a function when it has received a directory's record.
    struct AtDirectory<F>(Vec<u8>, F);

    impl<F: FnMut()> Write for AtDirectory<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes == b"D" {
                (self.1)();
            }
            self.0.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn records(mut bytes: &[u8]) -> Vec<Record> {
        let mut records = Vec::new();
        while !bytes.is_empty() {
            records.push(Record::read(&mut bytes).unwrap());
        }
        records
    }

    fn file_path(text: &str) -> FilePath {
        FilePath::new(Path::new(text)).unwrap()
    }

    /// Collects `d`, of which `change` makes something else when it has been listed.
    fn collected(root: &Path, change: impl FnMut()) -> Vec<Record> {
        let mut input = Vec::new();
        Record::End { complete: true }.write(&mut input).unwrap();
        let mut out = AtDirectory(Vec::new(), change);
        collect(root, 100, &input[..], &mut out).unwrap();
        records(&out.0)
    }

    #[test]
    fn a_directory_that_vanishes_leaves_the_state_open() {
        let (d, end) = (
            || Record::Directory(file_path("d")),
            Record::End { complete: true },
        );
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("d");
        fs::create_dir(&place).unwrap();
        let found = state(dir.path());
        assert_eq!(
            collected(dir.path(), || ()),
            [d(), Record::State(found), end.clone()]
        );
        assert_eq!(
            collected(dir.path(), || fs::remove_dir(&place).unwrap()),
            [d(), end.clone()]
        );
        assert_ne!(state(dir.path()), found);
        fs::create_dir(&place).unwrap();
        let replaced = || {
            fs::remove_dir(&place).unwrap();
            fs::write(&place, "a file").unwrap();
        };
        assert_eq!(collected(dir.path(), replaced), [d(), end]);
    }

    #[test]
    fn what_is_read_later_than_listed_is_not_certain() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("a");
        // Sends the file after `change`; returns the records and whether they are certain.
        let sent_after = |change: &dyn Fn()| {
            fs::write(&place, "one").unwrap();
            let mut collector = Collector {
                root: dir.path(),
                known: BTreeMap::new(),
                bytes: 5,
                entries: 1,
                tree: TreeState::new(),
                moving: false,
                out: Vec::new(),
            };
            let listed = fs::symlink_metadata(&place).unwrap();
            change();
            collector.file(file_path("a"), &listed).unwrap();
            let mut out = &collector.out[..];
            let first = (!out.is_empty()).then(|| Record::read(&mut out).unwrap());
            (first, !collector.moving)
        };
        let (record, certain) = sent_after(&|| ());
        assert!(matches!(record, Some(Record::File { size: 3, .. })) && certain);
        let (record, certain) = sent_after(&|| fs::write(&place, "four").unwrap());
        assert!(matches!(record, Some(Record::File { size: 4, .. })) && !certain);
        // A file that is gone is not reported: the reader removes its own.
        assert_eq!(sent_after(&|| fs::remove_file(&place).unwrap()), (None, false));
        let (record, certain) = sent_after(&|| fs::write(&place, "too much").unwrap());
        assert!(
            matches!(
                record,
                Some(Record::Left {
                    why: Reason::Changed,
                    ..
                })
            ) && !certain,
            "{record:?}"
        );
        let replaced = || {
            fs::remove_file(&place).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", &place).unwrap();
        };
        assert_eq!(sent_after(&replaced), (None, false));
    }
}
