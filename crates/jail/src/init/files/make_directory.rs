//! Makes directories.

use std::fs;
use std::path::Path;

use super::directory::create_all;
use super::entry::{Entry, MadeDirectory};
use super::error::{At, FileError, FileErrorKind};
use super::resolve::metadata;

/// Makes a directory and those on the way to it. A link to a directory is one.
pub(super) fn make_directory(path: &Path) -> Result<MadeDirectory, FileError> {
    let created = match create_all(path) {
        // Here it is the path itself that is taken.
        Err(error) if error.kind == FileErrorKind::NotADirectory && is_taken(path) => {
            let message = "expected nothing or a directory, found a file";
            return Err(FileError::new(FileErrorKind::Exists, path, message));
        }
        made => made?,
    };
    let found = metadata(path).at(path)?;
    let entry = Entry::new(path, &found, None);
    Ok(MadeDirectory { created, entry })
}

fn is_taken(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::EntryType;
    use super::*;

    #[test]
    fn a_directory_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        let made = make_directory(&path).unwrap();
        assert_eq!((made.created, made.entry.kind), (true, EntryType::Directory));
        assert!(!make_directory(&path).unwrap().created);
        symlink("a/b", dir.path().join("link")).unwrap();
        assert!(!make_directory(&dir.path().join("link")).unwrap().created);
        assert!(make_directory(&dir.path().join("link/d")).unwrap().created);
        assert!(dir.path().join("a/b/d").is_dir());
    }

    #[test]
    fn files_are_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        symlink("nowhere", dir.path().join("link")).unwrap();
        let check = |path: &str, kind: FileErrorKind| {
            let error = make_directory(&dir.path().join(path)).unwrap_err();
            assert_eq!(error.kind, kind, "{path}");
        };
        check("file", FileErrorKind::Exists);
        check("file/below", FileErrorKind::NotADirectory);
        check("link", FileErrorKind::Exists);
        check(&"n".repeat(256), FileErrorKind::TooLong);
    }
}
