//! The directory in which a line starts, and paths compared with it, without links.

use std::os::fd::AsRawFd;
use std::path::{Component, Path, PathBuf};

use ringfence_exec::mount_guard::nearest;
use ringfence_policy::cascade::{is_broad_place, is_secret_path};
use rustix::fs::{CWD, Mode, OFlags};

/// The working directory of a line, with the directories that count as secret.
#[derive(Debug, Clone)]
pub(crate) struct LineDirectory {
    /// Working directory.
    pub(crate) directory: PathBuf,
    /// Expansion of `~`.
    pub(crate) home: Option<PathBuf>,
    /// Ringfence's own directories and files.
    pub(crate) own: Vec<PathBuf>,
}

impl LineDirectory {
    /// Returns the paths that a word can mean. In quotes, and within options, `~` is an ordinary name.
    pub(super) fn absolute(&self, text: &str) -> Vec<PathBuf> {
        let behind = text.strip_prefix('~');
        let behind = behind.filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let home = behind.zip(self.home.as_ref());
        let in_home = home.map(|(rest, home)| home.join(rest.trim_start_matches('/')));
        let here = (!text.is_empty()).then(|| self.directory.join(text));
        in_home.into_iter().chain(here).collect()
    }

    fn home(&self) -> Option<&str> {
        self.home.as_deref().and_then(Path::to_str)
    }

    pub(super) fn is_secret(&self, path: &Path) -> bool {
        if self.is_own(path) {
            return true;
        }
        // The working directory may itself lie in a place that is otherwise secret.
        let inside = path.strip_prefix(real(&self.directory).as_deref().unwrap_or(&self.directory));
        let text = match inside {
            Ok(inside) if !self.starts_in_a_broad_place() => inside.to_string_lossy(),
            _ => path.to_string_lossy(),
        };
        is_secret_path(&text, self.home())
    }

    fn starts_in_a_broad_place(&self) -> bool {
        is_broad_place(&self.directory.to_string_lossy(), self.home())
    }

    fn is_own(&self, path: &Path) -> bool {
        self.own().any(|own| path.starts_with(&own)) && !self.is_in_workspace(path)
    }

    /// Returns `true` for paths in a working directory that Ringfence created within its own state.
    fn is_in_workspace(&self, path: &Path) -> bool {
        let directory = nearest(&self.directory).whole();
        path.starts_with(&directory) && self.own().any(|own| directory.starts_with(own))
    }

    fn own(&self) -> impl Iterator<Item = PathBuf> {
        self.own.iter().map(|own| nearest(own).whole())
    }

    /// Returns `true` if secrets of a user or of the system lie below a directory.
    pub(super) fn is_broad(&self, path: &Path) -> bool {
        is_broad_place(&path.to_string_lossy(), self.home())
    }

    /// Returns `true` if secrets of a user, of the system or of Ringfence lie below a directory.
    pub(super) fn has_secrets(&self, path: &Path) -> bool {
        self.is_broad(path) || self.own().any(|own| own.starts_with(path))
    }
}

/// Returns `true` for a home, a directory above it, and the directories for temporary files: programs that
/// have nothing to do with the line write there all the time.
pub(super) fn is_broad(directory: &Path, home: Option<&Path>) -> bool {
    let Some(directory) = resolved(directory) else {
        return true;
    };
    home.is_some_and(|home| home.starts_with(&directory))
        || home
            .and_then(resolved)
            .is_some_and(|home| home.starts_with(&directory))
        || ["/", "/tmp", "/var/tmp"]
            .iter()
            .any(|broad| directory == Path::new(broad))
}

/// Resolves all symbolic links of an existing path.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    let real = resolved(path)?;
    let plain = real
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    plain.then_some(real)
}

/// Returns the path without links.
pub(super) fn resolved(path: &Path) -> Option<PathBuf> {
    let place = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()
}
