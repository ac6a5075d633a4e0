//! Attacks on the workspace, and legitimate use.

mod links;
mod ordinary;
mod paths;
mod races;
mod special;

use std::fmt::Debug;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;

/// A workspace next to a directory with secrets.
struct World {
    directory: tempfile::TempDir,
    root: Root,
}

const SECRET: &str = "the secret outside";

impl World {
    fn new() -> Self {
        Self::with(Rules::standard())
    }

    fn with(rules: Rules) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("root/a.txt", "inside"),
            ("root/d/b.txt", "below"),
            ("outside/secret.txt", SECRET),
            ("outside/d/b.txt", SECRET),
        ] {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::open(&directory.path().join("root"), rules).unwrap();
        Self { directory, root }
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.directory.path().join("root").join(path)
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.directory.path().join("outside").join(path)
    }

    fn link(&self, target: impl AsRef<Path>, name: &str) {
        symlink(target, self.inside(name)).unwrap();
    }

    fn text(&self, path: &str) -> String {
        text_of(&self.root, path)
    }

    #[track_caller]
    fn refuses_to_change(&self, path: &str, kind: Kind) {
        for mode in [WriteMode::Replace, WriteMode::Append] {
            denied(self.root.write(path, b"broken in", mode), kind);
        }
        denied(self.root.delete(path), kind);
    }

    /// Asserts that nothing outside has changed.
    #[track_caller]
    fn is_whole(&self) {
        for path in ["secret.txt", "d/b.txt"] {
            assert_eq!(fs::read_to_string(self.outside(path)).unwrap(), SECRET, "{path}");
        }
        assert_eq!(names(&self.outside("")), ["d", "secret.txt"]);
        assert_eq!(names(&self.outside("d")), ["b.txt"]);
        assert_eq!(names(self.directory.path()), ["outside", "root"]);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[track_caller]
fn text_of(root: &Root, path: &str) -> String {
    match root.read(path, 1, None).unwrap().body {
        Body::Text { text, .. } => text,
        binary @ Body::Binary { .. } => panic!("{path}: {binary:?}"),
    }
}

/// Asserts the kind of error, that it has a hint, and that it leaks nothing.
#[track_caller]
fn denied<T: Debug>(result: Result<T, Error>, kind: Kind) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let text = format!("{error} {}", error.hint().model());
    assert!(
        !text.contains(SECRET) && !error.hint().model().is_empty(),
        "{text}"
    );
}
