//! Moves files and trees.

use std::path::Path;

use super::copy::{Owner, stage};
use super::directory::Location;
use super::entry::Entry;
use super::error::{At, FileError, FileErrorKind};
use super::remove::remove_entry;

/// Moves a file or a tree, as rename(2) does: an existing file or an empty directory is replaced. To another
/// file system it is copied and then removed.
pub(super) fn rename(from: &Path, to: &Path) -> Result<Entry, FileError> {
    let source = Location::of(from)?;
    source.stat().at(from)?;
    let target = Location::making_parents(to)?;
    match source.parent.rename(&source.name, &target.parent, &target.name) {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => copy_and_remove(&source, &target)?,
        renamed => renamed.at(to).map_err(|error| naming_source(error, from))?,
    }
    target.entry()
}

/// Names the source, too, if one of the two is denied: the kernel does not say which.
fn naming_source(error: FileError, from: &Path) -> FileError {
    if error.kind != FileErrorKind::Denied {
        return error;
    }
    let message = format!("{} to move {} there", error.message, from.display());
    FileError { message, ..error }
}

fn copy_and_remove(source: &Location, target: &Location) -> Result<(), FileError> {
    let (staged, count) = stage(source, target, Owner::Kept)?;
    if count.skipped > 0 {
        let message = "FIFOs, sockets and devices cannot be moved to another file system";
        return Err(FileError::new(FileErrorKind::NotAFile, &source.path, message));
    }
    staged.finish(&target.name).at(&target.path)?;
    remove_entry(&source.parent, &source.name).at(&source.path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn move_kind(from: &Path, to: &Path) -> FileErrorKind {
        rename(from, to).unwrap_err().kind
    }

    #[test]
    fn files_trees_and_links_are_moved() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("tree/sub")).unwrap();
        fs::write(path("file"), "new").unwrap();
        fs::write(path("old"), "old").unwrap();
        symlink("old", path("link")).unwrap();
        assert_eq!(rename(&path("file"), &path("old")).unwrap().size, 3);
        let entry = rename(&path("link"), &path("made/here/link")).unwrap();
        assert_eq!(entry.target.as_deref(), Some("old"));
        rename(&path("tree"), &path("made/tree")).unwrap();
        assert!(path("made/tree/sub").is_dir() && !path("tree").exists());

        assert_eq!(move_kind(&path("tree"), &path("x")), FileErrorKind::NotFound);
        assert_eq!(
            move_kind(&path("made"), &path("made/tree/in")),
            FileErrorKind::Invalid
        );
        assert_eq!(
            move_kind(&path("old"), &path("made")),
            FileErrorKind::IsADirectory
        );
        assert_eq!(
            move_kind(&path("made/tree"), &path("old")),
            FileErrorKind::NotADirectory
        );
        assert_eq!(
            move_kind(&path("made/here"), &path("made/tree")),
            FileErrorKind::NotEmpty
        );
        assert_eq!(move_kind(Path::new("/"), &path("x")), FileErrorKind::Invalid);
    }

    #[test]
    fn another_file_system_gets_a_copy() {
        let (disk, memory) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir_in("/dev/shm").unwrap(),
        );
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        assert_ne!(
            device(disk.path()),
            device(memory.path()),
            "/dev/shm is a file system of its own"
        );
        let (from, to) = (disk.path().join("tree"), memory.path().join("made/tree"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::write(from.join("sub/file"), "text").unwrap();
        rename(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("sub/file")).unwrap(), "text");
        assert!(!from.exists());
        // What cannot be copied stays where it is.
        super::super::tests::make_fifo(&to.join("fifo"));
        assert_eq!(move_kind(&to, &from), FileErrorKind::NotAFile);
        assert!(to.join("sub/file").exists() && !from.exists());
        assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
    }
}
