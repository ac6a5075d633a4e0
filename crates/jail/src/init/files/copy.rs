//! Copies files and trees.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use super::cancel::refuse_if_cancelled;
use super::directory::{Directory, Location, is_same, set_attributes};
use super::entry::{Copied, EntryType};
use super::error::{At, FileError, FileErrorKind};
use super::staged::Staged;
use super::stream::transfer;
use super::{MAX_TREE_DEPTH, MAX_TREE_ENTRIES};
use crate::copy::copy_data;

/// The owner of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The user of the copying process.
    Copier,
    /// The owner of the original, if the process may change owners.
    Kept,
}

/// Copies a file or a tree, with modes, times and symbolic links. The copy appears when it is complete.
///
/// Hard links become files of their own, holes stay holes, set-user-ID and set-group-ID are dropped. An existing file is
/// replaced, an existing directory refused.
pub(super) fn copy(from: &Path, to: &Path) -> Result<Copied, FileError> {
    let source = Location::of(from)?;
    source.stat().at(from)?;
    let target = Location::making_parents(to)?;
    if target.stat().is_ok_and(|found| found.is_dir()) {
        let message = "expected nothing or a file at the destination, found a directory";
        return Err(FileError::new(FileErrorKind::Exists, to, message));
    }
    let (staged, done) = stage(&source, &target, Owner::Copier)?;
    staged.finish(&target.name).at(to)?;
    Ok(Copied {
        entry: target.entry()?,
        entries: done.entries,
        skipped: done.skipped,
    })
}

/// Number of entries copied and not copied.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Count {
    pub(super) entries: u64,
    pub(super) skipped: u64,
}

/// Copies an entry to a temporary name beside its destination.
pub(super) fn stage<'a>(
    source: &Location,
    target: &'a Location,
    owner: Owner,
) -> Result<(Staged<'a>, Count), FileError> {
    refuse_inside(source, target)?;
    let found = source.stat().at(&source.path)?;
    if is_special(&found) {
        let message = "expected a file, directory or link, found a FIFO, socket or device";
        return Err(FileError::new(FileErrorKind::NotAFile, &source.path, message));
    }
    let mut copier = Copier {
        owner,
        path: source.path.clone(),
        depth: 0,
        left: MAX_TREE_ENTRIES,
        count: Count::default(),
    };
    // Nothing is created yet: that depends on the entry's type, and never replaces anything.
    let is_free = |name: &OsStr| match target.parent.stat(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        found => found.and(Err(ErrorKind::AlreadyExists.into())),
    };
    let (staged, ()) = Staged::create(&target.parent, is_free).at(&target.path)?;
    copier.entry(&source.parent, &source.name, &target.parent, staged.name())?;
    Ok((staged, copier.count))
}

/// Refuses to copy a directory into itself.
fn refuse_inside(source: &Location, target: &Location) -> Result<(), FileError> {
    let found = source.stat().at(&source.path)?;
    let mut above = target.parent.child(OsStr::new(".")).at(&target.path)?;
    loop {
        let here = above.metadata().at(&target.path)?;
        if is_same(&here, &found) {
            let message = "the destination lies in the directory that is copied";
            return Err(FileError::new(FileErrorKind::Invalid, &target.path, message));
        }
        above = above.above().at(&target.path)?;
        if is_same(&above.metadata().at(&target.path)?, &here) {
            return Ok(());
        }
    }
}

fn is_special(found: &Metadata) -> bool {
    matches!(
        EntryType::of(found),
        EntryType::Fifo | EntryType::Socket | EntryType::Device
    )
}

struct Copier {
    owner: Owner,
    /// Path of the entry that is copied, for errors.
    path: PathBuf,
    depth: usize,
    /// Remaining budget of names.
    left: usize,
    count: Count,
}

impl Copier {
    fn entry(
        &mut self,
        from: &Directory,
        name: &OsStr,
        to: &Directory,
        new: &OsStr,
    ) -> Result<(), FileError> {
        refuse_if_cancelled().at(&self.path)?;
        let found = match from.stat(name) {
            // It was removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound && self.depth > 0 => return Ok(()),
            found => found.at(&self.path)?,
        };
        match EntryType::of(&found) {
            EntryType::Directory => return self.directory(from, name, to, new),
            EntryType::File => self.file(from, name, to, new),
            EntryType::Symlink => from
                .link_target(name)
                .and_then(|target| to.create_link(new, &target)),
            EntryType::Fifo | EntryType::Socket | EntryType::Device => {
                self.count.skipped += 1;
                return Ok(());
            }
        }
        .at(&self.path)?;
        self.count.entries += 1;
        Ok(())
    }

    fn file(&mut self, from: &Directory, name: &OsStr, to: &Directory, new: &OsStr) -> io::Result<()> {
        let source = from.open_file(name)?;
        let found = source.metadata()?;
        if !found.is_file() {
            // It was replaced meanwhile.
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let target = to.create_file(new)?;
        match found.len() {
            // Also that of a file whose length the kernel does not know, as in `/proc`.
            0 => drop(transfer(&mut &source, &mut &target)?),
            length => copy_data(&source, &target, length, refuse_if_cancelled)?,
        }
        if self.owner == Owner::Kept {
            let _ = fchown(&target, Some(found.uid()), Some(found.gid()));
        }
        set_attributes(&target, found.mode() & 0o1777, found.modified()?)
    }

    fn directory(
        &mut self,
        from: &Directory,
        name: &OsStr,
        to: &Directory,
        new: &OsStr,
    ) -> Result<(), FileError> {
        if self.depth == MAX_TREE_DEPTH {
            let message = format!("the tree is deeper than {MAX_TREE_DEPTH} directories");
            return Err(FileError::new(FileErrorKind::TooLong, &self.path, message));
        }
        let source = from.readable_child(name).at(&self.path)?;
        let made = to.create_directory(new, 0o700);
        let target = made.and_then(|()| to.readable_child(new)).at(&self.path)?;
        let (names, complete) = source.names(self.left).at(&self.path)?;
        if !complete {
            let message = format!("the tree has more than {MAX_TREE_ENTRIES} entries");
            return Err(FileError::new(FileErrorKind::TooLong, &self.path, message));
        }
        self.left -= names.len();
        self.depth += 1;
        for name in names {
            self.path.push(&name);
            self.entry(&source, &name, &target, &name)?;
            self.path.pop();
        }
        self.depth -= 1;
        self.count.entries += 1;
        self.finish(&source, &target).at(&self.path)
    }

    fn finish(&self, source: &Directory, target: &Directory) -> io::Result<()> {
        let found = source.metadata()?;
        if self.owner == Owner::Kept {
            target.give_to(found.uid(), found.gid());
        }
        target.set_attributes(found.mode() & 0o1777, found.modified()?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::sys;

    fn kind(result: Result<Copied, FileError>) -> FileErrorKind {
        result.unwrap_err().kind
    }

    #[test]
    fn trees_are_copied_with_modes_times_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("tree/sub")).unwrap();
        fs::write(path("tree/sub/file"), "text").unwrap();
        fs::set_permissions(path("tree/sub/file"), Permissions::from_mode(0o4751)).unwrap();
        symlink("sub/file", path("tree/link")).unwrap();
        symlink("/nowhere", path("tree/dangling")).unwrap();
        super::super::tests::make_fifo(&path("tree/fifo"));
        fs::set_permissions(path("tree/sub"), Permissions::from_mode(0o500)).unwrap();
        let copied = copy(&path("tree"), &path("made/copy")).unwrap();
        assert_eq!((copied.entries, copied.skipped), (5, 1));
        assert_eq!(copied.entry.path, path("made/copy").display().to_string());
        assert_eq!(fs::read_to_string(path("made/copy/link")).unwrap(), "text");
        assert_eq!(
            fs::read_link(path("made/copy/dangling")).unwrap(),
            Path::new("/nowhere")
        );
        let (old, new) = (
            fs::metadata(path("tree/sub/file")).unwrap(),
            fs::metadata(path("made/copy/sub/file")).unwrap(),
        );
        assert_eq!(new.mode() & 0o7777, 0o751);
        assert_eq!(new.modified().unwrap(), old.modified().unwrap());
        assert_eq!(fs::metadata(path("made/copy/sub")).unwrap().mode() & 0o777, 0o500);
        assert_eq!(fs::read_dir(path("made")).unwrap().count(), 1);
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let deep = vec!["d"; MAX_TREE_DEPTH + 2].join("/");
        fs::create_dir_all(path("tree").join(deep)).unwrap();
        fs::create_dir(path("to")).unwrap();
        super::super::tests::make_fifo(&path("fifo"));
        let error = copy(&path("tree"), &path("to/copy")).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::TooLong);
        assert!(error.path.len() > 2 * MAX_TREE_DEPTH, "{error}");
        assert_eq!(
            kind(copy(&path("missing"), &path("to/copy"))),
            FileErrorKind::NotFound
        );
        assert_eq!(
            kind(copy(&path("fifo"), &path("to/copy"))),
            FileErrorKind::NotAFile
        );
        assert_eq!(kind(copy(&path("tree"), &path("to"))), FileErrorKind::Exists);
        assert_eq!(
            kind(copy(&path("tree"), &path("tree/d/copy"))),
            FileErrorKind::Invalid
        );
        assert_eq!(
            kind(copy(&path("tree"), &path("tree/copy"))),
            FileErrorKind::Invalid
        );
        assert_eq!(fs::read_dir(path("to")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(path("tree")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_system_without_holes_or_lengths_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        // Like gVisor, it refuses to look for holes.
        let file = File::open("/proc/filesystems").unwrap();
        assert_eq!(sys::next_data(file.as_fd(), 5).unwrap(), Some((5, u64::MAX)));
        let copied = copy(Path::new("/proc/filesystems"), &dir.path().join("copy")).unwrap();
        assert_eq!(copied.entries, 1);
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(
            read(&dir.path().join("copy")),
            read(Path::new("/proc/filesystems"))
        );
    }

    #[test]
    fn files_are_replaced_and_holes_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        fs::write(path("old"), "old").unwrap();
        symlink("old", path("link")).unwrap();
        let copied = copy(&path("huge"), &path("link")).unwrap();
        assert_eq!((copied.entry.size, copied.entries), (1 << 40, 1));
        assert!(fs::metadata(path("link")).unwrap().blocks() < 100);
        assert_eq!(fs::read_to_string(path("old")).unwrap(), "old");
    }
}
