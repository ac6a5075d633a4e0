//! The caller's directory for output files, held open and entered without following a link.
//!
//! A program with a writable mount can put links into that directory, and even a link in its place, while it
//! runs. So the directory is opened before the program starts, and everything below it is reached from that
//! handle, one component at a time.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// From `fcntl.h`; the same on x86_64 and aarch64 but for `O_DIRECTORY` and `O_NOFOLLOW`.
pub(super) const O_NONBLOCK: i32 = 0o4000;
pub(super) const O_PATH: i32 = 0o10_000_000;
#[cfg(target_arch = "aarch64")]
pub(super) const O_DIRECTORY: i32 = 0o40000;
#[cfg(target_arch = "aarch64")]
pub(super) const O_NOFOLLOW: i32 = 0o100000;
#[cfg(not(target_arch = "aarch64"))]
pub(super) const O_DIRECTORY: i32 = 0o200000;
#[cfg(not(target_arch = "aarch64"))]
pub(super) const O_NOFOLLOW: i32 = 0o400000;

/// An open directory that files are delivered to.
#[derive(Debug)]
pub(crate) struct Destination(File);

impl Destination {
    /// Opens the directory at `path`, which is absolute and holds neither links nor `..`, and makes what of it
    /// is missing.
    ///
    /// # Errors
    /// If it cannot be made, entered or written, or a link is on the way.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
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
        let destination = Self(enter_all(root, relative)?);
        destination.try_write()?;
        Ok(destination)
    }

    /// Writes the first `bytes` of `source` to `path` below the directory. A link in the file's own place is
    /// replaced; one on the way is an error.
    pub(crate) fn deliver(&self, source: File, path: &Path, bytes: u64) -> io::Result<()> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = enter_all(self.0.try_clone()?, path.parent().unwrap_or(Path::new("")))?;
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
        let probe = below(&self.0, &unused_name());
        File::create_new(&probe)?;
        fs::remove_file(probe)
    }
}

/// The directory at `path` below `directory`, each missing part made and no link followed.
fn enter_all(directory: File, path: &Path) -> io::Result<File> {
    path.components()
        .try_fold(directory, |directory, component| match component {
            Component::Normal(name) => enter(&directory, name),
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
pub(super) fn below(directory: &File, name: &OsStr) -> PathBuf {
    handle(directory).join(name)
}

/// An open directory as a path.
pub(super) fn handle(directory: &File) -> PathBuf {
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

    fn source(directory: &Path) -> File {
        fs::write(directory.join("source"), "hello").unwrap();
        File::open(directory.join("source")).unwrap()
    }

    #[test]
    fn missing_directories_are_made_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("a/b");
        let destination = Destination::open(&path).unwrap();
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
        assert!(Destination::open(&root.join("link")).is_err());
        assert!(Destination::open(&root.join("link/below")).is_err());
        assert!(Destination::open(&root.join("out/../precious")).is_err());
        let destination = Destination::open(&root.join("out")).unwrap();
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
        let destination = Destination::open(&root.join("out")).unwrap();
        fs::rename(root.join("out"), root.join("moved")).unwrap();
        symlink(root.join("precious"), root.join("out")).unwrap();
        destination.deliver(source(&root), Path::new("file"), 5).unwrap();
        assert!(root.join("moved/file").exists());
        assert_eq!(fs::read_dir(root.join("precious")).unwrap().count(), 0);
    }
}
