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

use super::destination::Destination;
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

/// A file that both sides have in the same version.
#[derive(Debug, Clone, Copy)]
struct Shared {
    host: Stamp,
    guest: Stamp,
}

/// The side that files are copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Host,
    Guest,
}

/// The files that both sides have in the same version, by path.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// Device and inode of the host directory.
    directory: Option<(u64, u64)>,
    shared: BTreeMap<PathBuf, Shared>,
}

impl Exchange {
    /// Copies to a program's `/output` what the host directory has, and removes there what has gone from it. A file that
    /// the program has and the exchange does not know stays. Returns warnings about what was not copied.
    pub(super) fn fill(
        &mut self,
        host: &Destination,
        output: io::Result<OwnedFd>,
        limit: u64,
    ) -> Vec<String> {
        let filled = host.identity().and_then(|directory| {
            if self.directory.replace(directory) != Some(directory) {
                self.shared.clear();
            }
            let guest = Destination::in_cell(output?)?;
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

    /// Returns `true` if the sides share nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.shared.is_empty()
    }
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
        let shared = self.exchange.shared.get(path);
        if shared.is_some() {
            self.seen.insert(path.to_path_buf());
        }
        match self.from {
            Side::Guest => shared.is_some_and(|shared| shared.guest == Stamp::of(found)),
            Side::Host => {
                shared.is_some_and(|shared| shared.host == Stamp::of(found))
                    || to.stamp(path) != shared.map(|shared| shared.guest)
            }
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
        self.exchange
            .shared
            .insert(path.to_path_buf(), Shared { host, guest });
    }

    /// Forgets the files that the source has no longer, and returns their versions at the destination.
    fn gone(self) -> Vec<(PathBuf, Stamp)> {
        let (from, seen) = (self.from, self.seen);
        let gone = self
            .exchange
            .shared
            .extract_if(.., |path, _| !seen.contains(path));
        gone.map(|(path, shared)| match from {
            Side::Host => (path, shared.guest),
            Side::Guest => (path, shared.host),
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
