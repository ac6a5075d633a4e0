//! What stands behind the words of a line, and that it is the same still.
//!
//! Every run of characters that could be a word counts, wherever it stands: looking at a file too much does no harm. So do the
//! files that its programs read of a project, and what scripts among them name. What a program computes is not known here.

mod look;
pub(super) mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use look::{Look, Stamp};

use super::{pattern, project};
use crate::audit::Digest;

/// What stands behind the words of a line: programs on the path, files and directories.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    found: BTreeMap<PathBuf, Stamp>,
    /// Whether more is named by its scripts than was looked at.
    partial: bool,
}

/// The line names more than can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// Everything in a line that could be a word of it.
pub(super) fn words(line: &str) -> BTreeSet<String> {
    words::of(line, None)
}

/// In how many directories is looked, besides the one where the line starts.
const MAX_DIRECTORIES: usize = 64;
/// How many files a pattern stands for at most.
const MAX_EXPANDED: usize = 5_000;
/// How often a script that is named may name another.
const MAX_FOLLOWED: usize = 3;
/// How many words of scripts are looked at.
const MAX_SCRIPT_WORDS: usize = 1_000;

impl Named {
    /// Looks at everything that a line could name, where it starts in `directory` and the user's home is `home`.
    ///
    /// # Errors
    /// If that is too much to look at: what was looked at in part could be changed in the rest.
    pub(crate) fn by(line: &str, directory: &Path, home: Option<&Path>) -> Result<Self, TooMuch> {
        let words = words::of(line, home);
        let mut look = Look::default();
        look.at(directory.to_path_buf())?;
        let mut directories = BTreeSet::from([directory.to_path_buf()]);
        for word in &words {
            let path = directory.join(word);
            // `cd` goes there, and so may any program.
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

    /// What all of it is, in short.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(format!("{:?}", self.found).as_bytes())
    }

    /// What its files hold, in short; none if it names no file but programs of the system.
    pub(crate) fn contents(&self) -> Option<Digest> {
        let files: Vec<_> = self
            .found
            .iter()
            .filter(|(path, _)| !look::is_systems(path))
            .filter_map(|(path, stamp)| Some((path, stamp.content()?)))
            .collect();
        (!files.is_empty()).then(|| Digest::of(format!("{files:?}").as_bytes()))
    }

    /// Whether its scripts name more than was looked at.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial
    }

    /// The first path that is not what it was.
    pub(crate) fn changed_since(&self, before: &Self) -> Option<PathBuf> {
        let mut all = before.found.keys().chain(self.found.keys());
        let changed = |path: &&PathBuf| before.found.get(*path) != self.found.get(*path);
        all.find(changed).cloned()
    }
}

/// Looks at what scripts and settings name that are named. Whether that was too much.
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
