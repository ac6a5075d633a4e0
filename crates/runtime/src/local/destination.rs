//! The caller's directory for output files, held open and entered without following a link.
//!
//! A program with a writable mount can put links into that directory, and even a link in its place, while it
//! runs. So the directory is opened before the program starts, and everything below it is reached from that
//! handle, one component at a time.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use ringfence_policy::{Access, Trusted};

use crate::files::{Protected, REPOSITORY};
use crate::trust;

/// From `fcntl.h`; the same on x86_64 and aarch64 but for `O_DIRECTORY` and `O_NOFOLLOW`.
pub(crate) const O_NONBLOCK: i32 = 0o4000;
pub(super) const O_PATH: i32 = 0o10_000_000;
#[cfg(target_arch = "aarch64")]
pub(crate) const O_DIRECTORY: i32 = 0o40000;
#[cfg(target_arch = "aarch64")]
pub(crate) const O_NOFOLLOW: i32 = 0o100000;
#[cfg(not(target_arch = "aarch64"))]
pub(crate) const O_DIRECTORY: i32 = 0o200000;
#[cfg(not(target_arch = "aarch64"))]
pub(crate) const O_NOFOLLOW: i32 = 0o400000;

/// An open directory that files are delivered to.
#[derive(Debug)]
pub(crate) struct Destination {
    directory: File,
    path: PathBuf,
    /// Names that nothing is delivered to, at any depth: programs of the host act on what bears them.
    protected: Protected,
    /// Files and directories, by device and inode, that stay as they are.
    kept: Vec<(u64, u64)>,
}

/// What a delivery leaves as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spared<'a> {
    pub(crate) protected: &'a [String],
    pub(crate) trusted: &'a Trusted,
}

impl Destination {
    /// Opens the directory at `path`, which is absolute and holds neither links nor `..`, and makes what of it
    /// is missing.
    ///
    /// # Errors
    /// If it cannot be made, entered or written, a link is on the way, or we rely on what lies there.
    pub(crate) fn open(path: &Path, spared: Spared<'_>) -> io::Result<Self> {
        let kept = trust::kept(path, spared.trusted).map_err(io::Error::other)?;
        let kept = kept.into_iter().filter(|kept| kept.access == Access::ReadOnly);
        let kept = kept
            .filter_map(|kept| trust::mark(path.join(kept.below)).1)
            .collect();
        let relative = path.strip_prefix("/").map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the output directory is no absolute path",
            )
        })?;
        let root = OpenOptions::new()
            .read(true)
            .custom_flags(O_PATH | O_DIRECTORY)
            .open("/")?;
        let destination = Self {
            directory: enter_all(root, relative, &[])?,
            path: path.to_owned(),
            protected: Protected::new(spared.protected),
            kept,
        };
        destination.try_write()?;
        Ok(destination)
    }

    /// What lies at `path` below the directory bears a protected name, or lies in what does.
    pub(crate) fn protects(&self, path: &Path) -> bool {
        let whole = self.path.join(path);
        let names: Vec<&OsStr> = whole.iter().collect();
        let above = self.path.iter().count();
        (above + 1..=names.len()).any(|end| self.protected.ends(&names[..end]))
    }

    /// Writes the first `bytes` of `source` to `path` below the directory. A link in the file's own place is
    /// replaced; one on the way is an error.
    pub(crate) fn deliver(&self, source: File, path: &Path, bytes: u64) -> io::Result<()> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = enter_all(self.directory.try_clone()?, parent, &self.kept)?;
        check_repository(&parent, name)?;
        let target = fs::symlink_metadata(below(&parent, name));
        if target.is_ok_and(|found| self.kept.contains(&identity(&found))) {
            return Err(relied_on());
        }
        let temporary = below(&parent, &unused_name());
        let mut file = File::create_new(&temporary)?;
        let copied = io::copy(&mut io::Read::take(source, bytes), &mut file);
        let placed = copied.and_then(|_| fs::rename(&temporary, below(&parent, name)));
        if placed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        placed
    }

    /// That a file can be made here. Better to know it before the program runs than to lose its files.
    fn try_write(&self) -> io::Result<()> {
        let probe = below(&self.directory, &unused_name());
        File::create_new(&probe)?;
        fs::remove_file(probe)
    }
}

/// That a directory, absolute and without links, neither is nor lies in one that programs of the host act on.
///
/// # Errors
/// If it is.
pub(super) fn check_name(path: &Path, protected: &[String]) -> io::Result<()> {
    let protected = Protected::new(protected);
    let names: Vec<&OsStr> = path.iter().collect();
    match (1..=names.len()).find(|&end| protected.ends(&names[..end])) {
        None => Ok(()),
        Some(end) => Err(io::Error::other(format!(
            "`{}` is protected: programs of the host act on what lies there",
            names[end - 1].display()
        ))),
    }
}

/// A refusal of ours to deliver something, and no error on the way.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other && error.raw_os_error().is_none()
}

fn relied_on() -> io::Error {
    io::Error::other("Ringfence itself relies on what lies there")
}

/// That an entry of this name neither lies in a git repository without a working tree nor makes one of the directory: git
/// runs what its settings name.
fn check_repository(directory: &File, name: &OsStr) -> io::Result<()> {
    let is_there = |mark: &&str| {
        name.eq_ignore_ascii_case(mark) || below(directory, OsStr::new(mark)).symlink_metadata().is_ok()
    };
    match REPOSITORY.iter().all(is_there) {
        true => Err(io::Error::other(
            "a git repository without a working tree lies there, or would",
        )),
        false => Ok(()),
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// The directory at `path` below `directory`, each missing part made, no link followed and nothing entered that is kept.
fn enter_all(directory: File, path: &Path, kept: &[(u64, u64)]) -> io::Result<File> {
    path.components()
        .try_fold(directory, |directory, component| match component {
            Component::Normal(name) => {
                check_repository(&directory, name)?;
                let entered = enter(&directory, name)?;
                match kept.contains(&identity(&entered.metadata()?)) {
                    true => Err(relied_on()),
                    false => Ok(entered),
                }
            }
            Component::CurDir => Ok(directory),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                Err(io::ErrorKind::InvalidInput.into())
            }
        })
}

fn enter(directory: &File, name: &OsStr) -> io::Result<File> {
    let path = below(directory, name);
    // By O_PATH: directories on the way need not be readable.
    let open = || {
        OpenOptions::new()
            .read(true)
            .custom_flags(O_PATH | O_DIRECTORY | O_NOFOLLOW)
            .open(&path)
    };
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => open(),
        },
        opened => opened,
    }
}

/// A name in an open directory, whatever that directory is called by now.
pub(crate) fn below(directory: &File, name: &OsStr) -> PathBuf {
    handle(directory).join(name)
}

/// An open directory as a path.
pub(crate) fn handle(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// A name that nobody can have taken: the standard library's hash keys are random.
fn unused_name() -> OsString {
    format!(".ringfence-{:016x}", RandomState::new().build_hasher().finish()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// With `.git` and `*.pth` protected.
    fn open(path: &Path) -> io::Result<Destination> {
        let protected = [".git", "*.pth"].map(str::to_owned);
        let trusted = Trusted::none();
        Destination::open(
            path,
            Spared {
                protected: &protected,
                trusted: &trusted,
            },
        )
    }

    fn source(directory: &Path) -> File {
        fs::write(directory.join("source"), "hello").unwrap();
        File::open(directory.join("source")).unwrap()
    }

    #[test]
    fn missing_directories_are_made_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("a/b");
        let destination = open(&path).unwrap();
        destination
            .deliver(source(dir.path()), Path::new("c/file"), 4)
            .unwrap();
        assert_eq!(fs::read_to_string(path.join("c/file")).unwrap(), "hell");
        assert_eq!(fs::read_dir(path).unwrap().count(), 1);
    }

    #[test]
    fn links_on_the_way_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["out", "precious"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        symlink(root.join("precious"), root.join("out/sub")).unwrap();
        symlink(root.join("precious"), root.join("link")).unwrap();
        assert!(open(&root.join("link")).is_err());
        assert!(open(&root.join("link/below")).is_err());
        assert!(open(&root.join("out/../precious")).is_err());
        let destination = open(&root.join("out")).unwrap();
        assert!(
            destination
                .deliver(source(&root), Path::new("sub/file"), 5)
                .is_err()
        );
        assert_eq!(fs::read_dir(root.join("precious")).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_was_replaced_is_still_the_one_that_was_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("precious")).unwrap();
        let destination = open(&root.join("out")).unwrap();
        fs::rename(root.join("out"), root.join("moved")).unwrap();
        symlink(root.join("precious"), root.join("out")).unwrap();
        destination.deliver(source(&root), Path::new("file"), 5).unwrap();
        assert!(root.join("moved/file").exists());
        assert_eq!(fs::read_dir(root.join("precious")).unwrap().count(), 0);
    }

    #[test]
    fn protected_names_are_known_at_any_depth() {
        let dir = tempfile::tempdir().unwrap();
        let destination = open(&dir.path().canonicalize().unwrap()).unwrap();
        for (path, expected) in [
            (".git", true),
            (".GIT/config", true),
            ("a/b/.git./hooks/x", true),
            ("lib/a.PTH", true),
            ("git/config", false),
            ("a/pth", false),
        ] {
            assert_eq!(destination.protects(Path::new(path)), expected, "{path}");
        }
        let protected = [".git".to_owned()];
        for (path, expected) in [("/a/.git", false), ("/a/.Git/hooks", false), ("/a/git", true)] {
            assert_eq!(
                check_name(Path::new(path), &protected).is_ok(),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_relied_on_is_neither_entered_nor_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("out/skills/deep")).unwrap();
        fs::write(root.join("out/config"), "own").unwrap();
        let trusted = Trusted {
            paths: vec![root.join("out/skills"), root.join("out/config")],
            ..Trusted::none()
        };
        let spared = Spared {
            protected: &[],
            trusted: &trusted,
        };
        let destination = Destination::open(&root.join("out"), spared).unwrap();
        for path in ["skills/a", "skills/deep/a", "config"] {
            let delivered = destination.deliver(source(&root), Path::new(path), 5);
            assert!(delivered.is_err(), "{path}");
        }
        destination.deliver(source(&root), Path::new("other"), 5).unwrap();
        assert_eq!(fs::read_to_string(root.join("out/config")).unwrap(), "own");
        assert!(Destination::open(&root.join("out/skills/deep"), spared).is_err());
    }
}
