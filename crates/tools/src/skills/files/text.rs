//! Reads text files in a directory of skills.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ringfence_exec::trust::{NamedPathError, NamedPaths};

/// Reads a file of at most `max` bytes, and returns its text with its resolved path.
///
/// # Errors
/// If it cannot be read, is longer, is reached by a link that a program may have made, or is not a regular
/// file: reading a pipe could block forever.
pub(super) fn of(path: &Path, max: u64, paths: &NamedPaths) -> io::Result<(String, PathBuf)> {
    let (file, resolved) = paths.open_file(path).map_err(for_programs)?;
    Ok((of_file(file, max)?, resolved))
}

/// Converts an error to one without paths of the host: programs see it.
pub(super) fn for_programs(error: NamedPathError) -> io::Error {
    match error {
        NamedPathError::Unusable(error) => error,
        other => io::Error::new(other.kind(), other.without_paths()),
    }
}

/// As [`of`], for a file opened with `O_NONBLOCK`.
pub(super) fn of_file(file: File, max: u64) -> io::Result<String> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
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
        let of = |path: &Path, max| of(path, max, &NamedPaths::default()).map(|(text, _)| text);
        std::fs::write(path("a"), "text").unwrap();
        assert_eq!(of(&path("a"), 4).unwrap(), "text");
        assert!(of(&path("a"), 3).unwrap_err().to_string().contains("longer"));
        std::fs::write(path("b"), b"\xff").unwrap();
        assert!(of(&path("b"), 4).is_err());
        // Opening it for reading would block until a writer opens it.
        mknodat(CWD, path("c"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let refused = of(&path("c"), 4).unwrap_err();
        assert_eq!(refused.to_string(), "it is not a regular file");
        assert_eq!(of(&path("d"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
