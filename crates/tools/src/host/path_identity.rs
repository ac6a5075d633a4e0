//! Fingerprint of the files that a line names, to detect changes while it waits for approval.
//!
//! Every string that could be a word counts: examining a file too many does no harm. The settings that its
//! programs read implicitly count, too, and the paths that scripts among these name. For a line that runs
//! code, all files count from which its programs could load more: see [`tree`].

mod look;
mod references;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) use look::TooMuch;
use look::{Examination, Stamp};
use tree::{Leaf, is_systems};

use super::line_directory::{LineDirectory, is_broad};
use super::{project, tokens};
use ringfence_exec::trust::glob;
use ringfence_records::audit::Digest;

/// The identities of the programs, files and directories that a line names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathIdentity {
    found: BTreeMap<PathBuf, Stamp>,
    /// The files from which its programs could load code.
    loaded: BTreeMap<PathBuf, Leaf>,
    /// Set if scripts name, or programs could load, more files than were examined.
    partial: bool,
}

/// Reason shown in a question if the line's files cannot all be watched.
pub(crate) const PARTIAL: &str = "it could run more files than can be watched, so a yes holds once";

/// Maximum number of directories examined, besides the working directory.
const MAX_DIRECTORIES: usize = 64;
/// Maximum number of files that a glob expands to.
const MAX_EXPANDED: usize = 5_000;
/// Depth to which scripts named by scripts are followed.
const MAX_FOLLOWED: usize = 3;
/// Maximum number of words of scripts examined.
const MAX_SCRIPT_WORDS: usize = 1_000;

impl PathIdentity {
    /// Examines everything that a line could name and, if it runs code, everything that it could load.
    ///
    /// # Errors
    /// If there is too much to examine: after a partial examination, the rest could be changed unnoticed.
    pub(crate) fn by(line: &str, runs_code: bool, place: &LineDirectory) -> Result<Self, TooMuch> {
        let (directory, home) = (&place.directory, place.home.as_deref());
        let words = tokens::of(line, home);
        let mut look = Examination::default();
        // More than are examined: what is not examined cannot be bound to an answer that lasts.
        let mut truncated = false;
        look.at(directory.clone())?;
        let mut directories = BTreeSet::from([directory.clone()]);
        for word in &words {
            let path = directory.join(word);
            // `cd` enters it, and so may any program.
            if look.at(path.clone())? && directories.insert(path) && directories.len() > MAX_DIRECTORIES + 1 {
                return Err(TooMuch);
            }
        }
        for word in &words {
            look.on_path(Path::new(word))?;
            let patterns = tokens::patterns(word);
            for directory in &directories {
                look.at(directory.join(word))?;
                for pattern in &patterns {
                    let found = glob::expand(&directory.join(pattern), MAX_EXPANDED);
                    truncated |= found.truncated;
                    look.all(found.paths)?;
                }
            }
        }
        let beside = look.files().filter_map(Path::parent).map(Path::to_path_buf);
        let mut roots: BTreeSet<PathBuf> = beside.chain(directories.iter().cloned()).collect();
        for directory in &directories {
            let files = project::files(line, directory);
            truncated |= files.truncated;
            look.all(files.paths)?;
        }
        let loads = runs_code || project::loads(line, place);
        if loads {
            // A name without its ending, and a file that the program is yet to find.
            let missing = words.iter().filter(|word| word.contains('/')).flat_map(|word| {
                let paths = directories.iter().map(move |directory| directory.join(word));
                paths.filter(|path| path.symlink_metadata().is_err())
            });
            let beside = missing.filter_map(|path| path.parent().map(Path::to_path_buf));
            roots.extend(beside.filter(|path| !is_broad(path, home)));
            for above in project::above(&place.directory, home) {
                let files = project::files(line, &above);
                truncated |= files.truncated;
                look.all(files.paths)?;
            }
        }
        let mut partial = follow(&mut look, place, &mut roots) | look.has_fifo() | truncated;
        let mut loaded = BTreeMap::new();
        if loads {
            roots.retain(|path| !is_systems(path));
            roots.extend([place.directory.clone(), project::root(line, place)]);
            let trees = tree::of(roots, place, project::names_git(line));
            partial |= trees.partial;
            loaded = trees.leaves;
        }
        Ok(Self {
            found: look.found(),
            loaded,
            partial,
        })
    }

    /// Returns the digest of all identities.
    pub(crate) fn digest(&self) -> Digest {
        let loaded = tree::digest_of(&self.loaded);
        Digest::of(format!("{:?} {loaded}", self.found).as_bytes())
    }

    /// Returns the digest of the files' contents; `None` if the line names no file except system programs.
    pub(crate) fn contents(&self) -> Option<Digest> {
        let files: Vec<_> = self
            .found
            .iter()
            .filter(|(path, _)| !look::is_systems(path))
            .filter_map(|(path, stamp)| Some((path, stamp.content()?)))
            .collect();
        let loaded = (!self.loaded.is_empty()).then(|| tree::digest_of(&self.loaded).to_string());
        let any = !files.is_empty() || loaded.is_some();
        let loaded = loaded.unwrap_or_default();
        any.then(|| Digest::of(format!("{files:?}{loaded}").as_bytes()))
    }

    /// Returns `true` if there are more files that the line could run than were examined.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial
    }

    /// Returns the first path that differs.
    pub(crate) fn changed_since(&self, before: &Self) -> Option<PathBuf> {
        let mut all = before.found.keys().chain(self.found.keys());
        let changed = |path: &&PathBuf| before.found.get(*path) != self.found.get(*path);
        let mut loaded = before.loaded.keys().chain(self.loaded.keys());
        let differs = |path: &&PathBuf| before.loaded.get(*path) != self.loaded.get(*path);
        all.find(changed).or_else(|| loaded.find(differs)).cloned()
    }
}

/// Examines the paths that named scripts and settings name in turn, and adds the directories in which these
/// are. Returns `true` if a limit was reached.
fn follow(look: &mut Examination, place: &LineDirectory, roots: &mut BTreeSet<PathBuf>) -> bool {
    let home = place.home.as_deref();
    let mut pending = look.scripts();
    let mut followed = BTreeSet::new();
    let mut left = MAX_SCRIPT_WORDS;
    for _ in 0..MAX_FOLLOWED {
        let mut next = Vec::new();
        for path in std::mem::take(&mut pending) {
            let Some(text) = look.script(&path).filter(|_| followed.insert(path.clone())) else {
                continue;
            };
            let beside = path.parent().unwrap_or(&place.directory).to_path_buf();
            roots.insert(beside.clone());
            for word in tokens::of(&project::naming(&text), home) {
                if left == 0 {
                    return true;
                }
                left -= 1;
                for start in [&place.directory, &beside] {
                    let path = start.join(&word);
                    match look.at(path.clone()) {
                        Ok(true) if !is_broad(&path, home) => _ = roots.insert(path),
                        Ok(_) => next.push(path),
                        Err(TooMuch) => return true,
                    }
                }
            }
        }
        pending = next;
    }
    pending
        .iter()
        .any(|path| !followed.contains(path) && look.script(path).is_some())
}

#[cfg(test)]
mod tests;
