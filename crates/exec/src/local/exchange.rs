//! Keeps a host directory and the `/output` of its programs alike, one program after the other.
//!
//! Files that earlier programs left are copied to a program's `/output` before it begins. Afterwards its changes are copied
//! back, and files that it removed are removed from the directory. A file is known by its [`Stamp`] on either side, so one
//! that nobody touched is neither copied nor reported again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use super::destination::{Destination, DirectoryId};
use super::output_files::{self, CollectedFiles};

/// Directories that an exchange remembers: those used last. A session may be used in several conversations.
const MAX_DIRECTORIES: usize = 16;

/// The version of a file. A program cannot set the time of the last change (`st_ctime`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    bytes: u64,
    changed: Timestamp,
    modified: Timestamp,
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

/// The versions of a file that both sides had when it was last copied.
#[derive(Debug, Clone, Copy)]
struct Stamps {
    /// `None`: the file is the program's own, and was never copied.
    host: Option<Stamp>,
    guest: Stamp,
}

/// The known files of one host directory, by path.
type KnownFiles = BTreeMap<PathBuf, Stamps>;

/// The files that a program's `/output` shares with host directories.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// The directory of the program's present conversation; `None` before the first.
    directory: Option<DirectoryId>,
    known: KnownFiles,
    /// The files of the directories before, the last one at the end.
    others: VecDeque<(DirectoryId, KnownFiles)>,
    /// Time until which files that are not known are the program's own, if it had too many to be known.
    own_until: Option<Timestamp>,
}

/// Seconds and nanoseconds of the kernel's coarse clock, by which it sets the time of a change.
type Timestamp = (i64, i64);

impl Exchange {
    /// Copies the files of the host directory to a program's `/output`, and removes there those that have gone from it. The
    /// program's own files stay. Returns warnings about files that were not copied.
    pub(super) fn fill(
        &mut self,
        host: &Destination,
        output: io::Result<OwnedFd>,
        limit: u64,
    ) -> Vec<String> {
        let filled = host.identity().and_then(|directory| {
            let guest = Destination::in_cell(output?)?;
            if self.directory != Some(directory) {
                self.switch_to(directory, &guest);
            }
            Ok(self
                .copy_to_guest(host)
                .carry_out(host.descriptor(), &guest, limit))
        });
        match filled {
            Ok(filled) => filled.warnings.iter().map(|why| not_filled(why)).collect(),
            Err(error) => vec![not_filled(&error.to_string())],
        }
    }

    /// Copies the files that the program changed in its `/output` to the host directory, and removes there those that it
    /// removed.
    pub(super) fn collect(
        &mut self,
        output: io::Result<OwnedFd>,
        host: &Destination,
        limit: u64,
    ) -> CollectedFiles {
        self.copy_to_host(host).carry_out(output, host, limit)
    }

    /// Switches to another directory. Files that the program has made meanwhile, or has when it sees the directory for the
    /// first time, are its own.
    fn switch_to(&mut self, directory: DirectoryId, guest: &Destination) {
        let before = self.others.iter().position(|(other, _)| *other == directory);
        let before = before.and_then(|index| self.others.remove(index));
        let mut known = before.map(|(_, known)| known).unwrap_or_default();
        let own = files_of(guest);
        self.own_until = (!own.is_complete).then(now);
        for (path, own) in own.files {
            let is_known = |stamps: &Stamps| stamps.guest == own.guest;
            if !known.get(&path).is_some_and(is_known) {
                known.insert(path, own);
            }
        }
        let before = std::mem::replace(&mut self.known, known);
        if let Some(directory) = self.directory.replace(directory) {
            if self.others.len() >= MAX_DIRECTORIES {
                self.others.pop_front();
            }
            self.others.push_back((directory, before));
        }
    }

    /// Returns `true` if no file is known.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn copy_to_guest<'a>(&'a mut self, host: &'a Destination) -> OneWayCopy<'a> {
        OneWayCopy {
            known: &mut self.known,
            from: Side::Host,
            host,
            own_until: None,
            seen: BTreeSet::new(),
        }
    }

    fn copy_to_host<'a>(&'a mut self, host: &'a Destination) -> OneWayCopy<'a> {
        OneWayCopy {
            known: &mut self.known,
            from: Side::Guest,
            host,
            own_until: self.own_until,
            seen: BTreeSet::new(),
        }
    }
}

/// Files that a program has of its own.
struct OwnFiles {
    files: KnownFiles,
    /// Set if there are no others.
    is_complete: bool,
}

/// Returns the files that a program has, as its own.
fn files_of(guest: &Destination) -> OwnFiles {
    let found = output_files::collect_from(guest.descriptor(), None, 0);
    let own = found.files.into_iter().filter_map(|file| {
        let path = PathBuf::from(file.path);
        let guest = guest.stamp(&path)?;
        Some((path, Stamps { host: None, guest }))
    });
    OwnFiles {
        files: own.collect(),
        is_complete: found.warnings.is_empty(),
    }
}

fn now() -> Timestamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

/// The side that files are copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Host,
    Guest,
}

/// A copy from one side of an exchange to the other.
#[derive(Debug)]
pub(super) struct OneWayCopy<'a> {
    known: &'a mut KnownFiles,
    from: Side,
    /// The host directory, whose rules decide what may come back.
    host: &'a Destination,
    /// As of [`Exchange::own_until`].
    own_until: Option<Timestamp>,
    /// The known files that the source still has.
    seen: BTreeSet<PathBuf>,
}

impl OneWayCopy<'_> {
    fn carry_out(mut self, source: io::Result<OwnedFd>, to: &Destination, limit: u64) -> CollectedFiles {
        let mut copied = output_files::copy(source, to, limit, &mut self);
        // A file that was not looked at is not known to be removed.
        if copied.warnings.is_empty() {
            let removed = self.removed();
            let failed = removed.iter().filter_map(|(path, stamp)| {
                let error = to.remove(path, *stamp).err()?;
                Some(format!(
                    "{} could not be removed: {error}",
                    output_files::shown(path)
                ))
            });
            copied.warnings.extend(failed);
        }
        copied
    }

    /// Returns `true` if the host directory rejects files of this name.
    pub(super) fn protects(&self, path: &Path) -> bool {
        self.host.protects(path)
    }

    /// Returns `true` if a file of the source is not copied: the destination has this version, or the program has one of its
    /// own.
    pub(super) fn skips(&mut self, path: &Path, found: &Metadata, to: &Destination) -> bool {
        let stamps = self.known.get(path);
        if stamps.is_some() {
            self.seen.insert(path.to_path_buf());
        }
        let found = Stamp::of(found);
        match (self.from, stamps) {
            (Side::Guest, None) => self.own_until.is_some_and(|until| found.changed <= until),
            (Side::Guest, Some(stamps)) => stamps.guest == found,
            (Side::Host, None) => to.stamp(path).is_some(),
            (Side::Host, Some(Stamps { host: None, .. })) => true,
            (Side::Host, Some(Stamps { host, guest })) => {
                *host == Some(found) || to.stamp(path) != Some(*guest)
            }
        }
    }

    /// Records that both sides have a file now.
    pub(super) fn record(&mut self, path: &Path, found: &Metadata, placed: Stamp) {
        let found = Stamp::of(found);
        let (host, guest) = match self.from {
            Side::Host => (Some(found), placed),
            Side::Guest => (Some(placed), found),
        };
        self.seen.insert(path.to_path_buf());
        self.known.insert(path.to_path_buf(), Stamps { host, guest });
    }

    /// Removes the file at the destination that became a directory above `path` at the source. Returns `true` if it was
    /// removed: it is known, and of the known version.
    pub(super) fn remove_replaced_file(&mut self, path: &Path, to: &Destination) -> bool {
        let mut above = path.ancestors().skip(1);
        let Some(file) = above.find(|above| self.known.contains_key(*above)) else {
            return false;
        };
        let version = self
            .known
            .remove(file)
            .and_then(|stamps| self.at_destination(stamps));
        version.is_some_and(|version| to.remove(file, version).is_ok())
    }

    /// Forgets the known files that the source has no longer, and returns them with their versions at the destination.
    fn removed(self) -> Vec<(PathBuf, Stamp)> {
        let is_removed = |path: &PathBuf, stamps: &mut Stamps| {
            // The program's own were never at the host.
            !self.seen.contains(path) && (self.from == Side::Guest || stamps.host.is_some())
        };
        let removed: Vec<_> = self.known.extract_if(.., is_removed).collect();
        let versions = removed
            .into_iter()
            .filter_map(|(path, stamps)| Some((path, self.at_destination(stamps)?)));
        versions.collect()
    }

    fn at_destination(&self, stamps: Stamps) -> Option<Stamp> {
        match self.from {
            Side::Host => Some(stamps.guest),
            Side::Guest => stamps.host,
        }
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

    /// Of so many files not all are looked at.
    #[test]
    fn of_too_many_files_before_none_is_taken_for_new() {
        let mut sides = Sides::new();
        let guest = sides.guest.path().to_owned();
        for number in 0..1005 {
            fs::write(guest.join(number.to_string()), "old").unwrap();
        }
        assert_eq!(sides.fill(), [""; 0]);
        assert_eq!(sides.collect(), [""; 0]);
        let filled = now();
        while now() == filled {
            std::hint::spin_loop();
        }
        fs::write(guest.join("new"), "new").unwrap();
        fs::write(guest.join("7"), "changed").unwrap();
        assert_eq!(sides.collect(), ["7", "new"]);
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
