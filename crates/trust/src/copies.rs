//! The rules for a directory of the host that a guest's files are copied to.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringfence_policy::{Access, Trusted};

use crate::protected::Protected;
use crate::{Acted, ActedOn, Conflict, acted_on, git, identity_at, protected_mounts};

/// Names and paths that copies of a guest's files must not bring or change.
#[derive(Debug, Clone)]
pub struct CopyGuard {
    protected: Protected,
    trusted: Trusted,
}

/// The rules for one directory.
#[derive(Debug)]
pub struct CopyRules {
    path: PathBuf,
    /// Protected names, rejected at any depth: host programs act on files of these names.
    protected: Protected,
    /// Trusted files and directories, by device and inode, which are never replaced or entered.
    kept: Vec<(u64, u64)>,
    /// Paths that programs of the host act on because protected entries lead there.
    acted: ActedOn,
}

impl CopyGuard {
    /// Creates a guard with these protected paths, to which compiled code is added.
    pub fn new<S: AsRef<str>>(protected: impl IntoIterator<Item = S>) -> Self {
        Self {
            protected: Protected::with_bytecode(protected),
            trusted: Trusted::none(),
        }
    }

    /// Guards these paths, too.
    #[must_use]
    pub fn with_trusted(self, trusted: Trusted) -> Self {
        Self { trusted, ..self }
    }

    /// Returns the rules for a directory, whose path is absolute and need not exist.
    ///
    /// # Errors
    /// If a trusted path conflicts.
    pub fn rules(&self, path: &Path) -> Result<CopyRules, Conflict> {
        let kept = protected_mounts(path, &self.trusted)?.into_iter();
        let kept = kept.filter(|kept| kept.access == Access::ReadOnly);
        let kept = kept.filter_map(|kept| identity_at(&path.join(kept.below)));
        let acted = acted_in(path, &self.protected)?;
        Ok(CopyRules {
            path: path.to_owned(),
            protected: self.protected.clone(),
            kept: kept.chain(acted.identities(path)).collect(),
            acted,
        })
    }

    /// Returns the shortest protected beginning of a path.
    pub fn protected(&self, path: &Path) -> Option<PathBuf> {
        let names: Vec<&OsStr> = path.iter().collect();
        self.protected
            .beginning(&names, 0)
            .map(|names| names.iter().collect())
    }
}

impl CopyRules {
    /// Returns the shortest protected beginning of a path below the directory, relative to it.
    pub fn protected(&self, path: &Path) -> Option<PathBuf> {
        let whole = self.path.join(path);
        let names: Vec<&OsStr> = whole.iter().collect();
        let above = self.path.iter().count();
        let beginning = self.protected.beginning(&names, above)?;
        Some(beginning[above..].iter().collect())
    }

    /// Returns `true` if programs of the host act on a path below the directory, by the word of a protected entry.
    pub fn is_acted_on(&self, path: &Path) -> bool {
        self.acted.covers(path)
    }

    /// Returns `true` for a file or directory that is never replaced or entered.
    pub fn is_kept(&self, found: &Metadata) -> bool {
        self.kept.contains(&(found.dev(), found.ino()))
    }
}

/// Returns `true` for an entry that lies in a bare git repository or would turn its directory into one: git runs programs that
/// the repository's settings name. `is_there` tells whether the directory has an entry.
pub fn makes_repository(name: &OsStr, is_there: impl Fn(&OsStr) -> bool) -> bool {
    let is_there = |mark: &str| name.eq_ignore_ascii_case(mark) || is_there(OsStr::new(mark));
    let never = git::NEVER.iter().any(|never| name.eq_ignore_ascii_case(never));
    never || git::is_repository(is_there)
}

/// Returns the paths in a directory that programs of the host act on because its protected links, or the settings of git, lead
/// there.
fn acted_in(path: &Path, protected: &Protected) -> Result<ActedOn, Conflict> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let links = entries.filter(|entry| protected.ends(&[entry.file_name()]));
    let links: Vec<PathBuf> = links.map(|entry| entry.path()).collect();
    acted_on(path, &Acted::find(path, &links))
}
