//! Resolution of host paths that a person or a trusted file names: a link that a program may have made is not
//! followed.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::ledger::Ledger;
use super::resolve::{Resolved, is_own_descriptor, resolve};

/// The rules by which named paths are resolved and opened. By default, any link is followed.
#[derive(Debug, Clone, Default)]
pub struct NamedPaths {
    ledger: Ledger,
    here: Option<PathBuf>,
}

/// An error of resolving a path that the user named.
#[derive(Debug, thiserror::Error)]
pub enum NamedPathError {
    /// The path cannot be resolved or opened.
    #[error("{0}")]
    Unusable(#[from] io::Error),
    /// A program may have made a link on the way.
    #[error(
        "refusing to follow the link {}: it lies in {}, where a program may have made it",
        link.display(), tree.display()
    )]
    Planted {
        link: PathBuf,
        /// Directory that programs could write.
        tree: PathBuf,
        /// Path that the link leads to.
        target: PathBuf,
    },
    /// The ledger cannot be read.
    #[error("cannot read the record of where programs could write: {0}")]
    Unknown(#[source] io::Error),
}

impl NamedPathError {
    /// Renders the error for programs, which must not learn the host's paths.
    pub fn without_paths(&self) -> String {
        match self {
            Self::Planted { link, .. } => format!(
                "a program may have made the link `{}` on the way",
                link.file_name().unwrap_or_default().display()
            ),
            other => other.to_string(),
        }
    }

    /// Returns the kind of the system's error.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Unusable(error) | Self::Unknown(error) => error.kind(),
            Self::Planted { .. } => io::ErrorKind::PermissionDenied,
        }
    }
}

impl NamedPaths {
    /// Distrusts links below the directories of `ledger` and below `here`, the working directory.
    pub fn new(ledger: Ledger, here: Option<PathBuf>) -> Self {
        Self { ledger, here }
    }

    /// Resolves a path; a relative one from the working directory.
    ///
    /// # Errors
    /// If a component cannot be examined, or a program may have made a link on the way.
    pub fn resolve(&self, path: &Path) -> Result<Resolved, NamedPathError> {
        let found = resolve(path)?;
        self.check(&found)?;
        Ok(found)
    }

    /// Rejects a path if a program may have made a link on the way.
    ///
    /// # Errors
    /// If one may have.
    pub fn check(&self, found: &Resolved) -> Result<(), NamedPathError> {
        for link in &found.links {
            let here = self.here.clone().filter(|here| link.starts_with(here));
            let tree = match here {
                Some(here) => Some(here),
                None => self.ledger.around(link).map_err(NamedPathError::Unknown)?,
            };
            if let Some(tree) = tree {
                return Err(NamedPathError::Planted {
                    link: link.clone(),
                    tree,
                    target: found.path.clone(),
                });
            }
        }
        Ok(())
    }

    /// Opens a regular file for reading, or any file by a descriptor of this process, such as the pipe of `/dev/stdin`. `None` for
    /// a FIFO, socket or device: opening one can block, and reading one need not end.
    ///
    /// # Errors
    /// As [`Self::resolve`], and if it cannot be opened.
    pub fn open_content(&self, path: &Path) -> Result<Option<File>, NamedPathError> {
        let found = self.resolve(path)?;
        if is_own_descriptor(&found.path) {
            return Ok(Some(open_resolved(&found.path, OFlags::empty())?));
        }
        let is_regular = |found: &Metadata| found.is_file() || found.is_dir();
        if !is_regular(&metadata(&found.path)?) {
            return Ok(None);
        }
        // One may have taken its place.
        let file = open_resolved(&found.path, OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let is_regular = is_regular(&file.metadata()?);
        Ok(is_regular.then_some(file))
    }

    /// Opens a path of any type for reading. Blocks on a FIFO without a writer.
    ///
    /// # Errors
    /// As [`Self::resolve`], and if it cannot be opened.
    pub fn open(&self, path: &Path) -> Result<File, NamedPathError> {
        let found = self.resolve(path)?;
        Ok(open_resolved(&found.path, OFlags::empty())?)
    }

    /// Opens a regular file for reading, and returns its resolved path.
    ///
    /// # Errors
    /// As [`Self::resolve`], and if it is not a regular file, or cannot be opened.
    pub fn open_file(&self, path: &Path) -> Result<(File, PathBuf), NamedPathError> {
        let found = self.resolve(path)?;
        let special = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file").into();
        // A socket cannot be opened at all.
        if !found.path.metadata()?.is_file() {
            return Err(special());
        }
        // Opening a FIFO or a terminal that has taken its place must not block.
        let file = open_resolved(&found.path, OFlags::NONBLOCK | OFlags::NOCTTY)?;
        match file.metadata()?.is_file() {
            true => Ok((file, found.path)),
            false => Err(special()),
        }
    }

    /// Returns a function that opens files by these rules.
    pub fn opener(self) -> impl Fn(&Path) -> Option<File> {
        move |path| self.open_file(path).ok().map(|(file, _)| file)
    }

    /// Opens a directory, and returns its resolved path.
    ///
    /// # Errors
    /// As [`Self::resolve`], and if it is not a directory, or cannot be opened.
    pub fn open_directory(&self, path: &Path) -> Result<(OwnedFd, PathBuf), NamedPathError> {
        let found = self.resolve(path)?;
        let directory = open_resolved(&found.path, OFlags::DIRECTORY)?;
        Ok((directory.into(), found.path))
    }

    /// Returns the directory of the ledger that a path lies in, if any.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn written(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        self.ledger.around(path)
    }

    /// Records directories that a program is about to get write access to.
    ///
    /// # Errors
    /// If the ledger cannot be written.
    pub fn open_to_programs(&self, directories: &[&Path]) -> io::Result<()> {
        self.ledger.add(directories)
    }
}

/// Returns the metadata of a resolved path.
///
/// # Errors
/// As `open_resolved`.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    let found = open_resolved(path, OFlags::PATH)?.metadata()?;
    match found.is_symlink() {
        true => Err(rustix::io::Errno::LOOP.into()),
        false => Ok(found),
    }
}

/// Opens a resolved path for reading. A component that has become a link since is an error (ELOOP, ENOTDIR):
/// nothing is resolved a second time.
fn open_resolved(path: &Path, flags: OFlags) -> io::Result<File> {
    if is_own_descriptor(path) {
        return File::open(path);
    }
    let names = names(path);
    let Some((last, above)) = names.split_last() else {
        return File::open("/");
    };
    let fixed = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let way = fixed | OFlags::PATH | OFlags::DIRECTORY;
    let mut directory: OwnedFd = openat(CWD, "/", way, Mode::empty())?;
    for name in above {
        directory = openat(&directory, *name, way, Mode::empty())?;
    }
    let flags = fixed | OFlags::RDONLY | flags;
    let file = openat(&directory, *last, flags, Mode::empty())?;
    Ok(File::from(file))
}

/// Returns the names of a resolved path, from the root down.
pub(super) fn names(path: &Path) -> Vec<&OsStr> {
    let name = |component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new() -> Self {
            let dir = Self(tempfile::tempdir().unwrap());
            for name in ["state", "p", "here", "secret"] {
                std::fs::create_dir(dir.path(name)).unwrap();
            }
            std::fs::write(dir.path("secret/key"), "s3cret").unwrap();
            for link in ["p/link", "here/link", "own"] {
                symlink(dir.path("secret"), dir.path(link)).unwrap();
            }
            Ledger::at(&dir.path("state")).add(&[&dir.path("p")]).unwrap();
            dir
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn paths(&self) -> NamedPaths {
            NamedPaths::new(Ledger::at(&self.path("state")), Some(self.path("here")))
        }
    }

    #[test]
    fn only_links_of_the_person_are_followed() {
        let dir = Dir::new();
        for (name, planted) in [("p/link", true), ("here/link", true), ("own", false)] {
            let key = dir.path(name).join("key");
            let mut text = String::new();
            let mut read =
                |paths: &NamedPaths| Ok::<_, NamedPathError>(paths.open(&key)?.read_to_string(&mut text)?);
            // Without a ledger each leads to the file.
            assert_eq!(read(&NamedPaths::default()).unwrap(), 6, "{name}");
            let refused = read(&dir.paths()).map_err(|error| error.kind());
            assert_eq!(refused.is_err(), planted, "{name}: {refused:?}");
            let opened = dir.paths().open_file(&key);
            match opened {
                Ok((_, path)) => assert_eq!(path, dir.path("secret/key")),
                Err(NamedPathError::Planted { link, target, .. }) => {
                    assert_eq!((link, target), (dir.path(name), dir.path("secret/key")));
                }
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_link_planted_after_the_check_leads_nowhere() {
        let dir = Dir::new();
        for (name, errno) in [("own/key", "os error 20"), ("own", "os error 40")] {
            let path = dir.path(name);
            assert!(std::fs::metadata(&path).is_ok());
            let refused = open_resolved(&path, OFlags::empty()).unwrap_err();
            assert!(refused.to_string().contains(errno), "{name}: {refused}");
        }
    }

    #[test]
    fn own_descriptors_are_opened() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"data").unwrap();
        let name = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let mut text = String::new();
        let mut opened = NamedPaths::default().open(Path::new(&name)).unwrap();
        opened.read_to_string(&mut text).unwrap();
        assert_eq!(text, "data");
    }

    #[test]
    fn a_file_is_no_fifo() {
        let dir = Dir::new();
        let fifo = dir.path("fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [fifo, dir.path("secret")] {
            let refused = dir.paths().open_file(&path).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{refused}");
        }
        for special in [dir.path("fifo"), "/dev/zero".into()] {
            assert!(dir.paths().open_content(&special).unwrap().is_none());
        }
        assert!(
            dir.paths()
                .open_content(&dir.path("secret/key"))
                .unwrap()
                .is_some()
        );
    }
}
