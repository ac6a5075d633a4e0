//! Where trusted paths lie in directories that guests may write, and what of these is kept from them.
//!
//! A file is kept by a read-only mount over it, which holds as long as nobody renames a directory above: so each directory
//! between it and the guest's own is made a mount, too, which the kernel lets nobody rename or remove (EBUSY).

pub(crate) mod ledger;
mod resolve;

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringfence_policy::{Access, Request, Trusted};

pub use ledger::Ledger;
pub use resolve::{Resolved, resolve};

/// Parts of an installation that an interpreter executes or believes.
const PARTS: &[&str] = &["bin", "lib", "lib64", "include", "pyvenv.cfg"];

/// A directory or file below a tree that a guest may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Path below the tree.
    pub(crate) below: PathBuf,
    /// Read-only: kept with all it holds. Read-write: pinned, for what it holds.
    pub(crate) access: Access,
}

/// Why a guest cannot be given a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// It is trusted itself, or lies in what is.
    #[error(
        "refusing to let the program write in {}: Ringfence itself relies on what lies in {}",
        tree.display(), trusted.display()
    )]
    Around {
        /// What the program would write.
        tree: PathBuf,
        /// What is trusted.
        trusted: PathBuf,
    },
    /// A trusted file has another name, perhaps one that the guest may write to.
    #[error(
        "refusing to let the program write in {}: Ringfence relies on {}, which has several hard links",
        tree.display(), trusted.display()
    )]
    Linked {
        /// What the program would write.
        tree: PathBuf,
        /// What is trusted.
        trusted: PathBuf,
    },
    /// Without mounts there is nothing to keep it with.
    #[error(
        "refusing to let the program write in {}: Ringfence relies on {}, and without namespaces cannot keep it from the program",
        tree.display(), trusted.display()
    )]
    Unkept {
        /// What the program may write.
        tree: PathBuf,
        /// What is trusted.
        trusted: PathBuf,
    },
    /// The PATH leads to an interpreter that a guest may have put there.
    #[error(
        "refusing to use {}: only the PATH leads to it, and it lies in {}, where programs may write",
        program.display(), tree.display()
    )]
    Found {
        /// The interpreter.
        program: PathBuf,
        /// What programs may write.
        tree: PathBuf,
    },
}

impl Conflict {
    /// What the reader can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Around { .. } => {
                "name a directory that holds the program's own files alone, or move what Ringfence relies on out of it"
            }
            Self::Linked { .. } => "replace it by a copy (`cp FILE FILE.new && mv FILE.new FILE`)",
            Self::Unkept { .. } => {
                "move it out of that directory, or run where namespaces can be made (`ringfence doctor`)"
            }
            Self::Found { .. } => {
                "if you trust it, name it: `--python PATH` or `sandbox.python`; else take that directory off the PATH"
            }
        }
    }
}

/// The directories of the host that the program of a request may write.
pub fn trees(request: &Request) -> impl Iterator<Item = &Path> {
    let writable = request
        .mounts
        .iter()
        .filter(|mount| mount.access == Access::ReadWrite)
        .map(|mount| mount.host.as_path());
    request.workspace.as_deref().into_iter().chain(writable)
}

/// What of a tree is kept from the guest that may write the rest: outer directories before what they hold.
///
/// # Errors
/// If it cannot be kept while the guest may write there at all.
pub(crate) fn kept(tree: &Path, trusted: &Trusted) -> Result<Vec<Kept>, Conflict> {
    let place = Place::of(tree);
    let mut found: Vec<PathBuf> = Vec::new();
    for path in &trusted.paths {
        found.extend(place.keep(path)?);
    }
    for prefix in &trusted.installations {
        match place.below(prefix) {
            Lies::Below(below) => found.push(below),
            Lies::Elsewhere => {}
            Lies::Around => {
                for part in PARTS.iter().map(|name| prefix.join(name)) {
                    let is_link = part.is_symlink();
                    found.extend(if is_link { None } else { place.keep(&part)? });
                }
            }
        }
    }
    for directory in &trusted.lookups {
        if let Lies::Below(below) = place.below(directory) {
            found.push(below);
        }
    }
    Ok(with_pins(found))
}

/// What lies at a path: its device and inode.
pub(crate) type Mark = (PathBuf, Option<(u64, u64)>);

/// What lies now where something is kept from the program of a request.
pub(crate) fn marks(request: &Request) -> Vec<Mark> {
    let kept = |tree: &Path| {
        let kept = kept(tree, &request.trusted).unwrap_or_default().into_iter();
        kept.map(|kept| mark(tree.join(kept.below))).collect::<Vec<_>>()
    };
    trees(request).flat_map(kept).collect()
}

/// What lies at a path now.
pub(crate) fn mark(path: PathBuf) -> Mark {
    let found = look(&path).as_ref().map(identity);
    (path, found)
}

/// A path lies in a directory, or is it: by what they are.
pub fn holds(directory: &Path, path: &Path) -> bool {
    let Some(found) = look(directory) else {
        return false;
    };
    let above = path.ancestors().filter_map(look);
    above
        .into_iter()
        .any(|above| identity(&above) == identity(&found))
}

/// Read-only places, none within another, and the directories above them.
fn with_pins(mut read_only: Vec<PathBuf>) -> Vec<Kept> {
    // A directory sorts before what lies in it.
    read_only.sort();
    read_only.dedup();
    let mut kept: Vec<Kept> = Vec::new();
    for below in read_only {
        let is_held = |kept: &Kept| kept.access == Access::ReadOnly && below.starts_with(&kept.below);
        if kept.iter().any(is_held) {
            continue;
        }
        let above = below.ancestors().skip(1).filter(|above| above.parent().is_some());
        for above in above.collect::<Vec<_>>().into_iter().rev() {
            if !kept.iter().any(|kept| kept.below == above) {
                kept.push(Kept {
                    below: above.to_owned(),
                    access: Access::ReadWrite,
                });
            }
        }
        kept.push(Kept {
            below,
            access: Access::ReadOnly,
        });
    }
    kept
}

/// A directory by what it is and not by its name: a bind mount has another one.
struct Place<'a> {
    tree: &'a Path,
    identity: Option<(u64, u64)>,
}

/// Where a path lies.
enum Lies {
    /// Below the tree, by this path.
    Below(PathBuf),
    /// The tree lies in it, or is it.
    Around,
    Elsewhere,
}

impl<'a> Place<'a> {
    fn of(tree: &'a Path) -> Self {
        Self {
            tree,
            identity: look(tree).as_ref().map(identity),
        }
    }

    fn is(&self, found: &Metadata) -> bool {
        self.identity == Some(identity(found))
    }

    fn below(&self, path: &Path) -> Lies {
        let Some(found) = look(path) else {
            return Lies::Elsewhere;
        };
        if self.is(&found) {
            return Lies::Around;
        }
        let above = path.ancestors().skip(1);
        let above = above.filter(|above| look(above).is_some_and(|above| self.is(&above)));
        let below = above.filter_map(|above| path.strip_prefix(above).ok()).next();
        match below {
            Some(below) => Lies::Below(below.to_owned()),
            None if found.is_dir() && self.lies_in(&found) => Lies::Around,
            None => Lies::Elsewhere,
        }
    }

    fn lies_in(&self, directory: &Metadata) -> bool {
        let above = self.tree.ancestors().filter_map(look);
        above
            .into_iter()
            .any(|above| identity(&above) == identity(directory))
    }

    /// Where a path lies that must be kept, if it lies in the tree. Nothing can be mounted on a link, so that is kept with
    /// its directory.
    fn keep(&self, path: &Path) -> Result<Option<PathBuf>, Conflict> {
        let (tree, trusted) = (self.tree.to_owned(), path.to_owned());
        let directory = path.parent().filter(|_| path.is_symlink());
        if matches!(self.below(path), Lies::Elsewhere) {
            return Ok(None);
        }
        match self.below(directory.unwrap_or(path)) {
            Lies::Elsewhere => Ok(None),
            Lies::Around => Err(Conflict::Around { tree, trusted }),
            Lies::Below(_) if look(path).is_some_and(|found| has_other_names(&found)) => {
                Err(Conflict::Linked { tree, trusted })
            }
            Lies::Below(below) => Ok(Some(below)),
        }
    }
}

/// A file of data that can be written under another name as well. Package managers link programs.
fn has_other_names(found: &Metadata) -> bool {
    found.is_file() && found.nlink() > 1 && found.mode() & 0o111 == 0
}

fn look(path: &Path) -> Option<Metadata> {
    fs::symlink_metadata(path).ok()
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
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

        fn kept(&self, tree: &str, names: &[&str]) -> Result<Vec<String>, Conflict> {
            let trusted = Trusted {
                paths: names.iter().map(|name| self.path(name)).collect(),
                ..Trusted::none()
            };
            kept(&self.path(tree), &trusted).map(shown)
        }
    }

    fn shown(kept: Vec<Kept>) -> Vec<String> {
        let kept = kept.into_iter();
        let mark = |access| if access == Access::ReadOnly { "" } else { "+" };
        kept.map(|kept| format!("{}{}", mark(kept.access), kept.below.display()))
            .collect()
    }

    #[test]
    fn what_lies_above_a_trusted_path_is_pinned() {
        let dir = Dir::new();
        let check = |names: &[&str], expected: &[&str]| {
            assert_eq!(dir.kept("w", names).unwrap(), expected, "{names:?}");
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
        let kept = dir.kept("w", &["w/venv/bin/python", "python"]);
        assert_eq!(kept.unwrap(), ["+venv", "venv/bin"]);
        assert!(matches!(
            dir.kept("w", &["w/python"]),
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
            assert_eq!(dir.kept(tree, &[name]), Err(around));
        }
        // A file is around nothing.
        assert_eq!(dir.kept("w/x/y/z", &["w/x/y/config"]), Ok(Vec::new()));
    }

    #[test]
    fn a_file_with_another_name_is_refused() {
        let dir = Dir::new();
        fs::hard_link(dir.path("w/x/y/config"), dir.path("w/alias")).unwrap();
        assert!(matches!(
            dir.kept("w", &["w/x/y/config"]),
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
        let check = |tree: &str| kept(&dir.path(tree), &trusted).map(shown);
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
        let check = |tree: &str| kept(&dir.path(tree), &trusted).map(shown);
        assert_eq!(check("w").unwrap(), ["+venv", "venv/bin"]);
        assert_eq!(check("w/skills").unwrap(), [""; 0]);
    }
}
