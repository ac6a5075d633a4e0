//! Removes files and trees.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use super::MAX_TREE_DEPTH;
use super::directory::{Directory, Location};
use super::error::{At, FileError};
use super::staged::PREFIX;

/// Maximum number of times that a directory is emptied, while other programs fill it or it is deeper than
/// [`MAX_TREE_DEPTH`].
const MAX_PASSES: usize = 4096;

/// Removes a file, or a directory with its contents. Links are removed, not followed.
pub(super) fn remove(path: &Path) -> Result<(), FileError> {
    let found = Location::of(path)?;
    remove_entry(&found.parent, &found.name).at(path)
}

/// Removes an entry of a directory, with its contents.
pub(super) fn remove_entry(parent: &Directory, name: &OsStr) -> io::Result<()> {
    match parent.remove_file(name) {
        Err(error) if error.raw_os_error() == Some(libc::EISDIR) => {}
        removed => return removed,
    }
    let top = parent.readable_child(name)?;
    let mut removal = Removal { top: &top, moved: 0 };
    for _ in 0..MAX_PASSES {
        removal.empty(&top, 1)?;
        match parent.remove_directory(name) {
            Err(error) if is_filled(&error) => {}
            removed => return removed,
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENOTEMPTY))
}

struct Removal<'a> {
    top: &'a Directory,
    /// Number of directories moved to the top.
    moved: u64,
}

impl Removal<'_> {
    /// Removes the contents of a directory of this depth. A directory that is too deep to hold handles for is
    /// moved to the top, for the next pass.
    fn empty(&mut self, directory: &Directory, depth: usize) -> io::Result<()> {
        directory.each_name(|name| match self.entry(directory, name, depth) {
            // Others removed it or put something into it: the next pass knows.
            Err(error) if is_filled(&error) || error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
    }

    fn entry(&mut self, directory: &Directory, name: &OsStr, depth: usize) -> io::Result<()> {
        match directory.remove_file(name) {
            Err(error) if error.raw_os_error() == Some(libc::EISDIR) => {}
            removed => return removed,
        }
        // Most are empty, or become so.
        match directory.remove_directory(name) {
            Err(error) if is_filled(&error) => {}
            removed => return removed,
        }
        if depth == MAX_TREE_DEPTH {
            self.moved += 1;
            let new = OsString::from(format!("{PREFIX}{}-{}", std::process::id(), self.moved));
            return directory.rename(name, self.top, &new);
        }
        self.empty(&directory.readable_child(name)?, depth + 1)?;
        directory.remove_directory(name)
    }
}

/// Returns `true` for the error of removing a directory that has entries.
fn is_filled(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::FileErrorKind;
    use super::*;

    #[test]
    fn trees_are_removed_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("tree/sub/empty")).unwrap();
        fs::create_dir(path("kept")).unwrap();
        fs::write(path("kept/file"), "kept").unwrap();
        symlink(path("kept"), path("tree/link")).unwrap();
        symlink(path("kept"), path("link")).unwrap();
        super::super::tests::make_fifo(&path("tree/fifo"));
        for number in 0..3_000 {
            fs::write(path("tree/sub").join(number.to_string()), "").unwrap();
        }
        remove(&path("tree")).unwrap();
        remove(&path("link")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(fs::read(path("kept/file")).unwrap(), b"kept");
        assert_eq!(remove(&path("tree")).unwrap_err().kind, FileErrorKind::NotFound);
        assert_eq!(
            remove(&path("kept/file/x")).unwrap_err().kind,
            FileErrorKind::NotADirectory
        );
    }

    #[test]
    fn a_tree_deeper_than_paths_can_be_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = Directory::open(dir.path()).unwrap();
        for _ in 0..3_000 {
            at.create_directory(OsStr::new("deep"), 0o755).unwrap();
            at = at.child(OsStr::new("deep")).unwrap();
        }
        remove(&dir.path().join("deep")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_root_directory_is_refused() {
        for path in ["/", "//", "/.", "/tmp/.."] {
            let error = remove(Path::new(path)).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::Invalid, "{path}");
        }
    }
}
