//! Records a person's consent to the demands of skills in directories that programs can write to.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::beside::Beside;
use super::manifest::Manifest;
use super::{MAX_LENGTH, is_skill_file, text};
use crate::trust::{Ledger, ledger};

/// Maximum number of recorded directories. The oldest are evicted, and need consent again.
const MOST: usize = 256;

/// A person's consent to demands of skills, in a file of the state directory.
///
/// It applies to directories that programs could ever write to. Elsewhere a manifest is the user's own.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    opened: Ledger,
    /// `None`: consent cannot be recorded.
    file: Option<PathBuf>,
}

/// Skill files of a directory by name, with the digest of the accepted demand.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Seen {
    directory: PathBuf,
    files: BTreeMap<String, String>,
}

/// The demand of a skill file: as text, and as a digest that covers everything that receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Demand {
    words: String,
    /// `None`: no demand.
    digest: Option<String>,
}

impl Demand {
    /// Computes the demand of a file. Mounts and hosts are granted to the code and its imports, so the digest
    /// covers these. Rules count by themselves.
    pub(super) fn of(manifest: &Manifest, code: &str, beside: &Beside) -> Self {
        let Some(asked) = manifest.demand() else {
            return Self {
                words: "nothing".to_owned(),
                digest: None,
            };
        };
        let mut hasher = Sha256::new();
        let mut add = |text: &str| {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        };
        add(&asked.exact);
        if asked.gives {
            add(code);
            for (name, text) in &beside.modules {
                add(name);
                add(text);
            }
        }
        let digest = hasher.finalize();
        Self {
            words: asked.words,
            digest: Some(digest.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }
}

impl Consent {
    /// Opens the record in a state directory.
    pub fn at(state: &Path) -> Self {
        Self {
            opened: Ledger::at(state),
            file: Some(state.join("skills.json")),
        }
    }

    /// Accepts the current demands of the files in a directory. Returns each file that has one, with its
    /// text.
    ///
    /// # Errors
    /// If the directory cannot be read, or the consent cannot be written.
    pub fn give(&self, directory: &Path) -> io::Result<Vec<(String, String)>> {
        let mut names: Vec<String> = std::fs::read_dir(directory)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        let beside = Beside::of(directory, &names);
        let (mut seen, mut told) = (BTreeMap::new(), Vec::new());
        for file in names.into_iter().filter(|name| is_skill_file(name)) {
            // An unreadable file is not loaded either.
            let Ok(manifest) = Manifest::read(directory, &file) else {
                continue;
            };
            let Ok(code) = text::of(&directory.join(&file), MAX_LENGTH) else {
                continue;
            };
            let demand = Demand::of(&manifest, &code, &beside);
            if let Some(digest) = demand.digest {
                seen.insert(file.clone(), digest);
                told.push((file, demand.words));
            }
        }
        let seen = Seen {
            directory: directory.to_owned(),
            files: seen,
        };
        if let Some(file) = &self.file {
            ledger::change(file, |all: &mut Vec<Seen>| {
                all.retain(|known| known.directory != directory);
                all.insert(0, seen);
                all.truncate(MOST);
            })?;
        }
        Ok(told)
    }

    /// Accepts a directory that programs are about to get write access to for the first time: until then its
    /// content is the user's own.
    ///
    /// # Errors
    /// If the directory cannot be read, or the consent cannot be written.
    pub fn give_before(&self, trees: &[&Path], directory: &Path) -> io::Result<()> {
        let opens = trees.iter().any(|tree| crate::trust::holds(tree, directory));
        if !opens || self.opened.around(&directory.join("x"))?.is_some() {
            return Ok(());
        }
        self.give(directory).map(drop)
    }

    /// Records directories that a skill of `directory` is about to get write access to.
    ///
    /// # Errors
    /// If the directory cannot be read, or the record cannot be written.
    pub(super) fn open(&self, trees: &[&Path], directory: &Path) -> io::Result<()> {
        self.give_before(trees, directory)?;
        self.opened.add(trees)
    }

    /// Checks that a file may be loaded with its demand.
    ///
    /// # Errors
    /// If a program may have written the demand since a person accepted it.
    pub(super) fn check(&self, directory: &Path, file: &str, demand: &Demand) -> Result<(), String> {
        let unknown = |error: io::Error| format!("it is not known what a person agreed to: {error}");
        let written = self.opened.around(&directory.join(file)).map_err(unknown)?;
        let (Some(_), Some(record)) = (written, &self.file) else {
            return Ok(());
        };
        let all: Vec<Seen> = ledger::read(record).map_err(unknown)?;
        let seen = all.iter().find(|seen| seen.directory == directory);
        let seen = seen.and_then(|seen| seen.files.get(file));
        if seen == demand.digest.as_ref() {
            return Ok(());
        }
        let change = match seen {
            Some(_) => "it has changed, or what it asks for has, since you agreed",
            None => "you have not agreed to what it asks for",
        };
        Err(format!(
            "{change}, and programs could write in its directory. It asks for {}: look at it, and run `ringfence skills accept`",
            demand.words
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            for name in ["state", "w/skills"] {
                fs::create_dir_all(place.path(name)).unwrap();
            }
            place.put("a.py", "one");
            place
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn put(&self, name: &str, text: &str) {
            fs::write(self.path("w/skills").join(name), text).unwrap();
        }

        fn consent(&self) -> Consent {
            Consent::at(&self.path("state"))
        }

        /// Returns `true` if the current `a.py` may be loaded.
        fn check(&self) -> bool {
            let directory = self.path("w/skills");
            let manifest = Manifest::read(&directory, "a.py").unwrap();
            let code = fs::read_to_string(directory.join("a.py")).unwrap();
            let beside = Beside::of(&directory, &["_b.py".to_owned()]);
            let demand = Demand::of(&manifest, &code, &beside);
            self.consent().check(&directory, "a.py", &demand).is_ok()
        }

        fn open(&self) {
            let trees = [&*self.path("w")];
            self.consent()
                .give_before(&trees, &self.path("w/skills"))
                .unwrap();
            Ledger::at(&self.path("state")).add(&trees).unwrap();
        }
    }

    #[test]
    fn where_no_program_writes_nobody_is_asked() {
        let place = Place::new();
        place.put("a.toml", "mounts = ['/srv:/srv:rw']");
        assert!(place.check());
    }

    #[test]
    fn what_lay_there_before_programs_came_is_the_persons() {
        let place = Place::new();
        place.put("a.toml", "hosts = ['a.test']");
        place.put("_b.py", "one");
        place.open();
        assert!(place.check());
        place.open();
        for (name, text) in [
            ("a.py", "two"),
            ("a.toml", "hosts = ['b.test']"),
            ("_b.py", "two"),
        ] {
            place.put(name, text);
            assert!(!place.check(), "{name}");
            place.open();
            assert!(!place.check(), "{name}");
            place.consent().give(&place.path("w/skills")).unwrap();
            assert!(place.check(), "{name}");
        }
    }

    #[test]
    fn rules_count_without_the_code_and_their_end_counts_too() {
        let place = Place::new();
        place.put("a.toml", "[policy]\n'A.x' = 'ask'");
        place.open();
        place.put("a.py", "two");
        assert!(place.check());
        place.put("a.toml", "[policy]\n'A.x' = 'notify'");
        assert!(!place.check());
        fs::remove_file(place.path("w/skills/a.toml")).unwrap();
        assert!(!place.check());
    }

    #[test]
    fn a_file_that_asks_for_nothing_is_free() {
        let place = Place::new();
        place.open();
        place.put("a.py", "two");
        assert!(place.check());
        place.put("a.toml", "mounts = ['/srv:/srv']");
        assert!(!place.check());
    }

    #[test]
    fn a_damaged_record_is_no_consent() {
        let place = Place::new();
        place.put("a.toml", "hosts = ['a.test']");
        place.open();
        fs::write(place.path("state/skills.json"), "{").unwrap();
        assert!(!place.check());
    }
}
