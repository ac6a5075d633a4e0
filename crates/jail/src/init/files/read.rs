//! Reads files.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::entry::Entry;
use super::error::{At, FileError, FileErrorKind};
use super::list::line;
use super::resolve::{Resolved, resolve};
use super::stream::transfer;

/// Part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRange {
    /// First byte; beyond the end of the file there are none.
    pub offset: u64,
    /// Number of bytes at most; to the end if `None`.
    pub length: Option<u64>,
}

/// Writes the description of a regular file as a line, then its bytes. A link is followed.
pub(super) fn read(path: &Path, range: FileRange, out: &mut dyn Write) -> Result<(), FileError> {
    let mut file = open(path)?;
    line(out, &Entry::new(path, &file.metadata().at(path)?, None))?;
    if range.offset > 0 {
        file.seek(SeekFrom::Start(range.offset)).at(path)?;
    }
    match range.length {
        Some(length) => transfer(&mut (&file).take(length), out),
        None => transfer(&mut file, out),
    }
    .at(path)
    .map(drop)
}

/// Opens a regular file. Other files are not opened, because that can block or have effects. A file that is
/// replaced in between is opened without blocking.
fn open(path: &Path) -> Result<File, FileError> {
    let Resolved {
        directory,
        name,
        found,
        ..
    } = resolve(path).at(path)?;
    let missing = || io::Error::from_raw_os_error(libc::ENOENT);
    refuse_others(path, &found.ok_or_else(missing).at(path)?)?;
    let file = directory.open_file(&name).at(path)?;
    refuse_others(path, &file.metadata().at(path)?)?;
    Ok(file)
}

/// Refuses everything but regular files.
pub(super) fn refuse_others(path: &Path, found: &fs::Metadata) -> Result<(), FileError> {
    if found.is_file() {
        return Ok(());
    }
    let (kind, message) = match found.is_dir() {
        true => (
            FileErrorKind::IsADirectory,
            "expected a regular file, found a directory",
        ),
        false => (
            FileErrorKind::NotAFile,
            "expected a regular file, found a FIFO, socket or device",
        ),
    };
    Err(FileError::new(kind, path, message))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn content(path: &Path, offset: u64, length: Option<u64>) -> Result<Vec<u8>, FileErrorKind> {
        let mut out = Vec::new();
        read(path, FileRange { offset, length }, &mut out).map_err(|error| error.kind)?;
        let end = out.iter().position(|byte| *byte == b'\n').unwrap();
        let entry: Entry = serde_json::from_slice(&out[..end]).unwrap();
        assert_eq!(entry.path, path.display().to_string());
        Ok(out.split_off(end + 1))
    }

    #[test]
    fn parts_of_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "0123456789\n").unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        let check = |offset, length, expected: &str| {
            let found = content(&dir.path().join("link"), offset, length).unwrap();
            assert_eq!(found, expected.as_bytes(), "{offset} {length:?}");
        };
        check(0, None, "0123456789\n");
        check(3, Some(4), "3456");
        check(9, Some(u64::MAX), "9\n");
        check(99, None, "");
        check(0, Some(0), "");
        // A file whose length the kernel does not know.
        assert!(!content(Path::new("/proc/meminfo"), 0, None).unwrap().is_empty());
        assert_eq!(content(&path, u64::MAX, None), Err(FileErrorKind::Invalid));
    }

    #[test]
    fn a_huge_file_costs_what_is_read_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge");
        File::create(&path).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(content(&path, (1 << 42) - 5, Some(100)).unwrap(), [0; 5]);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        super::super::tests::make_fifo(&dir.path().join("fifo"));
        symlink("fifo", dir.path().join("link")).unwrap();
        symlink("loop", dir.path().join("loop")).unwrap();
        let check = |path: &Path, kind: FileErrorKind| {
            assert_eq!(content(path, 0, None), Err(kind), "{path:?}");
        };
        check(&dir.path().join("socket"), FileErrorKind::NotAFile);
        check(&dir.path().join("fifo"), FileErrorKind::NotAFile);
        check(&dir.path().join("link"), FileErrorKind::NotAFile);
        check(Path::new("/dev/zero"), FileErrorKind::NotAFile);
        check(dir.path(), FileErrorKind::IsADirectory);
        check(&dir.path().join("loop"), FileErrorKind::Invalid);
        check(&dir.path().join("missing"), FileErrorKind::NotFound);
    }
}
