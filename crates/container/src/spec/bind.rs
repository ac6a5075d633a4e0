//! Specifies the bind mounts of a container.

use std::io;
use std::path::{Component, Path, PathBuf};

use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::{self, Ledger};
use ringfence_jail::{FileIdentity, MountPoint, Mounted};
use ringfence_policy::{Access, Mount};
use rustix::io::Errno;

use crate::binds;

/// A host path and its mount point in a container.
///
/// The engine resolves the path again when it starts the container. A program of another run may have exchanged
/// it for a link by then, so the file itself is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    host: PathBuf,
    identity: FileIdentity,
    guest: PathBuf,
    access: Access,
    /// Set for a bind of a part of a writable directory onto itself, which pins the part, or a directory
    /// above one, in place.
    in_place: bool,
    /// The user's directory or file, to which the container's user gets the rights of its owner.
    is_users: bool,
}

/// An error for a path that cannot be mounted.
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
        "refusing to show {} in a container: it lies in {}, where the program may write",
        inner.display(), outer.display()
    )]
    Nested {
        /// Host path below `outer`.
        inner: PathBuf,
        outer: PathBuf,
    },
    /// A component of the path is a link.
    #[error(
        "cannot show {} in a container: expected a path without links, found a link on the way", path.display()
    )]
    Link {
        /// Host path.
        path: PathBuf,
    },
    /// The container has another file than the one that was checked, or no such mount.
    #[error(
        "refusing to start code in the container: expected {} at {}, found {found}", path.display(), guest.display()
    )]
    Exchanged {
        /// Host path.
        path: PathBuf,
        guest: PathBuf,
        found: &'static str,
    },
    /// A program could exchange the path unnoticed, before the engine resolves it.
    #[error(
        "refusing to show {} in a container: programs may write in {}, and here nothing can check that they did not \
         exchange it for a link when the container started",
        path.display(), tree.display()
    )]
    Unchecked {
        /// Host path.
        path: PathBuf,
        /// Directory around it that programs may write.
        tree: PathBuf,
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
            Self::Nested { .. } => "mount only the outer one, or mount it read-only",
            Self::Link { .. } => "name the link's target, if you trust it",
            Self::Exchanged { .. } => {
                "look at that path: a program that may write there may have exchanged it for a link; end that program, then try again"
            }
            Self::Unchecked { .. } => {
                "show a directory that no program may write around, and that holds no protected entries; or use the OCI runtime \
                 runc or crun, an image of this machine's architecture, or the runtime `local`"
            }
            Self::Twice(_) => "give each mount a path of its own inside",
        }
    }
}

impl Bind {
    /// Binds the path of `mount`, which must be without links.
    ///
    /// # Errors
    /// If the path does not exist, has a link, or would expose a denied path.
    pub fn new(mount: &Mount, hidden: &DeniedPaths) -> Result<Self, BindError> {
        let guest = mount.guest();
        Self::at(&mount.host, guest, mount.access, hidden)
    }

    /// Checks a path that may come to exist, as [`Self::new`] will then.
    ///
    /// # Errors
    /// If it would expose a denied path.
    pub fn check_missing(host: &Path, hidden: &DeniedPaths) -> Result<(), BindError> {
        let shown = binds::check_missing(host).and_then(|path| hidden.check(&path));
        shown.map_err(|why| exposing(host, &why))
    }

    /// Binds a path of our own, in which no program can have made a link, with links resolved.
    ///
    /// # Errors
    /// As [`Self::at`], but for links.
    pub(crate) fn ours(
        host: &Path,
        guest: &Path,
        access: Access,
        hidden: &DeniedPaths,
    ) -> Result<Self, BindError> {
        let resolved = host.canonicalize().map_err(|error| unusable(host, &error))?;
        Self::at(&resolved, guest, access, hidden)
    }

    /// Binds `host`, which must be without links, to any path of the container.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn at(host: &Path, guest: &Path, access: Access, hidden: &DeniedPaths) -> Result<Self, BindError> {
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        if !host.is_absolute() || !host.components().all(plain) || host.to_str().is_none() {
            let why = io::Error::other("its path is not absolute, or not UTF-8");
            return Err(unusable(host, &why));
        }
        // The exact file from here on, as a program may exchange it for a link at any time.
        let found = trust::metadata(host).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP | Errno::NOTDIR) => BindError::Link {
                path: host.to_path_buf(),
            },
            _ => unusable(host, &error),
        })?;
        let shown = binds::check(host).and_then(|()| hidden.check(host));
        shown.map_err(|why| exposing(host, &why))?;
        Ok(Self {
            host: host.to_path_buf(),
            identity: FileIdentity::of(&found),
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

    /// Marks the bind as a directory or file of the user: the container's user gets the rights of its owner.
    pub(crate) fn users(self) -> Self {
        Self {
            is_users: true,
            ..self
        }
    }

    /// Returns `true` if the bind is marked as the user's.
    pub(crate) fn is_users(&self) -> bool {
        self.is_users
    }

    /// Returns the host path, without links.
    pub fn host(&self) -> &Path {
        &self.host
    }

    /// Returns the identity of the file that was checked.
    pub(crate) fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Returns the mount point in the container.
    pub fn guest(&self) -> &Path {
        &self.guest
    }

    pub fn access(&self) -> Access {
        self.access
    }

    /// Rejects the bind if a program could exchange its path, for an engine whose mounts cannot be checked.
    ///
    /// # Errors
    /// If programs may write in a directory around it, or the ledger cannot be read.
    pub(crate) fn check_ancestors(&self, ledger: &Ledger) -> Result<(), BindError> {
        let path = || self.host.clone();
        match ledger.around(&self.host) {
            Ok(None) => Ok(()),
            Ok(Some(tree)) => Err(BindError::Unchecked { path: path(), tree }),
            Err(error) => Err(unusable(&self.host, &error)),
        }
    }

    /// Returns the error for a file that was exchanged.
    pub(crate) fn exchanged(&self, found: &'static str) -> BindError {
        BindError::Exchanged {
            path: self.host.clone(),
            guest: self.guest.clone(),
            found,
        }
    }

    /// Compares a container's mount point with this bind.
    fn check(&self, point: MountPoint) -> Result<(), BindError> {
        let found = match (point.file, point.mounted) {
            (None, _) => "an inaccessible path",
            (Some(file), _) if file != self.identity => "another file or directory",
            (Some(_), Mounted::Nothing) => "no mount",
            (Some(_), Mounted::Writable) if self.access == Access::ReadOnly => "a writable mount",
            (Some(_), _) => return Ok(()),
        };
        Err(self.exchanged(found))
    }
}

fn exposing(path: &Path, why: &impl ToString) -> BindError {
    BindError::Exposing {
        path: path.to_path_buf(),
        why: why.to_string(),
    }
}

fn unusable(path: &Path, error: &io::Error) -> BindError {
    BindError::Unusable {
        path: path.to_path_buf(),
        why: error.to_string(),
    }
}

/// The bind mounts of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binds(Vec<Bind>);

impl Binds {
    /// Combines binds.
    ///
    /// If one path lies in another that is writable for a program, the program could replace it with a link in time
    /// for the next start, which would be refused.
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

    /// Returns the mount points, in the order of [`Self::check`].
    pub(crate) fn mount_points(&self) -> Vec<String> {
        let points = self.0.iter();
        points
            .map(|bind| bind.guest.to_string_lossy().into_owned())
            .collect()
    }

    /// Compares the mount points of a container with these binds, before any program runs there.
    ///
    /// An engine in a virtual machine shows files of its own, also at the bind `control`, which no program could
    /// exchange. There the user's binds must lie where no program may write.
    ///
    /// # Errors
    /// If one differs, or could have been exchanged.
    pub(crate) fn check(
        &self,
        points: &[MountPoint],
        control: &Path,
        ledger: &Ledger,
    ) -> Result<(), BindError> {
        let found = |number: usize| {
            points.get(number).copied().unwrap_or(MountPoint {
                file: None,
                mounted: Mounted::Nothing,
            })
        };
        let mut numbered = self.0.iter().enumerate();
        let shows_files =
            numbered.any(|(number, bind)| bind.guest == control && bind.check(found(number)).is_ok());
        self.0
            .iter()
            .enumerate()
            .try_for_each(|(number, bind)| match shows_files {
                true => bind.check(found(number)),
                false if bind.is_users => bind.check_ancestors(ledger),
                false => Ok(()),
            })
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
/// A mounted bind cannot be moved, since it is a mount point.
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
        Bind::at(host, Path::new(guest), access, &DeniedPaths::default())
    }

    #[test]
    fn a_link_is_resolved_before_it_is_judged() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/run", dir.path().join("link")).unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        symlink("real", dir.path().join("good")).unwrap();
        let ours = |name: &str| {
            let (host, guest) = (dir.path().join(name), Path::new("/x"));
            Bind::ours(&host, guest, Access::ReadOnly, &DeniedPaths::default())
        };
        let refused = ours("link").unwrap_err();
        assert!(matches!(refused, BindError::Exposing { .. }), "{refused}");
        for link in ["good", "good/."] {
            let refused = bind(&dir.path().join(link), "/x", Access::ReadOnly).unwrap_err();
            assert!(matches!(refused, BindError::Link { .. }), "{refused}");
        }
        let shown = ours("good").unwrap();
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
    fn a_bind_of_what_was_replaced_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("place");
        let bound = || bind(&place, "/x", Access::ReadOnly).unwrap();
        fs::create_dir(&place).unwrap();
        let first = bound();
        crate::testing::open_to_all(&place);
        assert_eq!(first, bound());
        fs::remove_dir(&place).unwrap();
        fs::create_dir(&place).unwrap();
        assert_ne!(first, bound());
    }

    #[test]
    fn a_mount_point_is_compared_with_what_was_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["state", "tree/inner", "alone", "init"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let (ledger, control) = (Ledger::at(&path("state")), Path::new("/init"));
        ledger.add(&[&path("tree")]).unwrap();
        let file = |name: &str| FileIdentity::at(&path(name));
        let point = |file, mounted| MountPoint { file, mounted };
        let init = point(file("init"), Mounted::ReadOnly);
        let check = |name: &str, points: &[MountPoint]| {
            let users = bind(&path(name), "/data", Access::ReadOnly).unwrap().users();
            let ours = bind(&path("init"), "/init", Access::ReadOnly).unwrap();
            let binds = Binds::new(vec![users, ours]).unwrap();
            binds
                .check(points, control, &ledger)
                .map_err(|error| match error {
                    BindError::Exchanged { found, .. } => found,
                    BindError::Unchecked { .. } => "unchecked",
                    other => panic!("{other}"),
                })
        };
        let found = |file, mounted| check("tree/inner", &[point(file, mounted), init]);
        let same = file("tree/inner");
        assert_eq!(found(same, Mounted::ReadOnly), Ok(()));
        assert_eq!(
            found(file("alone"), Mounted::ReadOnly),
            Err("another file or directory")
        );
        assert_eq!(found(same, Mounted::Nothing), Err("no mount"));
        assert_eq!(found(same, Mounted::Writable), Err("a writable mount"));
        assert_eq!(found(None, Mounted::ReadOnly), Err("an inaccessible path"));
        // An engine that shows files of its own, and one that says nothing.
        let other = point(file("state"), Mounted::ReadOnly);
        for points in [&[other, other][..], &[]] {
            assert_eq!(check("tree/inner", points), Err("unchecked"));
            assert_eq!(check("alone", points), Ok(()));
        }
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
