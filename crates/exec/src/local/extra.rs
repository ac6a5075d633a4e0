//! Paths that the guests of a launcher see, beyond the system's.

use std::path::{Path, PathBuf};

use ringfence_jail::protocol::{Bind, TemplateFile};
use ringfence_policy::{Access, Account, Image, Mount, Trusted};

use super::root_ids::RootIds;
use super::workspace::{Entries, Workspace};
use crate::trust::{self, Conflict, ProtectedMount};

/// Working directory in a cell.
pub(super) const WORKSPACE: &str = "/workspace";

/// Paths beyond the system's that the guests of a launcher see: interpreters, their libraries, mounts, the
/// workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extra {
    pub(super) account: Account,
    pub(super) libraries: Vec<PathBuf>,
    /// Links by which an interpreter is found: (link, target).
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    pub(super) mounts: Vec<Mount>,
    /// Host directory that guests work in. `None`: a private one for each.
    pub(super) workspace: Option<Workspace>,
    /// Trusted paths, which guests must not change.
    pub(super) trusted: Trusted,
    /// Protected paths within the directories that guests may write.
    pub(super) trees: Vec<Tree>,
    /// Entries of the workspace's top directory.
    pub(super) top: Entries,
    /// Image that replaces the host's files.
    pub(super) image: Option<Image>,
    /// Ids of a sandbox whose account is root.
    pub(super) root_ids: Option<RootIds>,
}

/// The part of a root that is the same for all mounts.
#[derive(Debug, Default)]
pub(super) struct Root {
    pub(super) binds: Vec<Bind>,
    /// Symbolic links: (link, target).
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    pub(super) copies: Vec<PathBuf>,
    pub(super) files: Vec<TemplateFile>,
}

/// A host directory that guests may write, except for its protected paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) host: PathBuf,
    /// Path in a cell.
    pub(super) guest: PathBuf,
    pub(super) mounts: Vec<ProtectedMount>,
}

impl Tree {
    pub(super) fn binds(&self) -> impl Iterator<Item = Bind> {
        self.mounts.iter().map(|mount| Bind {
            host: self.host.join(&mount.below),
            guest: self.guest.join(&mount.below),
            writable: mount.access == Access::ReadWrite,
            guest_owns: true,
            optional: false,
            itself: false,
        })
    }

    /// Returns the read-only paths, as host paths.
    pub(super) fn read_only(&self) -> impl Iterator<Item = PathBuf> {
        let mounts = self.mounts.iter();
        let mounts = mounts.filter(|mount| mount.access == Access::ReadOnly);
        mounts.map(|mount| self.host.join(&mount.below))
    }
}

impl Extra {
    /// Returns the host directories that guests may write, with their paths in a cell.
    pub(super) fn writable(&self) -> impl Iterator<Item = (&Path, &Path)> {
        let mounts = self.mounts.iter();
        let mounts = mounts.filter(|mount| mount.access == Access::ReadWrite);
        let workspace = self.workspace.iter();
        let workspace = workspace.map(|workspace| (workspace.path.as_path(), Path::new(WORKSPACE)));
        workspace.chain(mounts.map(|mount| (mount.host.as_path(), mount.guest())))
    }

    /// Determines the protected paths. Those within a protected directory of the workspace are covered by it.
    ///
    /// # Errors
    /// If a trusted path cannot be protected.
    pub(super) fn keep(&mut self) -> Result<(), Conflict> {
        let mut trees = Vec::new();
        let mut top = Entries::default();
        for (host, guest) in self.writable() {
            let workspace = self.workspace.as_ref();
            let mounts = match workspace.filter(|_| guest == Path::new(WORKSPACE)) {
                Some(workspace) => {
                    let guarded = workspace.guarded(&self.trusted)?;
                    top = guarded.top;
                    guarded.mounts
                }
                None => trust::protected_mounts(host, &self.trusted)?,
            };
            trees.push(Tree {
                host: host.to_owned(),
                guest: guest.to_owned(),
                mounts,
            });
        }
        (self.trees, self.top) = (trees, top);
        Ok(())
    }

    /// Returns a path that only a mount can protect, with the directory it lies in.
    pub(super) fn kept_by_mounts(&self) -> Option<(PathBuf, &Path)> {
        let all = self.trees.iter();
        all.flat_map(|tree| tree.read_only().map(|kept| (kept, tree.host.as_path())))
            .next()
    }

    /// Returns `true` if a guest may write at a host path.
    pub(super) fn may_be_written(&self, path: &Path) -> bool {
        let kept = self.trees.iter().flat_map(Tree::read_only);
        let kept: Vec<PathBuf> = kept.chain(self.top.protected.iter().cloned()).collect();
        let mut writable = self.writable().map(|(host, _)| host);
        writable.any(|tree| trust::holds(tree, path)) && !kept.iter().any(|kept| trust::holds(kept, path))
    }

    /// Returns the directories outside `/usr`, each once, none within another.
    pub(super) fn library_directories(&self) -> Vec<&PathBuf> {
        let mut sorted: Vec<_> = self
            .libraries
            .iter()
            .filter(|path| !path.starts_with("/usr"))
            .collect();
        sorted.sort();
        let mut kept: Vec<&PathBuf> = Vec::new();
        for path in sorted {
            if path.is_absolute()
                && path.parent().is_some()
                && !kept.iter().any(|above| path.starts_with(above))
            {
                kept.push(path);
            }
        }
        kept
    }
}
