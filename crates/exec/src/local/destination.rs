//! The caller's output directory, held open and entered without following links.
//!
//! A program with a writable mount can put links into that directory while it runs, and even replace the
//! directory with a link. So it is opened before the program starts, and everything below is reached from
//! that file descriptor, one component at a time.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use ringfence_jail::FileUser;
use ringfence_policy::Trusted;

use super::exchange::Stamp;
use crate::open_flags::{O_DIRECTORY, O_NOFOLLOW, O_PATH};
use crate::protected::Protected;
use crate::trust::{self, CopyGuard, CopyRules};

/// An open directory that files are delivered to.
#[derive(Debug)]
pub struct Destination {
    directory: File,
    /// `None` in a program's own directory.
    rules: Option<CopyRules>,
    /// Owner of what is created, if not our own user.
    owner: Option<(u32, u32)>,
}

/// The identity of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirectoryId {
    device: u64,
    inode: u64,
    /// The time it was made, for numbers of inodes are used again.
    created: Option<SystemTime>,
}

/// Names and paths that a delivery must not change.
#[derive(Debug, Clone, Copy)]
pub struct Spared<'a> {
    pub protected: &'a [String],
    pub trusted: &'a Trusted,
}

impl Destination {
    /// Opens the directory at `path`, which is absolute and contains neither links nor `..`, and creates
    /// missing components.
    ///
    /// # Errors
    /// If it cannot be created, entered or written, if a component is a link, or if a trusted path conflicts.
    pub fn open(path: &Path, spared: Spared<'_>) -> io::Result<Self> {
        let guard = CopyGuard::new(spared.protected).with_trusted(spared.trusted.clone());
        let rules = guard.rules(path).map_err(io::Error::other)?;
        let relative = path.strip_prefix("/").map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the output directory is not an absolute path",
            )
        })?;
        let root = OpenOptions::new()
            .read(true)
            .custom_flags(O_PATH | O_DIRECTORY)
            .open("/")?;
        let destination = Self {
            directory: enter_all(root, relative, Some(&rules))?,
            rules: Some(rules),
            owner: None,
        };
        destination.try_write()?;
        Ok(destination)
    }

    /// Returns the directory of a program in its cell, which may write everything there.
    pub(super) fn in_cell(directory: OwnedFd) -> io::Result<Self> {
        let directory = File::from(directory);
        let found = directory.metadata()?;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        Ok(Self {
            directory,
            rules: None,
            owner: (!is_ours).then(|| (found.uid(), found.gid())),
        })
    }

    /// Returns a descriptor of the directory.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.directory.try_clone().map(OwnedFd::from)
    }

    /// Returns the identity of the directory.
    pub(super) fn identity(&self) -> io::Result<DirectoryId> {
        let found = self.directory.metadata()?;
        Ok(DirectoryId {
            device: found.dev(),
            inode: found.ino(),
            created: found.created().ok(),
        })
    }

    /// Returns `true` if the directory has no entries, or cannot be read.
    pub(super) fn is_empty(&self) -> bool {
        fs::read_dir(handle(&self.directory)).map_or(true, |mut entries| entries.next().is_none())
    }

    /// Returns the version of the file at `path`, relative to the directory. Creates nothing.
    pub(super) fn stamp(&self, path: &Path) -> Option<Stamp> {
        let (parent, name) = self.parent_of(path).ok()?;
        let found = fs::symlink_metadata(below(&parent, name)).ok()?;
        Some(Stamp::of(&found))
    }

    /// Removes the file at `path`, relative to the directory, if it still has this version.
    pub(super) fn remove(&self, path: &Path, version: Stamp) -> io::Result<()> {
        let Ok((parent, name)) = self.parent_of(path) else {
            return Ok(());
        };
        let file = below(&parent, name);
        match fs::symlink_metadata(&file) {
            Ok(found) if Stamp::of(&found) == version => fs::remove_file(file),
            _ => Ok(()),
        }
    }

    /// Opens the directory of `path`, relative to this one, without following links, and returns it with the last component.
    fn parent_of<'a>(&self, path: &'a Path) -> io::Result<(File, &'a OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let above = path.parent().unwrap_or(Path::new(""));
        let parent = above
            .iter()
            .try_fold(self.directory.try_clone()?, |directory, name| {
                let entered = open_directory(&below(&directory, name))?;
                check_same_file_system(&directory, &entered).map(|()| entered)
            })?;
        Ok((parent, name))
    }

    /// Returns `true` if a component of `path`, relative to the directory, has a protected name.
    pub(crate) fn protects(&self, path: &Path) -> bool {
        let protected = self.rules.as_ref().and_then(|rules| rules.protected(path));
        protected.is_some()
    }

    /// Writes the first `bytes` of `source` to `path`, relative to the directory. A link at the final
    /// component is replaced; one before it is an error. Returns the version of the new file.
    pub(super) fn deliver(&self, source: &File, path: &Path, bytes: u64) -> io::Result<Stamp> {
        let _user = match self.owner {
            Some((user, group)) => Some(FileUser::of_thread(user, group)?),
            None => None,
        };
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        let parent = enter_all(self.directory.try_clone()?, parent, self.rules.as_ref())?;
        if let Some(rules) = &self.rules {
            check_repository(&parent, name)?;
            let target = fs::symlink_metadata(below(&parent, name));
            if rules.is_acted_on(path) || target.is_ok_and(|found| rules.is_kept(&found)) {
                return Err(relied_on());
            }
        }
        let temporary = below(&parent, &unused_name());
        let mut file = File::create_new(&temporary)?;
        let copied = io::copy(&mut io::Read::take(source, bytes), &mut file);
        let placed = copied.and_then(|_| fs::rename(&temporary, below(&parent, name)));
        if placed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        placed.and_then(|()| Ok(Stamp::of(&file.metadata()?)))
    }

    /// Checks that files can be created here, before the program runs and its files could be lost.
    fn try_write(&self) -> io::Result<()> {
        let probe = below(&self.directory, &unused_name());
        File::create_new(&probe)?;
        fs::remove_file(probe)
    }
}

/// Checks that no component of a path, absolute and without links, has a protected name.
///
/// # Errors
/// If one has.
pub(super) fn check_name(path: &Path, protected: &[String]) -> io::Result<()> {
    let protected = Protected::new(protected);
    let names: Vec<&OsStr> = path.iter().collect();
    match protected.beginning(&names, 0) {
        None => Ok(()),
        Some(beginning) => Err(io::Error::other(format!(
            "`{}` is protected: programs of the host execute or obey files there",
            beginning[beginning.len() - 1].display()
        ))),
    }
}

/// Returns `true` for a refusal by our own rules, as opposed to an I/O error.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Other && error.raw_os_error().is_none()
}

fn relied_on() -> io::Error {
    io::Error::other("Ringfence itself relies on files there")
}

/// Rejects an entry that lies in a bare git repository or would turn its directory into one: git runs
/// programs that the repository's settings name.
fn check_repository(directory: &File, name: &OsStr) -> io::Result<()> {
    let is_there = |mark: &OsStr| below(directory, mark).symlink_metadata().is_ok();
    match trust::makes_repository(name, is_there) {
        true => Err(io::Error::other(
            "a git repository without a working tree lies there, or would",
        )),
        false => Ok(()),
    }
}

/// Opens the directory at `path` below `directory`, creating missing components. Follows no link and, with rules, enters
/// no trusted directory and no repository.
fn enter_all(directory: File, path: &Path, rules: Option<&CopyRules>) -> io::Result<File> {
    path.components()
        .try_fold(directory, |directory, component| match component {
            Component::Normal(name) => {
                let Some(rules) = rules else {
                    let entered = enter(&directory, name)?;
                    return check_same_file_system(&directory, &entered).map(|()| entered);
                };
                check_repository(&directory, name)?;
                let entered = enter(&directory, name)?;
                match rules.is_kept(&entered.metadata()?) {
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
    match open_directory(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => open_directory(&path),
        },
        opened => opened,
    }
}

/// Rejects a directory of another file system: a mount below a program's directory leads to one of the host.
pub(super) fn check_same_file_system(above: &File, below: &File) -> io::Result<()> {
    match above.metadata()?.dev() == below.metadata()?.dev() {
        true => Ok(()),
        false => Err(io::Error::other("a mount lies there")),
    }
}

/// Opens a directory, which is no link, with O_PATH: those on the way need not be readable.
fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(O_PATH | O_DIRECTORY | O_NOFOLLOW)
        .open(path)
}

/// Returns the path of a name in an open directory, even if that directory was renamed.
pub fn below(directory: &File, name: &OsStr) -> PathBuf {
    handle(directory).join(name)
}

/// Returns the path of an open directory in `/proc/self/fd`.
pub fn handle(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

fn unused_name() -> OsString {
    format!(".ringfence-{:016x}", unpredictable()).into()
}

/// Returns a number for a name that nobody can guess: the standard library's hash keys are random.
pub(super) fn unpredictable() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Opens a destination with `.git` and `*.pth` protected.
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
            .deliver(&source(dir.path()), Path::new("c/file"), 4)
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
                .deliver(&source(&root), Path::new("sub/file"), 5)
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
        destination.deliver(&source(&root), Path::new("file"), 5).unwrap();
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
            let delivered = destination.deliver(&source(&root), Path::new(path), 5);
            assert!(delivered.is_err(), "{path}");
        }
        destination
            .deliver(&source(&root), Path::new("other"), 5)
            .unwrap();
        assert_eq!(fs::read_to_string(root.join("out/config")).unwrap(), "own");
        assert!(Destination::open(&root.join("out/skills/deep"), spared).is_err());
    }
}
