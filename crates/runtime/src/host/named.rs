//! Fingerprint of the files that a line names, to detect changes while it waits for approval.
//!
//! Every string that could be a word counts: examining a file too many does no harm. The files that its
//! programs read implicitly count, too, and those that scripts among them name. Names that a program computes
//! are unknown here.

mod look;
pub(super) mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use look::{Look, Stamp};

use super::{pattern, project};
use crate::audit::Digest;

/// The identities of the programs, files and directories that a line names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    found: BTreeMap<PathBuf, Stamp>,
    /// Set if scripts name more files than were examined.
    partial: bool,
}

/// The error for a line that names too many files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// Returns everything in a line that could be a word.
pub(super) fn words(line: &str) -> BTreeSet<String> {
    words::of(line, None)
}

/// Maximum number of directories examined, besides the working directory.
const MAX_DIRECTORIES: usize = 64;
/// Maximum number of files that a glob expands to.
const MAX_EXPANDED: usize = 5_000;
/// Depth to which scripts named by scripts are followed.
const MAX_FOLLOWED: usize = 3;
/// Maximum number of words of scripts examined.
const MAX_SCRIPT_WORDS: usize = 1_000;

impl Named {
    /// Examines everything that a line could name, given its working directory and the user's home.
    ///
    /// # Errors
    /// If there is too much to examine: after a partial examination, the rest could be changed unnoticed.
    pub(crate) fn by(line: &str, directory: &Path, home: Option<&Path>) -> Result<Self, TooMuch> {
        let words = words::of(line, home);
        let mut look = Look::default();
        look.at(directory.to_path_buf())?;
        let mut directories = BTreeSet::from([directory.to_path_buf()]);
        for word in &words {
            let path = directory.join(word);
            // `cd` enters it, and so may any program.
            if look.at(path.clone())? && directories.insert(path) && directories.len() > MAX_DIRECTORIES + 1 {
                return Err(TooMuch);
            }
        }
        for word in &words {
            look.on_path(Path::new(word))?;
            let spellings = project::spellings(word);
            let patterns = words::patterns(word);
            for directory in &directories {
                for word in &spellings {
                    look.at(directory.join(word))?;
                }
                for pattern in &patterns {
                    look.all(pattern::expand(&directory.join(pattern), MAX_EXPANDED))?;
                }
            }
        }
        for directory in &directories {
            look.all(project::files(line, directory))?;
        }
        let partial = follow(&mut look, directory, home);
        Ok(Self {
            found: look.found(),
            partial,
        })
    }

    /// Returns the digest of all identities.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(format!("{:?}", self.found).as_bytes())
    }

    /// Returns the digest of the files' contents; `None` if the line names no file except system programs.
    pub(crate) fn contents(&self) -> Option<Digest> {
        let files: Vec<_> = self
            .found
            .iter()
            .filter(|(path, _)| !look::is_systems(path))
            .filter_map(|(path, stamp)| Some((path, stamp.content()?)))
            .collect();
        (!files.is_empty()).then(|| Digest::of(format!("{files:?}").as_bytes()))
    }

    /// Returns `true` if the scripts name more files than were examined.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial
    }

    /// Returns the first path that differs.
    pub(crate) fn changed_since(&self, before: &Self) -> Option<PathBuf> {
        let mut all = before.found.keys().chain(self.found.keys());
        let changed = |path: &&PathBuf| before.found.get(*path) != self.found.get(*path);
        all.find(changed).cloned()
    }
}

/// Examines the files that named scripts and settings name in turn. Returns `true` if a limit was reached.
fn follow(look: &mut Look, directory: &Path, home: Option<&Path>) -> bool {
    let mut pending = look.scripts();
    let mut followed = BTreeSet::new();
    let mut left = MAX_SCRIPT_WORDS;
    for _ in 0..MAX_FOLLOWED {
        let mut next = Vec::new();
        for path in std::mem::take(&mut pending) {
            let Some(text) = look.script(&path).filter(|_| followed.insert(path.clone())) else {
                continue;
            };
            let beside = path.parent().unwrap_or(directory).to_path_buf();
            for word in words::of(&project::naming(&text), home) {
                if left == 0 {
                    return true;
                }
                left -= 1;
                for word in project::spellings(&word) {
                    for place in [directory, &beside] {
                        let path = place.join(&word);
                        if look.at(path.clone()).is_err() {
                            return true;
                        }
                        next.push(path);
                    }
                }
            }
        }
        pending = next;
    }
    false
}

#[cfg(test)]
mod tests;
