//! Logs the output of a skill process to a file, for debugging.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Maximum size of the log of one start.
const MAX_KEPT: usize = 256 * 1024;

/// A log file of bounded size.
#[derive(Debug, Default)]
pub(super) struct Journal {
    file: Option<File>,
    left: usize,
}

impl Journal {
    /// Opens the log of a new start, truncating the previous one. If it cannot be opened, output is
    /// discarded.
    pub(super) fn open(directory: Option<&Path>, name: &str) -> Self {
        let open = |directory: &Path| {
            std::fs::create_dir_all(directory).ok()?;
            let path = directory.join(format!("{name}.log"));
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(path).ok()
        };
        Self {
            file: directory.and_then(open),
            left: MAX_KEPT,
        }
    }

    /// Appends to the log up to its maximum size.
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.file else { return };
        let kept = bytes.get(..self.left).unwrap_or(bytes);
        self.left -= kept.len();
        let full = self.left == 0 && !kept.is_empty();
        let note: &[u8] = if full { b"\n[the rest is not kept]\n" } else { b"" };
        if file.write_all(kept).and_then(|()| file.write_all(note)).is_err() {
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_each_start_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("servers");
        let kept = || std::fs::read(place.join("a.log")).unwrap();
        let mut journal = Journal::open(Some(&place), "a");
        journal.keep(b"hello\n");
        assert_eq!(kept(), b"hello\n");
        for _ in 0..100 {
            journal.keep(&[b'x'; 10_000]);
        }
        assert!(kept().len() < MAX_KEPT + 100 && kept().ends_with(b"not kept]\n"));
        Journal::open(Some(&place), "a").keep(b"again");
        assert_eq!(kept(), b"again");
        Journal::default().keep(b"nowhere");
    }
}
