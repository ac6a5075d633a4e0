//! A ledger of the host directories that programs were allowed to write, so that links in them count as
//! theirs.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum number of directories. Beyond it, directories with a common parent are replaced by the parent.
/// None is dropped, because files that a program planted would then count as the person's.
const MOST: usize = 1024;

/// The directories that programs of this user were ever allowed to write, in a file of the state directory.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Ledger {
    /// `None`: nothing is stored.
    file: Option<PathBuf>,
}

/// A directory by its path, and by device, inode and birth: it may be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Opened {
    path: PathBuf,
    /// Device and inode. `None`: it does not exist yet.
    identity: Option<(u64, u64)>,
    /// Time of the directory's creation in nanoseconds, where the file system keeps it: inodes are used
    /// again.
    #[serde(default)]
    born: Option<u64>,
    /// Set if the entry represents some of the directories below it: no program could write to all of it.
    #[serde(default = "in_parts")]
    parts: bool,
    /// The `.git` at the directory's top, if it existed before any program could write here, and no program
    /// could change it since.
    #[serde(default)]
    git: Option<GitEntry>,
}

/// A `.git` by device, inode and birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct GitEntry(u64, u64, u64);

impl GitEntry {
    /// Returns the `.git` of a directory. `None` for a link, for a file with another name, and where the file
    /// system has no creation times, since inodes are reused.
    fn of(directory: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(directory.join(".git")).ok()?;
        let is_own = found.is_dir() || (found.is_file() && found.nlink() == 1);
        Some(Self(found.dev(), found.ino(), born(&found)?)).filter(|_| is_own)
    }
}

/// The protection of a recorded directory from its programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Programs may write, except protected names at the top.
    Workspace,
    /// Programs may write everywhere.
    Writable,
    /// Represents several recorded directories below.
    Shared,
}

/// Returns the default for an entry without this member.
const fn in_parts() -> bool {
    true
}

impl Opened {
    fn of(path: &Path, parts: bool) -> Self {
        let found = fs::metadata(path).ok();
        Self {
            path: path.to_owned(),
            identity: found.as_ref().map(|found| (found.dev(), found.ino())),
            born: found.as_ref().and_then(born),
            parts,
            git: None,
        }
    }

    /// Returns `true` if this entry covers everything that the other one does.
    fn supersedes(&self, other: &Self) -> bool {
        let is_same = self.identity == other.identity && (other.born.is_none() || self.born == other.born);
        self.path == other.path && (other.identity.is_none() || is_same) && (self.parts || !other.parts)
    }

    /// Returns `true` if a directory of this path is, or was, the one of this entry.
    fn is(&self, directory: &Self) -> bool {
        let is_born = || self.born.is_none() || directory.born.is_none() || self.born == directory.born;
        let is_same = self.identity.is_some() && self.identity == directory.identity && is_born();
        self.path == directory.path || is_same
    }
}

fn born(found: &Metadata) -> Option<u64> {
    let since = found.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    since.as_nanos().try_into().ok()
}

/// Replaces directories by their common parent until there are few enough.
fn merge(all: &mut Vec<Opened>) {
    while all.len() > MOST {
        let mut below: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for parent in all.iter().filter_map(|opened| opened.path.parent()) {
            *below.entry(parent.to_owned()).or_default() += 1;
        }
        // Of parents with equally many, the deepest.
        let depth = |path: &Path| path.components().count();
        let most = below
            .into_iter()
            .max_by_key(|(path, number)| (*number, depth(path)));
        let Some((parent, _)) = most else { return };
        let parent = Opened::of(&parent, true);
        all.retain(|opened| opened.path.parent() != Some(&parent.path) && !parent.supersedes(opened));
        all.push(parent);
    }
}

impl Ledger {
    /// Returns the ledger of a state directory.
    pub fn at(state: &Path) -> Self {
        Self {
            file: Some(state.join("opened.json")),
        }
    }

    /// Adds directories that a program is about to get write access to, or that its files are delivered to.
    /// They need not exist yet.
    ///
    /// # Errors
    /// If one cannot be resolved, or the ledger cannot be read or written.
    pub fn add(&self, directories: &[&Path]) -> io::Result<()> {
        self.note(directories, Kind::Writable)
    }

    /// Adds a workspace, whose `.git` is read-only for its programs if it exists by now.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_workspace(&self, directory: &Path) -> io::Result<()> {
        self.note(&[directory], Kind::Workspace)
    }

    /// Adds directories that represent those below them. A program may write to one of these.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_shared(&self, directories: &[&Path]) -> io::Result<()> {
        self.note(directories, Kind::Shared)
    }

    fn note(&self, directories: &[&Path], kind: Kind) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut new = Vec::with_capacity(directories.len());
        for directory in directories {
            let path = super::resolve::resolve(directory)?.path;
            let git = GitEntry::of(&path).filter(|_| kind == Kind::Workspace);
            new.push(Opened {
                git,
                ..Opened::of(&path, kind == Kind::Shared)
            });
        }
        let known: Vec<Opened> = read(file)?;
        let claims =
            |known: &Opened, new: &Opened| known.is(new) && known.git.is_some() && known.git != new.git;
        new.retain(|new| {
            !known.iter().any(|known| known.supersedes(new)) || known.iter().any(|known| claims(known, new))
        });
        if new.is_empty() {
            return Ok(());
        }
        change(file, |all: &mut Vec<Opened>| {
            for new in &mut new {
                new.parts |= all.iter().any(|known| known.parts && known.path == new.path);
                // What was not protected from the first program on is anybody's.
                let mut same = all.iter().filter(|known| known.is(new));
                if same.any(|known| known.git != new.git) {
                    new.git = None;
                }
                let same = all.iter_mut().filter(|known| known.is(new));
                same.for_each(|known| known.git = new.git);
            }
            all.retain(|known| !new.iter().any(|new| new.supersedes(known)));
            all.extend(new);
            merge(all);
        })
    }

    /// Returns the recorded directory that a path lies in, if any.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn around(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        Ok(self.nearest(path)?.map(|found| found.path))
    }

    /// Returns the recorded directory in which a program may have made a git repository, of which this is the
    /// `.git`, or a path in it. None if each directory around it protected that `.git` from the first program on.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub fn around_git(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let Some(file) = &self.file else { return Ok(None) };
        let all: Vec<Opened> = read(file)?;
        let made = |above: &&Path| {
            let here = Opened::of(above, false);
            let own = GitEntry::of(above).filter(|_| path.starts_with(above.join(".git")));
            let is_protected = |known: &Opened| own.is_some() && known.git == own && !known.parts;
            let mut known = all.iter().filter(|known| known.is(&here));
            known.any(|known| !is_protected(known))
        };
        Ok(path.ancestors().skip(1).find(made).map(Path::to_path_buf))
    }

    /// Returns the recorded directory that a path lies in, if each program that could write the path could
    /// write all of that directory.
    ///
    /// # Errors
    /// If the ledger cannot be read.
    pub(super) fn whole_around(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let found = self.nearest(path)?.filter(|found| !found.parts);
        Ok(found.map(|found| found.path))
    }

    /// Returns the innermost recorded directory that a path lies in.
    fn nearest(&self, path: &Path) -> io::Result<Option<Opened>> {
        let Some(file) = &self.file else { return Ok(None) };
        let known: Vec<Opened> = read(file)?;
        let mut above = path.ancestors().skip(1).map(|above| Opened::of(above, false));
        Ok(above.find_map(|mut above| {
            let mut entries = known.iter().filter(|known| known.is(&above)).peekable();
            entries.peek()?;
            above.parts = entries.any(|known| known.parts);
            Some(above)
        }))
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

/// Reads a state file; a missing one is empty. A damaged file is an error, since no other program writes it.
pub fn read<T: DeserializeOwned + Default>(file: &Path) -> io::Result<T> {
    match File::open(file) {
        Ok(file) => serde_json::from_reader(io::BufReader::new(file)).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error),
    }
}

/// Updates a state file atomically.
///
/// # Errors
/// If it cannot be read or written.
pub fn change<T: DeserializeOwned + Default + Serialize>(
    file: &Path,
    change: impl FnOnce(&mut T),
) -> io::Result<()> {
    // Concurrent processes must not overwrite each other's changes.
    let state = File::open(file.parent().unwrap_or(Path::new("/")))?;
    state.lock()?;
    let mut all: T = read(file)?;
    change(&mut all);
    let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
    let written = serde_json::to_vec(&all)
        .map_err(io::Error::other)
        .and_then(|bytes| io::Write::write_all(&mut options().open(&temporary)?, &bytes))
        .and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_known_by_name_and_by_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["state", "one/below", "two", "three"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let ledger = Ledger::at(&path("state"));
        let around = |name: &str| ledger.around(&path(name)).unwrap();
        assert_eq!(around("one/below/link"), None);
        ledger.add(&[&path("one"), &path("none")]).unwrap();
        ledger.add(&[&path("two"), &path("one")]).unwrap();
        assert_eq!(around("one/below/link"), Some(path("one")));
        assert_eq!(around("one"), None);
        fs::rename(path("two"), path("moved")).unwrap();
        assert_eq!(around("moved/link"), Some(path("moved")));
        assert_eq!(around("three/link"), None);
        // Recorded before it existed.
        assert_eq!(around("none/link"), Some(path("none")));
        assert_eq!(Ledger::default().around(&path("one/link")).unwrap(), None);
    }

    #[test]
    fn an_inode_that_is_used_again_is_another_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["state", "one", "other"] {
            fs::create_dir(path(name)).unwrap();
        }
        let ledger = Ledger::at(&path("state"));
        let store = |born: Option<u64>| {
            let opened = Opened {
                path: path("gone"),
                born,
                ..Opened::of(&path("other"), false)
            };
            fs::write(path("state/opened.json"), serde_json::to_vec(&[opened]).unwrap()).unwrap();
        };
        let own = Opened::of(&path("other"), false).born;
        assert!(own.is_some());
        for (born, expected) in [
            (own, Some(path("other"))),
            (None, Some(path("other"))),
            (Some(1), None),
        ] {
            store(born);
            assert_eq!(ledger.around(&path("other/x")).unwrap(), expected, "{born:?}");
        }
    }

    #[test]
    fn a_repository_that_a_program_could_have_made_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in [
            "state",
            "own/.git/sub",
            "own/src",
            "none",
            "mounted/.git",
            "outer/in/.git",
            "far/.git",
        ] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let ledger = Ledger::at(&path("state"));
        let made = |name: &str| ledger.around_git(&path(name)).unwrap().is_some();
        for name in ["own", "none", "outer/in"] {
            ledger.add_workspace(&path(name)).unwrap();
            ledger.add_workspace(&path(name)).unwrap();
        }
        assert!(!made("own/.git"));
        assert!(!made("own/.git/sub"));
        assert!(!made("outer/in/.git"));
        assert!(!made("far/.git"));
        // Below its top directory, and where none was, a workspace protects no repository.
        assert!(made("own/src/.git"));
        fs::create_dir(path("none/.git")).unwrap();
        ledger.add_workspace(&path("none")).unwrap();
        assert!(made("none/.git"));
        // A mount protects none, nor does a workspace around.
        ledger.add(&[&path("mounted")]).unwrap();
        ledger.add_workspace(&path("mounted")).unwrap();
        assert!(made("mounted/.git"));
        ledger.add_workspace(&path("outer")).unwrap();
        assert!(made("outer/in/.git"));
        // Another one than was there.
        fs::rename(path("own/.git"), path("own/old")).unwrap();
        fs::create_dir(path("own/.git")).unwrap();
        assert!(made("own/.git"));
        ledger.add_workspace(&path("own")).unwrap();
        assert!(made("own/.git"));
        fs::remove_dir(path("own/.git")).unwrap();
        fs::rename(path("own/old"), path("own/.git")).unwrap();
        assert!(made("own/.git"));
        // Writable as a mount since.
        ledger.add_workspace(&path("far")).unwrap();
        assert!(!made("far/.git"));
        ledger.add(&[&path("far")]).unwrap();
        assert!(made("far/.git"));
        assert_eq!(Ledger::default().around_git(&path("none/.git")).unwrap(), None);
    }

    #[test]
    fn a_shared_directory_is_not_written_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["state", "shared/a/inner", "whole"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let ledger = Ledger::at(&path("state"));
        let whole = |name: &str| ledger.whole_around(&path(name)).unwrap();
        ledger.add_shared(&[&path("shared")]).unwrap();
        ledger.add(&[&path("whole"), &path("shared/a/inner")]).unwrap();
        assert_eq!(whole("whole/x"), Some(path("whole")));
        assert_eq!(whole("shared/a/inner/x"), Some(path("shared/a/inner")));
        assert_eq!(whole("shared/a/x"), None);
        assert_eq!(ledger.around(&path("shared/a/x")).unwrap(), Some(path("shared")));
        // Once shared, always shared.
        ledger.add(&[&path("shared")]).unwrap();
        assert_eq!(whole("shared/a/x"), None);
        let many: Vec<PathBuf> = (0..2 * MOST)
            .map(|number| path("many").join(number.to_string()))
            .collect();
        ledger
            .add(&many.iter().map(PathBuf::as_path).collect::<Vec<_>>())
            .unwrap();
        assert_eq!(whole("many/1/x"), None);
    }

    #[test]
    fn none_is_ever_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["state", "first"] {
            fs::create_dir(path(name)).unwrap();
        }
        let ledger = Ledger::at(&path("state"));
        ledger.add(&[&path("first")]).unwrap();
        let many: Vec<PathBuf> = (0..2 * MOST)
            .map(|number| path("many").join(number.to_string()))
            .collect();
        for some in many.chunks(MOST / 2) {
            ledger
                .add(&some.iter().map(PathBuf::as_path).collect::<Vec<_>>())
                .unwrap();
        }
        assert_eq!(ledger.around(&path("first/x")).unwrap(), Some(path("first")));
        assert!(
            many.iter()
                .all(|one| ledger.around(&one.join("x")).unwrap().is_some())
        );
        assert_eq!(ledger.around(&path("other/x")).unwrap(), None);
        assert!(read::<Vec<Opened>>(&path("state/opened.json")).unwrap().len() <= MOST);
    }

    #[test]
    fn what_is_damaged_is_no_empty_list() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::at(dir.path());
        fs::write(dir.path().join("opened.json"), "{").unwrap();
        assert!(ledger.around(&dir.path().join("x/y")).is_err());
        assert!(ledger.add(&[dir.path()]).is_err());
    }
}
