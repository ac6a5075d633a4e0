//! What stands behind the words of a line, and that it is the same still.
//!
//! Every run of characters that could be a word counts, wherever it stands: looking at a file too much does no harm. What a
//! program reads without being told to by the line is not known here, nor what a pattern or a variable will stand for.

mod look;
pub(super) mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use look::{Look, Stamp};

use crate::audit::Digest;

/// What stands behind the words of a line: programs on the path, files and directories.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named(BTreeMap<PathBuf, Stamp>);

/// The line names more than can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMuch;

/// Everything in a line that could be a word of it.
pub(super) fn words(line: &str) -> BTreeSet<String> {
    words::of(line, None)
}

/// In how many directories is looked, besides the one where the line starts.
const MAX_DIRECTORIES: usize = 64;

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
        for word in words.iter().map(Path::new) {
            look.on_path(word)?;
            for directory in &directories {
                look.at(directory.join(word))?;
            }
        }
        Ok(Self(look.found()))
    }

    /// What all of it is, in short.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(format!("{:?}", self.0).as_bytes())
    }

    /// The first path that is not what it was.
    pub(crate) fn changed_since(&self, before: &Self) -> Option<PathBuf> {
        let mut all = before.0.keys().chain(self.0.keys());
        let changed = |path: &&PathBuf| before.0.get(*path) != self.0.get(*path);
        all.find(changed).cloned()
    }
}

#[cfg(test)]
mod tests;
