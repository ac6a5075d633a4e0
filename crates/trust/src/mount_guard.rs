//! Denies mounts of host paths that no guest may see.

use std::fmt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Kernel interfaces. Mounting one undoes the fence.
const KERNEL: &[&str] = &["/proc", "/sys", "/dev"];

/// Ringfence's own directories, which guests never see.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeniedPaths {
    own: Vec<(PathBuf, &'static str)>,
    /// Exceptions: directories whose contents are meant for guests.
    open: Vec<PathBuf>,
}

/// An error for a path that must not be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedPath(String);

impl DeniedPath {
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for DeniedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl DeniedPaths {
    /// Denies these directories, each given with its purpose. They need not exist yet.
    pub fn new(own: impl IntoIterator<Item = (PathBuf, &'static str)>) -> Self {
        Self {
            own: own.into_iter().collect(),
            open: Vec::new(),
        }
    }

    /// Allows the contents of `directory`, but not the directory itself.
    #[must_use]
    pub fn but_in(mut self, directory: PathBuf) -> Self {
        self.open.push(directory);
        self
    }

    fn is_for_guests(&self, path: &Path) -> bool {
        let lies_in = |open: &PathBuf| path != open && path.starts_with(open);
        self.open.iter().any(|open| lies_in(&nearest(open).whole()))
    }

    /// Checks that mounting `path`, which must be resolved, exposes neither Ringfence's directories nor
    /// kernel interfaces or sockets of the host.
    ///
    /// # Errors
    /// If it does, with the path that it would expose.
    pub fn check(&self, path: &Path) -> Result<(), DeniedPath> {
        let refuse = |why: &str| Err(DeniedPath::new(why));
        let own = self.own.iter().filter(|_| !self.is_for_guests(path));
        for (own, what) in own {
            // Compared with the path as given and as resolved: a directory that does not exist yet has no
            // inode to compare.
            if overlaps(path, own) || overlaps(path, &nearest(own).whole()) {
                return refuse(&format!(
                    "it would expose Ringfence's {what} directory {}",
                    own.display()
                ));
            }
        }
        if KERNEL.iter().any(|dir| path.starts_with(dir)) || path.parent().is_none() {
            return refuse("it belongs to the kernel's view of the host");
        }
        if Path::new("/run").starts_with(path) {
            return refuse("it holds the sockets of the host's services");
        }
        if path.metadata().is_ok_and(|meta| meta.file_type().is_socket()) {
            return refuse("it is a socket of a host service");
        }
        Ok(())
    }
}

/// Returns `true` if one path contains the other, by name or by inode: a symbolic link or a bind mount has
/// another name.
pub fn overlaps(path: &Path, own: &Path) -> bool {
    let same = |a: &Path, b: &Path| identity(a).is_some_and(|id| Some(id) == identity(b));
    let by_name = path.starts_with(own) || own.starts_with(path);
    let holds = existing(own).ancestors().any(|above| same(above, path));
    let inside = path.ancestors().any(|above| same(above, own));
    by_name || holds || inside
}

/// Returns the nearest existing ancestor of `path`, or `path` itself, resolved.
fn existing(path: &Path) -> PathBuf {
    nearest(path).existing
}

/// A path in two parts.
#[derive(Debug)]
pub struct Nearest {
    /// The nearest ancestor that exists, or the path itself, resolved.
    pub existing: PathBuf,
    pub missing: PathBuf,
}

/// Splits `path` into its existing and its missing part.
pub fn nearest(path: &Path) -> Nearest {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(Nearest {
            existing: above.canonicalize().ok()?,
            missing: rest.to_path_buf(),
        })
    });
    found.unwrap_or_else(|| Nearest {
        existing: path.to_path_buf(),
        missing: PathBuf::new(),
    })
}

impl Nearest {
    /// Joins the parts. Joining an empty rest would append a slash.
    pub fn whole(self) -> PathBuf {
        if self.missing.as_os_str().is_empty() {
            return self.existing;
        }
        self.existing.join(self.missing)
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_the_host_stays_hidden() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().canonicalize().unwrap();
        let hidden = DeniedPaths::new([(data.join("state"), "state")]);
        for path in ["/", "/run", "/proc/self", "/sys/fs/cgroup", "/dev/shm"] {
            assert!(hidden.check(Path::new(path)).is_err(), "{path}");
        }
        assert!(hidden.check(&data).is_err());
        std::fs::create_dir_all(data.join("state/workspaces/one")).unwrap();
        assert!(hidden.check(&data.join("state/workspaces/one")).is_err());
        let hidden = hidden.but_in(data.join("state/workspaces"));
        assert_eq!(hidden.check(&data.join("state/workspaces/one")), Ok(()));
        for path in ["state/workspaces", "state", "state/audit", ""] {
            assert!(hidden.check(&data.join(path)).is_err(), "{path}");
        }
        assert_eq!(DeniedPaths::default().check(&data), Ok(()));
    }
}
