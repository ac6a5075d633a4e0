//! Writes files.

use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use super::directory::FileOwner;
use super::entry::{Entry, FileIdentity, Written};
use super::error::{At, FileError, FileErrorKind};
use super::read::refuse_others;
use super::resolve::{Resolved, resolve};
use super::staged::Staged;
use super::stream::transfer;

/// Mode of a new file.
const DEFAULT_MODE: u32 = 0o644;

/// Writes a file from an input, which must have `size` bytes if that is given, and end where it is complete.
///
/// Readers see the old file or the new one. Links are followed, so a link stays one. A replaced file passes on its mode,
/// if none is given, and its owner, if we may; its other hard links keep the old content. A new one belongs to `owner`.
pub(super) fn write(
    path: &Path,
    mode: Option<u32>,
    size: Option<u64>,
    owner: Option<FileOwner>,
    input: &mut dyn Read,
) -> Result<Written, FileError> {
    let target = destination(path)?;
    let old = target.found;
    if let Some(old) = &old {
        refuse_others(path, old)?;
    }
    let create = |name: &std::ffi::OsStr| target.directory.create_file(name);
    let (staged, mut file) = Staged::create(&target.directory, create).at(path)?;
    fill(path, size, input, &mut file)?;
    take_over(&file, mode, old.as_ref(), owner).at(path)?;
    staged.finish(&target.name).at(path)?;
    let last = old.filter(|old| old.nlink() == 1);
    Ok(Written {
        entry: Entry::new(path, &file.metadata().at(path)?, None),
        replaced: last.as_ref().and_then(FileIdentity::of),
    })
}

/// Returns the entry that a path leads to, which may be missing, and creates the directories on the way.
fn destination(path: &Path) -> Result<Resolved, FileError> {
    // Such a path names a directory, present or not.
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") || path.file_name().is_none() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR)).at(path);
    }
    let found = resolve(path).at(path)?;
    if found.is_behind_link(true) {
        return Err(io::Error::from_raw_os_error(libc::ENOTDIR)).at(path);
    }
    if found.has_parent() {
        return Ok(found);
    }
    found.make_parents(None).at(path)
}

fn fill(path: &Path, size: Option<u64>, input: &mut dyn Read, file: &mut File) -> Result<(), FileError> {
    let Some(size) = size else {
        return transfer(input, file).at(path).map(drop);
    };
    // One more byte shows that there are too many.
    let written = transfer(&mut input.take(size.saturating_add(1)), file).at(path)?;
    if written == size {
        return Ok(());
    }
    let message = match written < size {
        true => format!("expected {size} bytes, and the input ended after {written}"),
        false => format!("expected {size} bytes, and the input has more"),
    };
    Err(FileError::new(FileErrorKind::Invalid, path, message))
}

fn take_over(
    file: &File,
    mode: Option<u32>,
    old: Option<&Metadata>,
    owner: Option<FileOwner>,
) -> io::Result<()> {
    if let Some(old) = old {
        // Only a privileged user may give files away; another one owns the file from now on.
        let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    } else if let Some(FileOwner { user, group }) = owner {
        fchown(file, Some(user), Some(group))?;
    }
    let kept = old.map_or(DEFAULT_MODE, |old| old.mode() & 0o777);
    file.set_permissions(Permissions::from_mode(mode.unwrap_or(kept)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write_text(path: &Path, text: &str) -> Result<Entry, FileErrorKind> {
        let written = write(path, None, None, None, &mut text.as_bytes());
        written.map(|written| written.entry).map_err(|error| error.kind)
    }

    #[test]
    fn the_name_of_a_directory_is_none_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("there")).unwrap();
        for name in ["there/", "there/.", "there/..", "missing/", "missing/."] {
            let refused = write_text(&dir.path().join(name), "x");
            assert_eq!(refused.unwrap_err(), FileErrorKind::IsADirectory, "{name}");
        }
        assert!(!dir.path().join("missing").exists());
    }

    #[test]
    fn a_file_is_replaced_and_its_mode_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/parents/file");
        let entry = write_text(&path, "one").unwrap();
        assert_eq!((entry.size, entry.mode, entry.name.as_str()), (3, 0o644, "file"));
        fs::set_permissions(&path, Permissions::from_mode(0o4750)).unwrap();
        let reader = File::open(&path).unwrap();
        let entry = write_text(&path, "two!").unwrap();
        assert_eq!((entry.size, entry.mode), (4, 0o750));
        assert_eq!(io::read_to_string(reader).unwrap(), "one");
        assert_eq!(fs::read_to_string(&path).unwrap(), "two!");
        let old = Entry::new(&path, &path.metadata().unwrap(), None).identity;
        let written = write(&path, Some(0o600), Some(0), None, &mut io::empty()).unwrap();
        assert_eq!((written.entry.size, written.entry.mode), (0, 0o600));
        assert_eq!(written.replaced, old);
        assert!(old.is_some() && written.entry.identity != old);
        // A file that lives on under another name is not replaced.
        fs::hard_link(&path, path.with_file_name("other")).unwrap();
        let written = write(&path, None, None, None, &mut io::empty()).unwrap();
        assert_eq!(written.replaced, None);
        fs::remove_file(path.with_file_name("other")).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_belongs_to_its_owner_and_a_replaced_one_to_who_had_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let owner = |user| Some(FileOwner { user, group: user });
        let uid = |name: &str| path(name).metadata().unwrap().uid();
        let write = |name: &str, user| write(&path(name), None, None, owner(user), &mut &b"x"[..]);
        write("file", 65_534).unwrap();
        assert_eq!(uid("file"), 65_534);
        write("file", 65_533).unwrap();
        assert_eq!(uid("file"), 65_534);
    }

    #[test]
    fn a_broken_stream_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "old").unwrap();
        let check = |size: u64| {
            let error = write(&path, None, Some(size), None, &mut &b"12345"[..]).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::Invalid, "{error}");
        };
        check(4);
        check(6);
        check(u64::MAX);
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
        }
        write(&path, None, None, None, &mut b"new".chain(Broken)).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        write(&path, None, Some(5), None, &mut &b"12345"[..]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "12345");
    }

    #[test]
    fn links_are_followed_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("sub")).unwrap();
        fs::write(path("target"), "old").unwrap();
        symlink("../target", path("sub/first")).unwrap();
        symlink(path("sub/first"), path("second")).unwrap();
        symlink("made/later", path("dangling")).unwrap();
        symlink("loop", path("loop")).unwrap();
        write_text(&path("second"), "new").unwrap();
        write_text(&path("dangling"), "made").unwrap();
        assert_eq!(fs::read_to_string(path("target")).unwrap(), "new");
        assert_eq!(fs::read_to_string(path("made/later")).unwrap(), "made");
        assert!(path("second").is_symlink() && path("sub/first").is_symlink());
        assert_eq!(write_text(&path("loop"), ""), Err(FileErrorKind::Invalid));
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        super::super::tests::make_fifo(&dir.path().join("fifo"));
        let check =
            |path: &Path, kind: FileErrorKind| assert_eq!(write_text(path, "x"), Err(kind), "{path:?}");
        check(&dir.path().join("fifo"), FileErrorKind::NotAFile);
        check(dir.path(), FileErrorKind::IsADirectory);
        check(Path::new("/dev/null"), FileErrorKind::NotAFile);
        check(&dir.path().join("fifo/below"), FileErrorKind::NotADirectory);
        check(Path::new("/"), FileErrorKind::IsADirectory);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
