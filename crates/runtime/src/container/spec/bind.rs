//! Specifies the bind mounts of a container.

use std::path::{Path, PathBuf};

use ringfence_policy::{Access, Mount};

use crate::container::binds;
use crate::exposure::Hidden;

/// A host path and its mount point in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    host: PathBuf,
    guest: PathBuf,
    access: Access,
    /// Set for a bind of a part of a writable directory onto itself, which pins the part, or a directory
    /// above one, in place.
    in_place: bool,
    /// The user's directory or file, to which the container's user gets the rights of its owner.
    is_users: bool,
}

/// The reason why a path cannot be mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The path does not exist or is not accessible.
    #[error("cannot show {} in a container: {why}", path.display())]
    Unusable {
        /// Host path.
        path: PathBuf,
        why: String,
    },
    /// The mount would expose a denied path.
    #[error("refusing to show {} in a container: {why}", path.display())]
    Exposing {
        /// Host path.
        path: PathBuf,
        why: String,
    },
    /// A program that can write to the outer path could replace the inner one with a symbolic link.
    #[error(
        "refusing to show {} in a container: it lies in {}, which the program may change",
        inner.display(), outer.display()
    )]
    Nested {
        /// Host path below `outer`.
        inner: PathBuf,
        outer: PathBuf,
    },
    /// Two mounts have the same mount point.
    #[error("two mounts at {} of a container", .0.display())]
    Twice(PathBuf),
}

impl BindError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "name a directory that exists",
            Self::Exposing { .. } => "name a directory that holds only what the program needs",
            Self::Nested { .. } => "show the outer one alone, or show it read-only",
            Self::Twice(_) => "give each mount a path of its own inside",
        }
    }
}

impl Bind {
    /// Binds the path of `mount`, with symbolic links resolved.
    ///
    /// # Errors
    /// If the path does not exist, or would expose a denied path.
    pub fn new(mount: &Mount, hidden: &Hidden) -> Result<Self, BindError> {
        let guest = mount.guest();
        Self::at(&mount.host, guest, mount.access, hidden)
    }

    /// Binds `host` to any path of the container.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn at(host: &Path, guest: &Path, access: Access, hidden: &Hidden) -> Result<Self, BindError> {
        let resolved = host.canonicalize().map_err(|error| BindError::Unusable {
            path: host.to_path_buf(),
            why: error.to_string(),
        })?;
        let shown = binds::check(&resolved).and_then(|()| hidden.check(&resolved));
        shown.map_err(|why| BindError::Exposing {
            path: host.to_path_buf(),
            why: why.to_string(),
        })?;
        if resolved.to_str().is_none() {
            return Err(BindError::Unusable {
                path: host.to_path_buf(),
                why: "its path is not UTF-8".to_owned(),
            });
        }
        Ok(Self {
            host: resolved,
            guest: guest.to_path_buf(),
            access,
            in_place: false,
            is_users: false,
        })
    }

    /// Marks this as a bind of a part of another mount onto itself.
    pub(crate) fn in_place(self) -> Self {
        Self {
            in_place: true,
            ..self
        }
    }

    /// Marks it as the user's: the container's user gets the rights of its owner.
    pub(crate) fn users(self) -> Self {
        Self {
            is_users: true,
            ..self
        }
    }

    /// Returns `true` if it is marked as the user's.
    pub(crate) fn is_users(&self) -> bool {
        self.is_users
    }

    /// Returns the canonical host path.
    pub fn host(&self) -> &Path {
        &self.host
    }

    /// Returns the mount point in the container.
    pub fn guest(&self) -> &Path {
        &self.guest
    }

    pub fn access(&self) -> Access {
        self.access
    }
}

/// The bind mounts of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binds(Vec<Bind>);

impl Binds {
    /// Combines binds.
    ///
    /// The engine follows symbolic links when it starts a container. If one path lies in another that is
    /// writable for a program, the program could replace it with a link in time for the next start.
    ///
    /// # Errors
    /// If a path lies in another that is writable, or two have the same mount point.
    pub fn new(all: Vec<Bind>) -> Result<Self, BindError> {
        for (number, bind) in all.iter().enumerate() {
            let writable = all.iter().filter(|other| other.access == Access::ReadWrite);
            let outer = writable
                .filter(|other| other.host != bind.host && !keeps(bind, other))
                .find(|other| bind.host.starts_with(&other.host));
            if let Some(outer) = outer {
                return Err(BindError::Nested {
                    inner: bind.host.clone(),
                    outer: outer.host.clone(),
                });
            }
            if all[..number].iter().any(|other| other.guest == bind.guest) {
                return Err(BindError::Twice(bind.guest.clone()));
            }
        }
        Ok(Self(all))
    }

    /// Returns the same binds with other host paths for those of the user's that `place` knows.
    pub(crate) fn moved(&self, place: impl Fn(&Path) -> Option<PathBuf>) -> Self {
        let moved = |bind: &Bind| match place(&bind.host).filter(|_| bind.is_users) {
            Some(host) => Bind { host, ..bind.clone() },
            None => bind.clone(),
        };
        Self(self.0.iter().map(moved).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Bind> {
        self.0.iter()
    }
}

/// Returns `true` if the bind only makes a part of the other one read-only, or pins it, at its own place.
///
/// While mounted, it cannot be moved, as it is a mount point. A path that programs created later can be
/// replaced by a link between this check and the start of the next container, which then sees the link's
/// target.
fn keeps(bind: &Bind, other: &Bind) -> bool {
    let below = |path: &Path, above: &Path| path.strip_prefix(above).map(Path::to_path_buf).ok();
    let place = below(&bind.host, &other.host);
    let harmless = bind.access == Access::ReadOnly || bind.in_place;
    harmless && place.is_some() && place == below(&bind.guest, &other.guest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn bind(host: &Path, guest: &str, access: Access) -> Result<Bind, BindError> {
        Bind::at(host, Path::new(guest), access, &Hidden::default())
    }

    #[test]
    fn a_link_is_resolved_before_it_is_judged() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/run", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("good")).unwrap();
        let refused = bind(&dir.path().join("link"), "/x", Access::ReadOnly).unwrap_err();
        assert!(matches!(refused, BindError::Exposing { .. }), "{refused}");
        let shown = bind(&dir.path().join("good"), "/x", Access::ReadOnly).unwrap();
        assert_eq!(shown.host(), dir.path().canonicalize().unwrap().join("real"));
        assert!(bind(&dir.path().join("none"), "/x", Access::ReadOnly).is_err());
    }

    #[test]
    fn nothing_lies_in_what_a_program_may_write() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        fs::create_dir(&below).unwrap();
        let pair = |outer: Access| {
            Binds::new(vec![
                bind(&below, "/b", Access::ReadOnly).unwrap(),
                bind(dir.path(), "/a", outer).unwrap(),
            ])
        };
        assert!(matches!(pair(Access::ReadWrite), Err(BindError::Nested { .. })));
        assert!(pair(Access::ReadOnly).is_ok());
        let kept = |guest: &str, access| {
            let outer = bind(dir.path(), "/a", Access::ReadWrite).unwrap();
            Binds::new(vec![outer, bind(&below, guest, access).unwrap()])
        };
        assert!(kept("/a/below", Access::ReadOnly).is_ok());
        assert!(kept("/a/other", Access::ReadOnly).is_err());
        assert!(kept("/a/below", Access::ReadWrite).is_err());
        let outer = bind(dir.path(), "/a", Access::ReadWrite).unwrap();
        let pinned = bind(&below, "/a/below", Access::ReadWrite).unwrap().in_place();
        assert!(Binds::new(vec![outer, pinned]).is_ok());
        let twice = Binds::new(vec![
            bind(&below, "/b", Access::ReadOnly).unwrap(),
            bind(dir.path(), "/b", Access::ReadOnly).unwrap(),
        ]);
        assert!(matches!(twice, Err(BindError::Twice(_))));
    }

    #[test]
    fn one_directory_may_be_seen_at_two_places() {
        let dir = tempfile::tempdir().unwrap();
        let both = vec![
            bind(dir.path(), "/output", Access::ReadWrite).unwrap(),
            bind(dir.path(), "/same/as/on/the/host", Access::ReadWrite).unwrap(),
        ];
        assert!(Binds::new(both).is_ok());
    }
}
