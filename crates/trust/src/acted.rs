//! Paths in a workspace that programs of the host act on, because its protected entries lead there.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::conflict::Conflict;
use super::resolve::resolve;

/// Maximum number of entries of a workspace that are searched for other names of protected files.
const MAX_SEARCHED: usize = 20_000;
/// Maximum number of files of a protected directory that are looked at.
const MAX_LISTED: usize = 256;

/// A path, and the entry that leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub path: PathBuf,
    pub by: PathBuf,
}

/// Paths that protected links and the settings of git lead to, inside of a workspace or outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acted {
    /// Files and directories that exist.
    pub paths: Vec<Target>,
    /// Links on the way there.
    pub links: Vec<PathBuf>,
    /// Paths that do not exist.
    pub missing: Vec<Target>,
    /// Paths that cannot be resolved here, and that git may resolve.
    pub unknown: Vec<Target>,
}

impl Acted {
    /// Adds the target of a path, and the links on the way.
    pub(super) fn follow(&mut self, path: &Path, by: &Path) {
        let target = |path: PathBuf| Target {
            path,
            by: by.to_owned(),
        };
        let Ok(found) = resolve(path) else {
            self.missing.push(target(path.to_owned()));
            return;
        };
        let known = |links: &[PathBuf], link: &PathBuf| links.contains(link);
        for link in found.links {
            if !known(&self.links, &link) {
                self.links.push(link);
            }
        }
        let list = if found.exists {
            &mut self.paths
        } else {
            &mut self.missing
        };
        if !list.iter().any(|target| target.path == found.path) {
            list.push(target(found.path));
        }
    }

    /// Adds the other names that protected files have in the workspace: a program could write by these.
    ///
    /// # Errors
    /// If the workspace is too large to be searched.
    pub fn add_aliases(&mut self, tree: &Path, protected: &[PathBuf]) -> Result<(), Conflict> {
        let others = self.paths.iter().map(|target| &target.path);
        let others = others.filter(|path| !protected.contains(path));
        let linked: Vec<(PathBuf, Metadata)> = protected
            .iter()
            .chain(others)
            .flat_map(|path| linked(path))
            .collect();
        let Some((first, _)) = linked.first() else {
            return Ok(());
        };
        let too_large = || Conflict::Linked {
            tree: tree.to_owned(),
            trusted: first.clone(),
        };
        let same = |one: &Metadata, other: &Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
        let (mut todo, mut searched) = (vec![tree.to_owned()], 0);
        while let Some(directory) = todo.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                searched += 1;
                if searched > MAX_SEARCHED {
                    return Err(too_large());
                }
                let path = entry.path();
                let Ok(meta) = entry.metadata() else { continue };
                if meta.is_dir() {
                    todo.push(path);
                    continue;
                }
                let file = linked.iter().find(|(_, file)| same(file, &meta));
                if let Some((file, _)) = file.filter(|(file, _)| *file != path) {
                    let by = file.clone();
                    self.paths.push(Target { path, by });
                }
            }
        }
        match self.paths.len() > MAX_LISTED {
            true => Err(too_large()),
            false => Ok(()),
        }
    }
}

/// Returns a file, or those directly in a directory and its `hooks`, that have several hard links.
fn linked(path: &Path) -> Vec<(PathBuf, Metadata)> {
    let is_linked = |path: &PathBuf| {
        let meta = path.symlink_metadata().ok()?;
        (meta.is_file() && meta.nlink() > 1).then(|| (path.clone(), meta))
    };
    let directories = [path.to_owned(), path.join("hooks")];
    let entries = directories
        .iter()
        .flat_map(|directory| {
            fs::read_dir(directory)
                .into_iter()
                .flatten()
                .flatten()
                .take(MAX_LISTED)
        })
        .map(|entry| entry.path());
    match path.is_dir() {
        true => entries.filter_map(|path| is_linked(&path)).collect(),
        false => is_linked(&path.to_owned()).into_iter().collect(),
    }
}
