//! Reads text files in a directory of skills.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const O_NONBLOCK: i32 = 0o4_000;

/// Reads a file of at most `max` bytes.
///
/// # Errors
/// If it cannot be read, is longer, or no regular file: reading a pipe could block forever.
pub(super) fn of(path: &Path, max: u64) -> io::Result<String> {
    let mut options = OpenOptions::new();
    of_file(options.read(true).custom_flags(O_NONBLOCK).open(path)?, max)
}

/// As [`of`], for a file opened with `O_NONBLOCK`.
pub(super) fn of_file(file: File, max: u64) -> io::Result<String> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut text = String::new();
    file.take(max + 1).read_to_string(&mut text)?;
    match text.len() as u64 <= max {
        true => Ok(text),
        false => Err(io::Error::other(format!("it is longer than {max} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn only_short_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("a"), "text").unwrap();
        assert_eq!(of(&path("a"), 4).unwrap(), "text");
        assert!(of(&path("a"), 3).unwrap_err().to_string().contains("longer"));
        std::fs::write(path("b"), b"\xff").unwrap();
        assert!(of(&path("b"), 4).is_err());
        // Opening it for reading would block until a writer opens it.
        mknodat(CWD, path("c"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(of(&path("c"), 4).unwrap_err().to_string(), "it is no file");
        assert_eq!(of(&path("d"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
