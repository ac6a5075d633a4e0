//! The paths that mounts protect in directories that guests may write.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringfence_policy::{Access, Request, Trusted};

use super::acted::{Acted, Target};
use super::conflict::Conflict;
use super::identity::{holds, identity, identity_at, look};
use super::servers::check_servers;

/// Parts of an installation that an interpreter executes or reads.
const PARTS: &[&str] = &["bin", "lib", "lib64", "include", "pyvenv.cfg"];

/// A mount that protects a directory or file below a tree that a guest may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedMount {
    /// Path relative to the tree.
    pub below: PathBuf,
    /// Read-only: protected with its contents. Read-write: a pinned parent directory of protected paths.
    pub access: Access,
}

/// Returns the host directories that a request's program may write.
pub fn trees(request: &Request) -> impl Iterator<Item = &Path> {
    let writable = request
        .mounts
        .iter()
        .filter(|mount| mount.access == Access::ReadWrite)
        .map(|mount| mount.host.as_path());
    request.workspace.as_deref().into_iter().chain(writable)
}

/// Returns the mounts that protect trusted paths within a tree that a guest may write, outer directories
/// first.
///
/// # Errors
/// If a trusted path cannot be protected while the guest may write to the tree at all, or a server on the host
/// has code there.
pub fn protected_mounts(tree: &Path, trusted: &Trusted) -> Result<Vec<ProtectedMount>, Conflict> {
    relied_on(&Tree::of(tree, &MetadataCache::default()), trusted).map(with_pins)
}

/// Returns the trusted paths that lie in these trees or around them, or would if they existed, with all
/// servers and what they import. The others get there only if a directory above them is replaced, or a file system is mounted.
pub fn near<'a>(trees: impl Iterator<Item = &'a Path>, trusted: &Trusted) -> Trusted {
    let metadata = MetadataCache::default();
    let roots: Vec<Tree<'_>> = trees.map(|tree| Tree::of(tree, &metadata)).collect();
    let is_near = |path: &&PathBuf| {
        let mut roots = roots.iter();
        roots.any(|root| path.starts_with(root.path) || !matches!(root.below(path), Position::Elsewhere))
    };
    let near = |paths: &[PathBuf]| paths.iter().filter(is_near).cloned().collect();
    Trusted {
        paths: near(&trusted.paths),
        installations: near(&trusted.installations),
        lookups: near(&trusted.lookups),
        imports: trusted.imports.clone(),
        servers: trusted.servers.clone(),
    }
}

/// Returns the trusted paths within a tree, relative to it.
///
/// # Errors
/// If one cannot be protected, or a server on the host has code there.
fn relied_on(root: &Tree<'_>, trusted: &Trusted) -> Result<Vec<PathBuf>, Conflict> {
    let tree = root.path;
    check_servers(tree, trusted)?;
    let mut found: Vec<PathBuf> = Vec::new();
    for path in &trusted.paths {
        found.extend(root.keep(path)?);
    }
    for prefix in &trusted.installations {
        match root.below(prefix) {
            Position::Below(below) => found.push(below),
            Position::Elsewhere => {}
            Position::Around => {
                for part in PARTS.iter().map(|name| prefix.join(name)) {
                    let is_link = part.is_symlink();
                    found.extend(if is_link { None } else { root.keep(&part)? });
                }
            }
        }
    }
    for directory in &trusted.lookups {
        if let Position::Below(below) = root.below(directory) {
            found.push(below);
        }
    }
    for imports in &trusted.imports {
        let is_data = |data: &PathBuf| *data != imports.directory && holds(data, tree);
        match root.below(&imports.directory) {
            Position::Below(below) => found.push(below),
            Position::Around if !imports.data.iter().any(is_data) => {
                return Err(Conflict::Imported {
                    tree: tree.to_owned(),
                    server: imports.server.clone(),
                    directory: imports.directory.clone(),
                });
            }
            Position::Around | Position::Elsewhere => {}
        }
    }
    Ok(found)
}

/// The protection of a workspace from its guests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protection {
    pub mounts: Vec<ProtectedMount>,
    /// Links in the top directory that must not be replaced.
    pub links: Vec<PathBuf>,
    /// An entry that leads to a path missing from the top directory, which guests must not create.
    pub awaits: Option<PathBuf>,
    /// An entry in the workspace that leads to its top directory, or to one above: guests must neither create nor
    /// change files in the top directory.
    pub leads: Option<PathBuf>,
}

/// Returns the paths that guests must not change in a workspace: trusted paths, and paths that programs of
/// the host read or run.
///
/// A link or a missing path is protected through its parent directory. `room` is the maximum total [`cost`] of the
/// mounts.
///
/// # Errors
/// If a path cannot be protected while the guest may write to the tree at all, or a server on the host has code
/// there.
pub fn protection(
    tree: &Path,
    trusted: &Trusted,
    acted: &Acted,
    room: usize,
) -> Result<Protection, Conflict> {
    let metadata = MetadataCache::default();
    let root = Tree::of(tree, &metadata);
    let mut protection = Protection::default();
    let mut found = relied_on(&root, trusted)?;
    let leads = |target: &Target| Conflict::Leads {
        tree: tree.to_owned(),
        entry: target.by.clone(),
        target: target.path.clone(),
    };
    if let Some(target) = acted.unknown.first() {
        return Err(leads(target));
    }
    for target in &acted.paths {
        match root.below(&target.path) {
            Position::Below(below) => found.push(below),
            Position::Elsewhere => {}
            // A program may have made it: it must not take the workspace from others.
            Position::Around if matches!(root.below(&target.by), Position::Below(_)) => {
                protection.leads.get_or_insert_with(|| target.by.clone());
            }
            Position::Around => return Err(leads(target)),
        }
    }
    let above_links = acted.links.iter().filter_map(|link| Some((link, link.parent()?)));
    for (link, above) in above_links {
        match root.below(above) {
            Position::Below(below) => found.push(below),
            Position::Around if look(above).is_some_and(|above| root.is(&above)) => {
                protection.links.push(link.clone());
            }
            Position::Around | Position::Elsewhere => {}
        }
    }
    for target in &acted.missing {
        let there = crate::mount_guard::nearest(&target.path).existing;
        match root.below(&there) {
            Position::Below(below) => found.push(below),
            Position::Around if look(&there).is_some_and(|there| root.is(&there)) => {
                protection.awaits.get_or_insert_with(|| target.by.clone());
            }
            Position::Around | Position::Elsewhere => {}
        }
    }
    protection.mounts = with_pins(found);
    let cost: usize = protection
        .mounts
        .iter()
        .map(|mount| cost(&tree.join(&mount.below)))
        .sum();
    let by = acted.paths.iter().chain(&acted.missing).next();
    match by.filter(|_| cost > room || protection.mounts.len() > MAX_MOUNTS) {
        Some(target) => Err(Conflict::Many {
            tree: tree.to_owned(),
            entry: target.by.clone(),
        }),
        None => Ok(protection),
    }
}

/// Maximum number of mounts that protect paths in a workspace, and maximum of the cost that is always free for
/// them.
const MAX_MOUNTS: usize = 512;
pub const MAX_COST: usize = 48 << 10;

/// Estimates how many bytes a bind mount of a path takes in a launcher's message, which has a maximum length.
pub fn cost(path: &Path) -> usize {
    const MEMBERS: usize = 90;
    // JSON writes a control character as six bytes.
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    let escaped = bytes.map(|byte| {
        if byte.is_ascii_control() {
            6
        } else {
            1 + usize::from(b"\"\\".contains(byte))
        }
    });
    MEMBERS + 2 * escaped.sum::<usize>()
}

/// The paths of a workspace that file tools and deliveries must not change because programs of the host act on
/// them.
#[derive(Debug, Clone, Default)]
pub struct ActedOn {
    /// Paths relative to the workspace, protected with everything below them.
    paths: Vec<PathBuf>,
    /// Set if the files directly in the workspace are protected, too.
    top: bool,
}

impl ActedOn {
    /// Returns `true` if a path, relative to the workspace, is protected.
    pub fn covers(&self, path: &Path) -> bool {
        let is_at_top = path.parent().is_some_and(|above| above.as_os_str().is_empty());
        (self.top && is_at_top) || self.paths.iter().any(|acted| path.starts_with(acted))
    }

    /// Returns the device and inode of each path that exists.
    pub fn identities(&self, tree: &Path) -> Vec<(u64, u64)> {
        let paths = self.paths.iter().map(|path| tree.join(path));
        paths.filter_map(|path| identity_at(&path)).collect()
    }
}

/// Returns the paths of a workspace that programs of the host act on.
///
/// # Errors
/// If one is the workspace, or lies around it, by the word of an entry elsewhere.
pub fn acted_on(tree: &Path, acted: &Acted) -> Result<ActedOn, Conflict> {
    let metadata = MetadataCache::default();
    let root = Tree::of(tree, &metadata);
    let protection = protection(
        tree,
        &Trusted::none(),
        &Acted {
            links: Vec::new(),
            missing: Vec::new(),
            ..acted.clone()
        },
        usize::MAX,
    )?;
    let top = protection.leads.is_some();
    let mounts = protection
        .mounts
        .into_iter()
        .filter(|mount| mount.access == Access::ReadOnly);
    let links = acted.links.iter().filter_map(|link| match root.below(link) {
        Position::Below(below) => Some(below),
        Position::Around | Position::Elsewhere => None,
    });
    let missing = acted
        .missing
        .iter()
        .map(|target| crate::mount_guard::nearest(&target.path).whole());
    let missing = missing.filter_map(|path| path.strip_prefix(tree).ok().map(Path::to_path_buf));
    Ok(ActedOn {
        paths: mounts
            .map(|mount| mount.below)
            .chain(links)
            .chain(missing)
            .collect(),
        top,
    })
}

/// Adds mounts for the parent directories of these read-only paths, and drops paths within others.
fn with_pins(mut read_only: Vec<PathBuf>) -> Vec<ProtectedMount> {
    // A directory sorts before its contents.
    read_only.sort();
    read_only.dedup();
    let mut mounts: Vec<ProtectedMount> = Vec::new();
    for below in read_only {
        let is_held =
            |mount: &ProtectedMount| mount.access == Access::ReadOnly && below.starts_with(&mount.below);
        if mounts.iter().any(is_held) {
            continue;
        }
        let above = below.ancestors().skip(1).filter(|above| above.parent().is_some());
        for above in above.collect::<Vec<_>>().into_iter().rev() {
            if !mounts.iter().any(|mount| mount.below == above) {
                mounts.push(ProtectedMount {
                    below: above.to_owned(),
                    access: Access::ReadWrite,
                });
            }
        }
        mounts.push(ProtectedMount {
            below,
            access: Access::ReadOnly,
        });
    }
    mounts
}

/// Metadata of paths, read once each: most trusted paths share the directories above them.
#[derive(Default)]
struct MetadataCache(RefCell<HashMap<PathBuf, Option<Metadata>>>);

impl MetadataCache {
    fn look(&self, path: &Path) -> Option<Metadata> {
        if let Some(found) = self.0.borrow().get(path) {
            return found.clone();
        }
        let found = look(path);
        self.0.borrow_mut().insert(path.to_owned(), found.clone());
        found
    }
}

/// A directory by device and inode: a bind mount has another name.
struct Tree<'a> {
    path: &'a Path,
    metadata: &'a MetadataCache,
    identity: Option<(u64, u64)>,
}

/// The position of a path relative to the tree.
enum Position {
    /// Below the tree, by this relative path.
    Below(PathBuf),
    /// The tree is this path, or lies in it.
    Around,
    Elsewhere,
}

impl<'a> Tree<'a> {
    fn of(tree: &'a Path, metadata: &'a MetadataCache) -> Self {
        Self {
            path: tree,
            metadata,
            identity: metadata.look(tree).as_ref().map(identity),
        }
    }

    fn is(&self, found: &Metadata) -> bool {
        self.identity == Some(identity(found))
    }

    fn below(&self, path: &Path) -> Position {
        let Some(found) = self.metadata.look(path) else {
            return Position::Elsewhere;
        };
        if self.is(&found) {
            return Position::Around;
        }
        let is_tree = |above: &&Path| self.metadata.look(above).is_some_and(|above| self.is(&above));
        let above = path.ancestors().skip(1).filter(is_tree);
        let below = above.filter_map(|above| path.strip_prefix(above).ok()).next();
        match below {
            Some(below) => Position::Below(below.to_owned()),
            None if found.is_dir() && self.lies_in(&found) => Position::Around,
            None => Position::Elsewhere,
        }
    }

    fn lies_in(&self, directory: &Metadata) -> bool {
        let mut above = self
            .path
            .ancestors()
            .filter_map(|above| self.metadata.look(above));
        above.any(|above| identity(&above) == identity(directory))
    }

    /// Returns the relative path to protect, if the path lies in the tree. Nothing can be mounted on a
    /// symbolic link, so its directory is protected instead.
    fn keep(&self, path: &Path) -> Result<Option<PathBuf>, Conflict> {
        let (tree, trusted) = (self.path.to_owned(), path.to_owned());
        let is_link = self.metadata.look(path).is_some_and(|found| found.is_symlink());
        let directory = path.parent().filter(|_| is_link);
        if matches!(self.below(path), Position::Elsewhere) {
            return Ok(None);
        }
        match self.below(directory.unwrap_or(path)) {
            Position::Elsewhere => Ok(None),
            Position::Around => Err(Conflict::Around { tree, trusted }),
            Position::Below(_)
                if self
                    .metadata
                    .look(path)
                    .is_some_and(|found| has_other_names(&found)) =>
            {
                Err(Conflict::Linked { tree, trusted })
            }
            Position::Below(below) => Ok(Some(below)),
        }
    }
}

/// Returns `true` for a data file with several hard links. Executables are exempt, because package managers
/// link them.
fn has_other_names(found: &Metadata) -> bool {
    found.is_file() && found.nlink() > 1 && found.mode() & 0o111 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new() -> Self {
            let dir = Self(tempfile::tempdir().unwrap());
            for name in ["w/skills/a", "w/x/y/z", "w/venv/bin", "elsewhere"] {
                fs::create_dir_all(dir.path(name)).unwrap();
            }
            fs::write(dir.path("w/x/y/config"), "").unwrap();
            dir
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn mounts(&self, tree: &str, names: &[&str]) -> Result<Vec<String>, Conflict> {
            let trusted = Trusted {
                paths: names.iter().map(|name| self.path(name)).collect(),
                ..Trusted::none()
            };
            protected_mounts(&self.path(tree), &trusted).map(shown)
        }
    }

    fn shown(mounts: Vec<ProtectedMount>) -> Vec<String> {
        let mounts = mounts.into_iter();
        let mark = |access| if access == Access::ReadOnly { "" } else { "+" };
        mounts
            .map(|mount| format!("{}{}", mark(mount.access), mount.below.display()))
            .collect()
    }

    #[test]
    fn what_lies_above_a_trusted_path_is_pinned() {
        let dir = Dir::new();
        let check = |names: &[&str], expected: &[&str]| {
            assert_eq!(dir.mounts("w", names).unwrap(), expected, "{names:?}");
        };
        check(&["elsewhere", "w/none"], &[]);
        check(&["w/skills"], &["skills"]);
        check(&["w/skills/a", "w/skills"], &["skills"]);
        check(&["w/x/y/config"], &["+x", "+x/y", "x/y/config"]);
        check(
            &["w/x/y/z", "w/x/y/config"],
            &["+x", "+x/y", "x/y/config", "x/y/z"],
        );
    }

    #[test]
    fn a_link_is_kept_with_its_directory() {
        let dir = Dir::new();
        for link in ["w/venv/bin/python", "w/python", "python"] {
            symlink("/usr/bin/python3", dir.path(link)).unwrap();
        }
        let mounts = dir.mounts("w", &["w/venv/bin/python", "python"]);
        assert_eq!(mounts.unwrap(), ["+venv", "venv/bin"]);
        assert!(matches!(
            dir.mounts("w", &["w/python"]),
            Err(Conflict::Around { .. })
        ));
    }

    #[test]
    fn a_tree_in_a_trusted_path_is_refused() {
        let dir = Dir::new();
        for (tree, name) in [("w", "w"), ("w/skills/a", "w/skills"), ("w", "")] {
            let around = Conflict::Around {
                tree: dir.path(tree),
                trusted: dir.path(name),
            };
            assert_eq!(dir.mounts(tree, &[name]), Err(around));
        }
        // A file contains nothing.
        assert_eq!(dir.mounts("w/x/y/z", &["w/x/y/config"]), Ok(Vec::new()));
    }

    #[test]
    fn a_file_with_another_name_is_refused() {
        let dir = Dir::new();
        fs::hard_link(dir.path("w/x/y/config"), dir.path("w/alias")).unwrap();
        assert!(matches!(
            dir.mounts("w", &["w/x/y/config"]),
            Err(Conflict::Linked { .. })
        ));
    }

    #[test]
    fn an_installation_around_the_tree_is_kept_by_its_parts() {
        let dir = Dir::new();
        for name in ["lib", "src"] {
            fs::create_dir(dir.path("w/venv").join(name)).unwrap();
        }
        symlink("lib", dir.path("w/venv/lib64")).unwrap();
        let trusted = Trusted {
            installations: vec![dir.path("w/venv")],
            ..Trusted::none()
        };
        let check = |tree: &str| protected_mounts(&dir.path(tree), &trusted).map(shown);
        assert_eq!(check("w").unwrap(), ["venv"]);
        assert_eq!(check("w/venv").unwrap(), ["bin", "lib"]);
        assert_eq!(check("w/venv/src").unwrap(), [""; 0]);
        assert!(matches!(check("w/venv/lib"), Err(Conflict::Around { .. })));
    }

    #[test]
    fn directories_of_the_search_path_matter_within_alone() {
        let dir = Dir::new();
        let trusted = Trusted {
            lookups: vec![dir.path("w/venv/bin"), dir.path("w")],
            ..Trusted::none()
        };
        let check = |tree: &str| protected_mounts(&dir.path(tree), &trusted).map(shown);
        assert_eq!(check("w").unwrap(), ["+venv", "venv/bin"]);
        assert_eq!(check("w/skills").unwrap(), [""; 0]);
    }
}
