//! Writes trees as tar archives.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::directory::{Directory, Location};
use super::entry::EntryType;
use super::error::{At, FileError, FileErrorKind};
use super::report::{SkipReason, TreeReport};
use super::{MAX_PATH, MAX_TREE_DEPTH, MAX_TREE_ENTRIES, WHITEOUT};
use crate::sys;
use ringfence_tar::{Kind, Member, Writer};

/// Writes a directory's entries with paths relative to it, or a file or link by its name.
///
/// Entries that cannot be archived are left out, and reported.
pub(super) fn archive(path: &Path, out: &mut dyn Write) -> Result<TreeReport, FileError> {
    let mut archiver = Archiver::new(out);
    match Directory::open_readable(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => {
            let found = Location::of(path)?;
            found.stat().at(path)?;
            archiver.path.push(&found.name);
            archiver.entry(&found.parent, &found.name, 0)?;
        }
        opened => archiver.entries(&opened.at(path)?, 1)?,
    }
    archiver.writer.finish().at(path)?;
    Ok(archiver.report)
}

/// Writes the entries of several directories with paths relative to `/`, without those directories themselves. Those
/// that do not exist are left out, and so is what is mounted below them: it belongs to the sandbox's set-up.
pub(super) fn pack(paths: &[String], out: &mut dyn Write) -> Result<TreeReport, FileError> {
    let mut archiver = Archiver::new(out);
    for path in paths.iter().map(Path::new) {
        let opened = match Directory::open_readable(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            opened => opened.at(path)?,
        };
        archiver.path = path.strip_prefix("/").unwrap_or(path).to_owned();
        archiver.mount = opened.mount();
        let depth = archiver.path.components().count() + 1;
        archiver.entries(&opened, depth)?;
    }
    archiver.writer.finish().at(Path::new("/"))?;
    Ok(archiver.report)
}

/// Writes the changes of a root, read from the upper directory of its overlay, followed by several
/// directories and their entries, as with [`pack`]. A removed entry becomes a member of the type
/// [`WHITEOUT`]. A directory that hides the one below it (opaque) has such a member before its own.
///
/// A forged archive gains nothing: [`extract_root`](super::extract::extract_root) performs only operations
/// that programs with that root could perform themselves.
pub(super) fn pack_root(
    changes: &OwnedFd,
    paths: &[String],
    out: &mut dyn Write,
) -> Result<TreeReport, FileError> {
    let root = Path::new("/");
    let mut archiver = Archiver::new(out);
    archiver.whiteouts = Whiteouts::Kept;
    archiver.entries(&Directory::of_handle(changes).at(root)?, 1)?;
    // Programs can make devices that look like whiteouts elsewhere.
    archiver.whiteouts = Whiteouts::Skipped;
    for path in paths.iter().map(Path::new) {
        let found = Location::of(path)?;
        archiver.path = path.strip_prefix(root).unwrap_or(path).to_owned();
        let opened = found.parent.child(&found.name);
        archiver.mount = opened.ok().and_then(|directory| directory.mount());
        let depth = archiver.path.components().count();
        archiver.directory(&found.parent, &found.name, depth)?;
    }
    archiver.writer.finish().at(root)?;
    Ok(archiver.report)
}

/// Treatment of the devices with the number 0, 0, with which an overlay's upper directory marks removed
/// entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whiteouts {
    Skipped,
    Kept,
}

struct Archiver<'a> {
    writer: Writer<&'a mut dyn Write>,
    /// Paths of files with several names, by device and inode.
    links: HashMap<(u64, u64), PathBuf>,
    /// Path of the entry that is archived, relative to the archive.
    path: PathBuf,
    /// Remaining budget of names.
    left: usize,
    report: TreeReport,
    whiteouts: Whiteouts,
    /// Mount to stay in; `None` for any.
    mount: Option<u64>,
}

impl<'a> Archiver<'a> {
    fn new(out: &'a mut dyn Write) -> Self {
        Self {
            writer: Writer::new(out),
            links: HashMap::new(),
            path: PathBuf::new(),
            left: MAX_TREE_ENTRIES,
            report: TreeReport::default(),
            whiteouts: Whiteouts::Skipped,
            mount: None,
        }
    }

    /// Returns `true` for a mount other than the one to stay in.
    fn is_beyond(&self, mount: Option<u64>) -> bool {
        matches!((self.mount, mount), (Some(own), Some(other)) if own != other)
    }

    /// Writes the entries of a directory, which are `depth` below the first one.
    fn entries(&mut self, directory: &Directory, depth: usize) -> Result<(), FileError> {
        let (names, complete) = directory.names(self.left).at(&self.path)?;
        if !complete {
            let message = format!("the tree has more than {MAX_TREE_ENTRIES} entries");
            return Err(FileError::new(FileErrorKind::TooLong, &self.path, message));
        }
        self.left -= names.len();
        for name in names {
            self.path.push(&name);
            self.entry(directory, &name, depth)?;
            self.path.pop();
        }
        Ok(())
    }

    fn entry(&mut self, parent: &Directory, name: &OsStr, depth: usize) -> Result<(), FileError> {
        // It was removed meanwhile.
        let Ok(found) = parent.stat(name) else {
            return Ok(());
        };
        if self.path.as_os_str().len() >= MAX_PATH {
            self.report.skip(&self.path, SkipReason::TooLong);
            return Ok(());
        }
        if self.whiteouts == Whiteouts::Kept && is_whiteout(&found) {
            return self.whiteout(&found).at(&self.path);
        }
        match EntryType::of(&found) {
            EntryType::Directory => return self.directory(parent, name, depth),
            EntryType::File => self.file(parent, name),
            EntryType::Symlink => self.link(parent, name, &found),
            EntryType::Fifo | EntryType::Socket | EntryType::Device => {
                self.report.skip(&self.path, SkipReason::Special);
                Ok(())
            }
        }
        .at(&self.path)
    }

    fn directory(&mut self, parent: &Directory, name: &OsStr, depth: usize) -> Result<(), FileError> {
        let opened = match parent.readable_child(name) {
            Ok(_) if depth >= MAX_TREE_DEPTH => {
                self.report.skip(&self.path, SkipReason::TooLong);
                return Ok(());
            }
            Ok(opened) => opened,
            Err(error) => {
                self.report_failure(&error);
                return Ok(());
            }
        };
        if self.is_beyond(opened.mount()) {
            return Ok(());
        }
        let found = opened.metadata().at(&self.path)?;
        if self.whiteouts == Whiteouts::Kept && opened.is_opaque() {
            self.whiteout(&found).at(&self.path)?;
        }
        self.member(Kind::Directory, &found, OsStr::new(""))
            .at(&self.path)?;
        self.entries(&opened, depth + 1)
    }

    fn whiteout(&mut self, found: &Metadata) -> io::Result<()> {
        self.member(WHITEOUT, found, OsStr::new(""))
    }

    fn link(&mut self, parent: &Directory, name: &OsStr, found: &Metadata) -> io::Result<()> {
        match parent.link_target(name) {
            Ok(target) => self.member(Kind::Symlink, found, &target),
            // It was replaced meanwhile.
            Err(_) => Ok(()),
        }
    }

    fn file(&mut self, parent: &Directory, name: &OsStr) -> io::Result<()> {
        let opened = parent.open_file(name);
        let opened = opened.and_then(|file| file.metadata().map(|found| (file, found)));
        let (file, found) = match opened {
            Ok((file, found)) if !found.is_file() || self.is_beyond(sys::mount_of(file.as_fd())) => {
                return Ok(());
            }
            Ok(opened) => opened,
            Err(error) => {
                self.report_failure(&error);
                return Ok(());
            }
        };
        if found.nlink() > 1 {
            if let Some(first) = self.links.get(&(found.dev(), found.ino())).cloned() {
                return self.member(Kind::HardLink, &found, first.as_os_str());
            }
            self.links.insert((found.dev(), found.ino()), self.path.clone());
        }
        self.member(Kind::File, &found, OsStr::new(""))?;
        let copied = self.writer.content(found.len(), &mut Lasting(file))?;
        self.report.bytes += copied;
        if copied < found.len() {
            self.report.skip(&self.path, SkipReason::Changed);
        }
        Ok(())
    }

    fn member(&mut self, kind: Kind, found: &Metadata, target: &OsStr) -> io::Result<()> {
        let mut path = self.path.clone().into_os_string().into_vec();
        if kind == Kind::Directory {
            path.push(b'/');
        }
        self.report.entries += 1;
        self.writer.member(&Member {
            path,
            target: target.as_bytes().to_vec(),
            kind,
            mode: found.mode() & 0o7777,
            uid: found.uid().into(),
            gid: found.gid().into(),
            size: if kind == Kind::File { found.len() } else { 0 },
            modified: u64::try_from(found.mtime()).unwrap_or_default(),
        })
    }

    /// Reports an entry that could not be opened, unless it is simply gone.
    fn report_failure(&mut self, error: &io::Error) {
        if error.kind() != ErrorKind::NotFound {
            self.report.skip(&self.path, SkipReason::Denied);
        }
    }
}

fn is_whiteout(found: &Metadata) -> bool {
    found.file_type().is_char_device() && found.rdev() == 0
}

/// A file whose read errors count as its end: the rest is zeros.
struct Lasting(File);

impl Read for Lasting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.read(buffer).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::extract::extract;
    use super::super::tests::make_fifo;
    use super::*;

    fn archived(path: &Path) -> (Vec<u8>, TreeReport) {
        let mut out = Vec::new();
        let report = archive(path, &mut out).unwrap();
        (out, report)
    }

    #[test]
    fn a_tree_comes_back_as_it_was() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| from.path().join(name);
        let long = format!("{}/{}", "l".repeat(120), "m".repeat(120));
        fs::create_dir_all(path(&long)).unwrap();
        fs::create_dir(path("locked")).unwrap();
        fs::write(path("locked/file"), "text").unwrap();
        fs::write(from.path().join(&long).join("ü\n"), vec![7; 100_000]).unwrap();
        fs::hard_link(path("locked/file"), path("second")).unwrap();
        symlink("../up/and/away", path("link")).unwrap();
        fs::set_permissions(path("second"), Permissions::from_mode(0o4755)).unwrap();
        fs::set_permissions(path("locked"), Permissions::from_mode(0o555)).unwrap();
        let (bytes, report) = archived(from.path());
        assert_eq!((report.entries, report.bytes, report.skipped), (7, 100_004, 0));
        let place = to.path().join("made/here");
        assert_eq!(extract(&place, &mut &bytes[..]).unwrap(), report);
        let there = |name: &str| fs::symlink_metadata(place.join(name)).unwrap();
        assert_eq!(fs::read(place.join(&long).join("ü\n")).unwrap(), [7; 100_000]);
        assert_eq!(there("second").ino(), there("locked/file").ino());
        assert_eq!(there("second").mode() & 0o7777, 0o755);
        assert_eq!(there("locked").mode() & 0o7777, 0o555);
        assert_eq!(
            there("locked").mtime(),
            fs::metadata(path("locked")).unwrap().mtime()
        );
        assert_eq!(
            fs::read_link(place.join("link")).unwrap(),
            Path::new("../up/and/away")
        );
        // Again, over what is there.
        assert_eq!(extract(&place, &mut &bytes[..]).unwrap(), report);
    }

    #[test]
    fn entries_that_cannot_be_archived_are_named() {
        let dir = tempfile::tempdir().unwrap();
        make_fifo(&dir.path().join("fifo"));
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        fs::write(dir.path().join("there"), "1").unwrap();
        fs::create_dir_all(dir.path().join(vec!["z"; MAX_TREE_DEPTH + 2].join("/"))).unwrap();
        let (_, report) = archived(dir.path());
        let reasons: Vec<_> = report.named.iter().map(|named| named.reason).collect();
        assert_eq!(
            reasons,
            [SkipReason::Special, SkipReason::Special, SkipReason::TooLong]
        );
        assert_eq!((report.named[0].path.as_str(), report.skipped), ("fifo", 3));
        for number in 0..200 {
            make_fifo(&dir.path().join(number.to_string()));
        }
        let (_, report) = archived(dir.path());
        assert_eq!((report.skipped, report.named.len()), (203, 100));
    }

    #[test]
    fn several_trees_go_into_one_archive() {
        let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir_all(path("one/deep")).unwrap();
        fs::create_dir(path("two")).unwrap();
        fs::write(path("one/deep/file"), "1").unwrap();
        fs::hard_link(path("one/deep/file"), path("two/same")).unwrap();
        let mut out = Vec::new();
        let report = pack(&[path("one"), path("missing"), path("two")], &mut out).unwrap();
        assert_eq!((report.entries, report.skipped), (3, 0));
        extract(to.path(), &mut &out[..]).unwrap();
        let below = to.path().join(dir.path().strip_prefix("/").unwrap());
        assert_eq!(fs::read(below.join("one/deep/file")).unwrap(), b"1");
        assert_eq!(
            fs::metadata(below.join("two/same")).unwrap().ino(),
            fs::metadata(below.join("one/deep/file")).unwrap().ino()
        );
    }

    #[test]
    fn a_file_is_an_archive_of_itself() {
        let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(dir.path().join("file"), "text").unwrap();
        let (bytes, report) = archived(&dir.path().join("file"));
        assert_eq!(report.entries, 1);
        extract(to.path(), &mut &bytes[..]).unwrap();
        assert_eq!(fs::read(to.path().join("file")).unwrap(), b"text");
        let missing = archive(&dir.path().join("missing"), &mut Vec::new());
        assert_eq!(missing.unwrap_err().kind, FileErrorKind::NotFound);
    }
}
