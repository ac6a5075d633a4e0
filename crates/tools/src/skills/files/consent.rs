//! Records a person's consent to the demands of skills in directories that programs can write to.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use ringfence_exec::trust::{self, NamedPaths, ledger};
use ringfence_policy::{Remedy, remedy};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::beside::Beside;
use super::manifest::Manifest;
use super::{MAX_LENGTH, is_skill_file, text};

/// Maximum number of recorded directories. The oldest are evicted, and need consent again.
const MOST: usize = 256;

/// A person's consent to demands of skills, in a file of the state directory.
///
/// It applies to files that programs could ever write to, also by way of a link. Elsewhere a manifest is the
/// user's own.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    paths: NamedPaths,
    /// `None`: consent cannot be recorded.
    file: Option<PathBuf>,
}

/// Skill files of a directory by name, with the digest of the accepted demand.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DirectoryConsent {
    directory: PathBuf,
    files: BTreeMap<String, String>,
}

/// The demand of a skill file: as text, and as a digest that covers everything that receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Demand {
    words: String,
    /// `None`: no demand.
    digest: Option<String>,
    /// Resolved paths of all files that it was computed from.
    sources: Vec<PathBuf>,
}

impl Demand {
    /// Computes the demand of a file. Mounts and hosts are granted to the code and its imports, so the digest
    /// covers these. Rules count by themselves.
    pub(super) fn of(manifest: &Manifest, code: &str, source: &Path, beside: &Beside) -> Self {
        let own = manifest.source.iter().chain(&beside.sources).cloned();
        let sources = own.chain([source.to_owned()]).collect();
        let Some(asked) = manifest.demand() else {
            return Self {
                words: "nothing".to_owned(),
                digest: None,
                sources,
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
            sources,
        }
    }
}

impl Consent {
    /// Opens the record in a state directory. Files of skills are found by the rules of `paths`.
    pub fn at(state: &Path, paths: NamedPaths) -> Self {
        Self {
            paths,
            file: Some(state.join("skills.json")),
        }
    }

    /// Accepts the current demands of the files in a directory. Returns each file that has one, with its
    /// text.
    ///
    /// # Errors
    /// If the directory cannot be read, or the consent cannot be written.
    pub fn give(&self, directory: &Path) -> io::Result<Vec<(String, String)>> {
        let names = names(directory)?;
        let beside = Beside::of(directory, &names, &self.paths);
        let (mut seen, mut told) = (BTreeMap::new(), Vec::new());
        for file in names.into_iter().filter(|name| is_skill_file(name)) {
            // An unreadable file is not loaded either.
            let Ok(manifest) = Manifest::read(directory, &file, &self.paths) else {
                continue;
            };
            let Ok((code, source)) = text::of(&directory.join(&file), MAX_LENGTH, &self.paths) else {
                continue;
            };
            let demand = Demand::of(&manifest, &code, &source, &beside);
            if let Some(digest) = demand.digest {
                seen.insert(file.clone(), digest);
                told.push((file, demand.words));
            }
        }
        let seen = DirectoryConsent {
            directory: directory.to_owned(),
            files: seen,
        };
        if let Some(file) = &self.file {
            ledger::change(file, |all: &mut Vec<DirectoryConsent>| {
                all.retain(|known| known.directory != directory);
                all.insert(0, seen);
                all.truncate(MOST);
            })?;
        }
        Ok(told)
    }

    /// Accepts a directory if programs are about to get write access to it, or to the target of a link in it,
    /// for the first time. Until then its content is the user's own.
    ///
    /// # Errors
    /// If the directory cannot be read, or the consent cannot be written.
    pub fn give_before(&self, trees: &[&Path], directory: &Path) -> io::Result<()> {
        let sources = sources(directory)?;
        let opens = |path: &PathBuf| trees.iter().any(|tree| trust::holds(tree, path));
        if !sources.iter().any(opens) {
            return Ok(());
        }
        for source in &sources {
            if self.written(source)? {
                return Ok(());
            }
        }
        self.give(directory).map(drop)
    }

    /// Records directories that a skill of `directory` is about to get write access to.
    ///
    /// # Errors
    /// If the directory cannot be read, or the record cannot be written.
    pub(super) fn open(&self, trees: &[&Path], directory: &Path) -> io::Result<()> {
        self.give_before(trees, directory)?;
        self.paths.open_to_programs(trees)
    }

    /// Returns the rules by which files of skills are found.
    pub(super) fn paths(&self) -> &NamedPaths {
        &self.paths
    }

    /// Returns `true` if programs could ever write to a path, or in it.
    fn written(&self, path: &Path) -> io::Result<bool> {
        Ok(self.paths.written(&path.join("x"))?.is_some())
    }

    /// Checks that a file may be loaded with its demand.
    ///
    /// # Errors
    /// If a program may have written the demand since a person accepted it.
    pub(super) fn check(&self, directory: &Path, file: &str, demand: &Demand) -> Result<(), String> {
        let unknown = |error: io::Error| format!("it is not known what a person agreed to: {error}");
        let mut written = self.written(directory).map_err(unknown)?;
        for source in &demand.sources {
            written |= self.written(source).map_err(unknown)?;
        }
        let Some(record) = self.file.as_ref().filter(|_| written) else {
            return Ok(());
        };
        let all: Vec<DirectoryConsent> = ledger::read(record).map_err(unknown)?;
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
            "{change}, and programs could write to its files. It asks for {}: {}",
            demand.words,
            Remedy::from(remedy::Tool::AcceptSkills { command: None }).person()
        ))
    }
}

/// Returns the names of the entries of a directory, sorted.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names: Vec<String> = std::fs::read_dir(directory)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// Returns the directory, those in it, and the paths that the links in it lead to.
fn sources(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = names(directory)?.into_iter().map(|name| directory.join(name));
    let targets = paths.filter(|path| path.is_symlink() || path.is_dir());
    // A link that leads nowhere is not loaded.
    let targets = targets.filter_map(|path| Some(trust::resolve(&path).ok()?.path));
    Ok([directory.to_owned()].into_iter().chain(targets).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    use ringfence_exec::trust::Ledger;

    struct Scratch(tempfile::TempDir);

    impl Scratch {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            for name in ["state", "w/skills", "lib"] {
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
            let state = self.path("state");
            Consent::at(&state, NamedPaths::new(Ledger::at(&state), None))
        }

        /// Returns `true` if the current `a.py` may be loaded.
        fn check(&self) -> bool {
            let directory = self.path("w/skills");
            let paths = self.consent().paths;
            let manifest = Manifest::read(&directory, "a.py", &paths).unwrap();
            let (code, source) = text::of(&directory.join("a.py"), MAX_LENGTH, &paths).unwrap();
            let beside = Beside::of(&directory, &["_b.py".to_owned()], &paths);
            let demand = Demand::of(&manifest, &code, &source, &beside);
            self.consent().check(&directory, "a.py", &demand).is_ok()
        }

        fn open(&self) {
            self.open_tree("w");
        }

        fn open_tree(&self, name: &str) {
            let trees = [&*self.path(name)];
            self.consent()
                .give_before(&trees, &self.path("w/skills"))
                .unwrap();
            Ledger::at(&self.path("state")).add(&trees).unwrap();
        }
    }

    #[test]
    fn where_no_program_writes_nobody_is_asked() {
        let place = Scratch::new();
        place.put("a.toml", "mounts = ['/srv:/srv:rw']");
        assert!(place.check());
    }

    #[test]
    fn what_lay_there_before_programs_came_is_the_persons() {
        let place = Scratch::new();
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
        let place = Scratch::new();
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
        let place = Scratch::new();
        place.open();
        place.put("a.py", "two");
        assert!(place.check());
        place.put("a.toml", "mounts = ['/srv:/srv']");
        assert!(!place.check());
    }

    #[test]
    fn what_a_link_leads_to_counts() {
        for name in ["a.py", "a.toml", "_b.py"] {
            let place = Scratch::new();
            place.put("a.toml", "hosts = ['a.test']");
            place.put("_b.py", "one");
            fs::rename(place.path("w/skills").join(name), place.path("lib").join(name)).unwrap();
            symlink(place.path("lib").join(name), place.path("w/skills").join(name)).unwrap();
            let write = |text: &str| fs::write(place.path("lib").join(name), text).unwrap();
            // No program has written there.
            write("# own");
            place.put("a.toml", "hosts = ['a.test']");
            assert!(place.check(), "{name}");
            place.open_tree("lib");
            assert!(place.check(), "{name}");
            write("hosts = []");
            assert!(!place.check(), "{name}");
            place.open_tree("lib");
            assert!(!place.check(), "{name}");
        }
    }

    #[test]
    fn a_damaged_record_is_no_consent() {
        let place = Scratch::new();
        place.put("a.toml", "hosts = ['a.test']");
        place.open();
        fs::write(place.path("state/skills.json"), "{").unwrap();
        assert!(!place.check());
    }
}
