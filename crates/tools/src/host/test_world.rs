//! A home and a working directory for tests, in a directory of their own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::line_directory::LineDirectory;

/// `home`, and `work`, where lines start.
pub(super) struct World {
    pub(super) dir: tempfile::TempDir,
    pub(super) place: LineDirectory,
}

impl World {
    /// Makes directories and files, which hold an `x`.
    pub(super) fn new(directories: &[&str], files: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in directories {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in files {
            fs::write(at(name), "x").unwrap();
        }
        let place = LineDirectory {
            directory: at("work"),
            home: Some(at("home")),
            own: Vec::new(),
        };
        Self { dir, place }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn link(&self, target: &str, name: &str) {
        symlink(self.at(target), self.at(name)).unwrap();
    }
}
