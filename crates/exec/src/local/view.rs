//! The protected paths of a launcher's guests at its opening. A mount stays on the file that was there then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringfence_jail::FileIdentity;
use ringfence_policy::Access;

use super::extra::Extra;
use super::workspace::Closed;

/// Identities of the trees that guests may write, and of the paths in them that mounts protect.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct View(BTreeMap<PathBuf, Option<FileIdentity>>);

impl View {
    pub(super) fn of(extra: &Extra) -> Self {
        let top = &extra.top;
        let open = top.open.iter().filter(|_| top.closed.is_some());
        let entries = top.protected.iter().chain(&top.pinned).chain(open).cloned();
        let trees = extra.trees.iter().map(|tree| tree.host.clone());
        let all = entries.chain(trees).chain(kept(extra, None));
        Self(all.map(|path| (path.clone(), FileIdentity::at(&path))).collect())
    }

    /// Returns a path to be protected `now` that is not protected in this view, which `began` with these paths.
    pub(super) fn unkept(&self, began: &Extra, now: &Extra) -> Option<PathBuf> {
        let read_only: Vec<PathBuf> = kept(began, Some(Access::ReadOnly))
            .chain(began.top.protected.iter().cloned())
            .filter(|path| self.has(path))
            .collect();
        let pinned: Vec<PathBuf> = kept(began, Some(Access::ReadWrite))
            .chain(began.top.pinned.iter().cloned())
            .filter(|path| self.has(path))
            .collect();
        let is_kept = |path: &PathBuf| {
            read_only.iter().any(|kept| path.starts_with(kept)) || is_in_closed_top(path, began)
        };
        let is_pinned = |path: &PathBuf| pinned.contains(path) || is_kept(path);
        let mut trees = began.trees.iter().map(|tree| tree.host.clone());
        let mut protected = kept(now, Some(Access::ReadOnly)).chain(now.top.protected.iter().cloned());
        let mut pins = now
            .top
            .pinned
            .iter()
            .cloned()
            .chain(kept(now, Some(Access::ReadWrite)));
        let closes = now.top.closed.as_ref().filter(|_| began.top.closed.is_none());
        trees
            .find(|tree| !self.has(tree))
            .or_else(|| protected.find(|path| !is_kept(path)))
            .or_else(|| pins.find(|path| !is_pinned(path)))
            .or_else(|| closes.map(|closed| cause(closed, now)))
    }

    /// Returns `true` if a path still leads to the file that it led to when the view was created.
    fn has(&self, path: &Path) -> bool {
        let began = self.0.get(path).copied().flatten();
        began.is_some() && began == FileIdentity::at(path)
    }
}

/// Returns the paths that mounts protect below the top of a tree: all, or those with this access.
fn kept(extra: &Extra, access: Option<Access>) -> impl Iterator<Item = PathBuf> {
    extra.trees.iter().flat_map(move |tree| {
        let mounts = tree.mounts.iter();
        let mounts = mounts.filter(move |mount| access.is_none_or(|access| mount.access == access));
        mounts.map(|mount| tree.host.join(&mount.below))
    })
}

/// Returns `true` for a path in a top directory that is read-only but for some entries, if it is in none of
/// these.
fn is_in_closed_top(path: &Path, extra: &Extra) -> bool {
    let workspace = extra.workspace.as_ref().filter(|_| extra.top.closed.is_some());
    workspace.is_some_and(|workspace| path.starts_with(&workspace.path))
        && !extra.top.open.iter().any(|open| path.starts_with(open))
}

/// Returns the path that closes the top directory.
fn cause(closed: &Closed, extra: &Extra) -> PathBuf {
    match closed {
        Closed::Many(path) | Closed::Awaits(path) | Closed::Pinned(path) | Closed::Leads(path) => {
            path.clone()
        }
        Closed::Repository => extra
            .workspace
            .as_ref()
            .map_or_else(PathBuf::new, |workspace| workspace.path.join("HEAD")),
    }
}
