//! Keeps a host directory and the `/output` of its programs alike, one program after the other.
//!
//! What earlier programs left is copied to a program's `/output` before it begins. Afterwards its changes are copied
//! back, and files that it removed are removed from the directory. A file is known by its [`Stamp`] on either side, so one that
//! nobody touched is neither copied nor reported again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::destination::{Destination, DirectoryId};
use super::output_files::{self, CollectedFiles};

/// The version of a file. A program cannot set the time of the last change (`st_ctime`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
    modified: (i64, i64),
}

impl Stamp {
    pub(super) fn of(file: &Metadata) -> Self {
        Self {
            inode: file.ino(),
            bytes: file.len(),
            changed: (file.ctime(), file.ctime_nsec()),
            modified: (file.mtime(), file.mtime_nsec()),
        }
    }
}

/// A file whose version is known.
#[derive(Debug, Clone, Copy)]
struct Shared {
    /// `None`: the program had it before it met the directory, and it is not the directory's.
    host: Option<Stamp>,
    guest: Stamp,
}

/// Directories that an exchange remembers. A session may be used in several conversations.
const MAX_DIRECTORIES: usize = 16;

/// The side that files are copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Guest,
}

/// The files that a program's `/output` shares with host directories.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The directory of the present program.
    current: Known,
    /// Those of before.
    others: BTreeMap<DirectoryId, Known>,
}

/// The files of one directory, by path.
#[derive(Debug, Default)]
struct Known {
    directory: Option<DirectoryId>,
    shared: BTreeMap<PathBuf, Shared>,
}

impl Exchange {
    /// Copies to a program's `/output` what the host directory has, and removes there what has gone from it. A file that
    /// the program has of its own stays. Returns warnings about what was not copied.
    pub(super) fn fill(
        &mut self,
        host: &Destination,
        output: io::Result<OwnedFd>,
        limit: u64,
    ) -> Vec<String> {
        let filled = host.identity().and_then(|directory| {
            let guest = Destination::in_cell(output?)?;
            if self.current.directory != Some(directory) {
                self.meet(directory, &guest);
            }
            Ok(self.copy(Side::Host, host.descriptor(), [host, &guest], limit))
        });
        match filled {
            Ok(filled) => filled.warnings.iter().map(|why| not_filled(why)).collect(),
            Err(error) => vec![not_filled(&error.to_string())],
        }
    }

    /// Copies to the host directory what the program changed in its `/output`, and removes there what it removed.
    pub(super) fn collect(
        &mut self,
        output: io::Result<OwnedFd>,
        host: &Destination,
        limit: u64,
    ) -> CollectedFiles {
        self.copy(Side::Guest, output, [host, host], limit)
    }

    fn copy(
        &mut self,
        from: Side,
        source: io::Result<OwnedFd>,
        [host, to]: [&Destination; 2],
        limit: u64,
    ) -> CollectedFiles {
        let mut copying = Copying {
            exchange: self,
            host,
            from,
            seen: BTreeSet::new(),
        };
        let mut copied = output_files::copy(source, to, limit, &mut copying);
        // What was not looked at is not known to be gone.
        if copied.warnings.is_empty() {
            let gone = copying.gone();
            let failed = gone.iter().filter_map(|(path, stamp)| {
                let error = to.remove(path, *stamp).err()?;
                Some(format!("{} could not be removed: {error}", path.display()))
            });
            copied.warnings.extend(failed);
        }
        copied
    }

    /// Turns to a directory. What the program has made since it turned away, or has when it meets one for the first time, is
    /// not the directory's.
    fn meet(&mut self, directory: DirectoryId, guest: &Destination) {
        let mut known = self.others.remove(&directory).unwrap_or_default();
        known.directory = Some(directory);
        for (path, own) in files_of(guest) {
            let is_shared = |shared: &Shared| shared.guest == own.guest;
            if !known.shared.get(&path).is_some_and(is_shared) {
                known.shared.insert(path, own);
            }
        }
        let before = std::mem::replace(&mut self.current, known);
        if let Some(directory) = before.directory {
            if self.others.len() >= MAX_DIRECTORIES {
                self.others.clear();
            }
            self.others.insert(directory, before);
        }
    }

    /// Returns `true` if the sides share nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.current.shared.is_empty()
    }
}

/// Returns the files that a program has, as its own.
fn files_of(guest: &Destination) -> BTreeMap<PathBuf, Shared> {
    let found = output_files::collect_from(guest.descriptor(), None, 0).files;
    let own = found.into_iter().filter_map(|file| {
        let path = PathBuf::from(file.path);
        let guest = guest.stamp(&path)?;
        Some((path, Shared { host: None, guest }))
    });
    own.collect()
}

/// A copy from one side of an exchange to the other.
#[derive(Debug)]
pub(super) struct Copying<'a> {
    exchange: &'a mut Exchange,
    host: &'a Destination,
    from: Side,
    /// The shared files that the source still has.
    seen: BTreeSet<PathBuf>,
}

impl Copying<'_> {
    /// Returns `true` if the host directory would not take back a file of this name.
    pub(super) fn protects(&self, path: &Path) -> bool {
        self.host.protects(path)
    }

    /// Returns `true` if a file of the source need not be copied: the destination has this version, or the program has one
    /// of its own.
    pub(super) fn skips(&mut self, path: &Path, found: &Metadata, to: &Destination) -> bool {
        let shared = self.exchange.current.shared.get(path);
        if shared.is_some() {
            self.seen.insert(path.to_path_buf());
        }
        match self.from {
            Side::Guest => shared.is_some_and(|shared| shared.guest == Stamp::of(found)),
            Side::Host => match shared {
                Some(Shared { host: None, .. }) => true,
                Some(Shared { host, guest }) => {
                    *host == Some(Stamp::of(found)) || to.stamp(path) != Some(*guest)
                }
                None => to.stamp(path).is_some(),
            },
        }
    }

    /// Notes that both sides have a file now.
    pub(super) fn note(&mut self, path: &Path, found: &Metadata, placed: Stamp) {
        let found = Stamp::of(found);
        let (host, guest) = match self.from {
            Side::Host => (found, placed),
            Side::Guest => (placed, found),
        };
        self.seen.insert(path.to_path_buf());
        let host = Some(host);
        let shared = &mut self.exchange.current.shared;
        shared.insert(path.to_path_buf(), Shared { host, guest });
    }

    /// Removes the file that was where a directory of `path` is now, if the destination still has the shared version.
    pub(super) fn clear_way(&mut self, path: &Path, to: &Destination) -> bool {
        let shared = &mut self.exchange.current.shared;
        let Some(file) = path.ancestors().skip(1).find(|above| shared.contains_key(*above)) else {
            return false;
        };
        let version = shared.remove(file).and_then(|known| match self.from {
            Side::Host => Some(known.guest),
            Side::Guest => known.host,
        });
        version.is_some_and(|version| to.remove(file, version).is_ok())
    }

    /// Forgets the files that the source has no longer, and returns their versions at the destination.
    fn gone(self) -> Vec<(PathBuf, Stamp)> {
        let (from, seen) = (self.from, self.seen);
        let is_gone = |path: &PathBuf, shared: &mut Shared| {
            // What the directory never had has not gone from it.
            !seen.contains(path) && (from == Side::Guest || shared.host.is_some())
        };
        let gone = self.exchange.current.shared.extract_if(.., is_gone);
        gone.filter_map(|(path, shared)| match from {
            Side::Host => Some((path, shared.guest)),
            Side::Guest => Some((path, shared.host?)),
        })
        .collect()
    }
}

fn not_filled(why: &str) -> String {
    format!("not all files of `/output` are there: {why}")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use ringfence_policy::Trusted;
    use tempfile::TempDir;

    use super::super::destination::Spared;
    use super::super::output_files::open_directory;
    use super::*;

    /// A host directory and one of a program, with their exchange.
    struct Sides {
        host: TempDir,
        guest: TempDir,
        exchange: Exchange,
    }

    impl Sides {
        fn new() -> Self {
            Self {
                host: tempfile::tempdir().unwrap(),
                guest: tempfile::tempdir().unwrap(),
                exchange: Exchange::default(),
            }
        }

        fn destination(&self) -> Destination {
            let spared = Spared {
                protected: &[".git".to_owned()],
                trusted: &Trusted::none(),
            };
            Destination::open(&self.host.path().canonicalize().unwrap(), spared).unwrap()
        }

        fn fill(&mut self) -> Vec<String> {
            let (host, guest) = (self.destination(), open_directory(self.guest.path()));
            self.exchange.fill(&host, guest, 1 << 20)
        }

        /// Returns the names of the files that were copied back.
        fn collect(&mut self) -> Vec<String> {
            let (host, guest) = (self.destination(), open_directory(self.guest.path()));
            let collected = self.exchange.collect(guest, &host, 1 << 20);
            assert_eq!(collected.warnings, [""; 0]);
            collected.files.into_iter().map(|file| file.path).collect()
        }
    }

    #[test]
    fn only_what_changed_is_copied_and_what_was_removed_goes() {
        let mut sides = Sides::new();
        let (host, guest) = (sides.host.path().to_owned(), sides.guest.path().to_owned());
        fs::create_dir(host.join("d")).unwrap();
        for name in ["a", "b", "d/c"] {
            fs::write(host.join(name), name).unwrap();
        }
        assert_eq!(sides.fill(), [""; 0]);
        assert_eq!(fs::read(guest.join("d/c")).unwrap(), b"d/c");
        assert_eq!(sides.collect(), [""; 0]);
        // The same length, and the time of before: the change is seen nevertheless.
        let modified = fs::metadata(guest.join("a")).unwrap().modified().unwrap();
        fs::write(guest.join("a"), "A").unwrap();
        OpenOptions::new()
            .write(true)
            .open(guest.join("a"))
            .and_then(|file| file.set_modified(modified))
            .unwrap();
        fs::remove_file(guest.join("b")).unwrap();
        fs::write(guest.join("e"), "e").unwrap();
        assert_eq!(sides.collect(), ["a", "e"]);
        assert_eq!(fs::read(host.join("a")).unwrap(), b"A");
        assert!(!host.join("b").exists());
        assert_eq!(sides.collect(), [""; 0]);
        // Another program, meanwhile.
        fs::write(host.join("d/c"), "new").unwrap();
        fs::remove_file(host.join("e")).unwrap();
        assert_eq!(sides.fill(), [""; 0]);
        assert_eq!(fs::read(guest.join("d/c")).unwrap(), b"new");
        assert!(!guest.join("e").exists());
        assert_eq!(sides.collect(), [""; 0]);
    }

    #[test]
    fn what_a_program_changed_is_not_replaced() {
        let mut sides = Sides::new();
        let (host, guest) = (sides.host.path().to_owned(), sides.guest.path().to_owned());
        fs::write(host.join("a"), "host").unwrap();
        fs::write(guest.join("a"), "guest").unwrap();
        fs::write(host.join("b"), "host").unwrap();
        assert_eq!(sides.fill(), [""; 0]);
        for name in ["a", "b"] {
            let mut file = OpenOptions::new().append(true).open(guest.join(name)).unwrap();
            file.write_all(b"!").unwrap();
            fs::write(host.join(name), "newer").unwrap();
        }
        assert_eq!(sides.fill(), [""; 0]);
        assert_eq!(sides.collect(), ["a", "b"]);
        assert_eq!(fs::read(host.join("a")).unwrap(), b"guest!");
        assert_eq!(fs::read(host.join("b")).unwrap(), b"host!");
    }

    /// A copy of a session has its files, which are not the directory's, and so has a session that is used in another
    /// conversation.
    #[test]
    fn what_a_program_had_before_goes_nowhere_unless_it_changes() {
        let mut sides = Sides::new();
        let guest = sides.guest.path().to_owned();
        for name in ["a", "b"] {
            fs::write(guest.join(name), "old").unwrap();
            fs::write(sides.host.path().join(name), "new").unwrap();
        }
        assert_eq!(sides.fill(), [""; 0]);
        fs::write(guest.join("b"), "changed").unwrap();
        assert_eq!(sides.collect(), ["b"]);
        assert_eq!(fs::read(sides.host.path().join("a")).unwrap(), b"new");
        let first = std::mem::replace(&mut sides.host, tempfile::tempdir().unwrap());
        assert_eq!(sides.fill(), [""; 0]);
        assert_eq!(sides.collect(), [""; 0]);
        fs::write(guest.join("c"), "of the second").unwrap();
        assert_eq!(sides.collect(), ["c"]);
        let second = std::mem::replace(&mut sides.host, first);
        assert_eq!(sides.fill(), [""; 0]);
        assert_eq!(sides.collect(), [""; 0]);
        assert_eq!(fs::read_dir(second.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_takes_the_place_of_a_file() {
        let mut sides = Sides::new();
        let (host, guest) = (sides.host.path().to_owned(), sides.guest.path().to_owned());
        fs::write(host.join("d"), "file").unwrap();
        assert_eq!(sides.fill(), [""; 0]);
        fs::remove_file(guest.join("d")).unwrap();
        fs::create_dir(guest.join("d")).unwrap();
        fs::write(guest.join("d/x"), "x").unwrap();
        assert_eq!(sides.collect(), ["d/x"]);
        assert_eq!(fs::read(host.join("d/x")).unwrap(), b"x");
        assert_eq!(sides.collect(), [""; 0]);
    }

    /// Links are not followed, and what is too large is told.
    #[test]
    fn what_is_not_copied_stays_where_it_is() {
        let mut sides = Sides::new();
        let (host, guest) = (sides.host.path().to_owned(), sides.guest.path().to_owned());
        fs::write(host.join("large"), vec![1; (1 << 20) + 1]).unwrap();
        fs::write(host.join("small"), "small").unwrap();
        std::os::unix::fs::symlink("/etc/hostname", host.join("link")).unwrap();
        fs::create_dir(host.join(".git")).unwrap();
        let told = sides.fill();
        assert_eq!(told.len(), 3, "{told:?}");
        let is_told = |text: &str| told.iter().any(|told| told.contains(text));
        assert!(is_told("large exceeds") && is_told("link is not"), "{told:?}");
        assert!(is_told(".git was not copied"), "{told:?}");
        assert!(guest.join("small").exists());
        assert_eq!(fs::read_dir(&guest).unwrap().count(), 1);
        fs::remove_file(guest.join("small")).unwrap();
        assert_eq!(sides.collect(), [""; 0]);
        assert_eq!(fs::read_dir(&host).unwrap().count(), 3);
        // A directory that became a link leads nowhere.
        fs::create_dir(guest.join("d")).unwrap();
        fs::write(guest.join("d/x"), "x").unwrap();
        assert_eq!(sides.collect(), ["d/x"]);
        fs::remove_dir_all(host.join("d")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("x"), "precious").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), host.join("d")).unwrap();
        fs::remove_dir_all(guest.join("d")).unwrap();
        assert_eq!(sides.collect(), [""; 0]);
        assert_eq!(fs::read(elsewhere.path().join("x")).unwrap(), b"precious");
    }
}
