//! Unpacks an archive of a sandbox, which its programs wrote, into a directory of this machine.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence_tar::{Kind, Member, Reader};
use ringfence_trust::{CopyRules, Directory, makes_repository};
use rustix::io::Errno;

use super::{BUFFER, MAX_ENTRIES, OnProgress, Progress, Reason, Report, TreeError, relative};

/// Limits of an archive.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// Maximum size in bytes.
    pub(crate) most: u64,
    /// Rules of the directory; `None` if it may bring and change everything.
    pub(crate) rules: Option<CopyRules>,
}

/// Unpacks an archive into a directory.
///
/// A file has its name once it is complete. Each entry is reached from the directory by handles that follow no link. Links
/// that lead out are left out, as are FIFOs and devices. Entries belong to the caller, have at most the caller's usual
/// permission bits and no set-user-ID. Protected ones are left out. What was unpacked before an error stays.
pub(crate) fn unpack(
    root: Directory,
    input: &mut dyn Read,
    bounds: Bounds,
    progress: OnProgress,
) -> Result<Report, TreeError> {
    let mut unpacking = Unpacking {
        root,
        locked: Vec::new(),
        made: HashSet::new(),
        report: Report::default(),
        implied: Cell::new(0),
        left: bounds.most,
        bounds,
        left_out: HashSet::new(),
        progress,
    };
    let mut reader = Reader::new(input);
    while let Some(member) = reader.member().map_err(TreeError::Archive)? {
        unpacking.charge((member.path.len() + member.target.len()) as u64)?;
        unpacking.member(&member, &mut reader.content())?;
        unpacking.advance(0);
    }
    reader.finish_input().map_err(TreeError::Archive)?;
    unpacking.finish();
    Ok(unpacking.report)
}

struct Unpacking {
    root: Directory,
    /// Directories whose modes are set last: their owner may not write or enter them then.
    locked: Vec<(PathBuf, u32)>,
    /// Device and inode of what was made: a file system that folds cases takes two names for one.
    made: HashSet<(u64, u64)>,
    report: Report,
    /// Number of directories that were made because an entry lies in them.
    implied: Cell<u64>,
    bounds: Bounds,
    /// Protected paths that were named.
    left_out: HashSet<PathBuf>,
    /// Bytes that may still come.
    left: u64,
    progress: OnProgress,
}

impl Unpacking {
    /// Checks that there may be one entry more.
    fn check_room(&self) -> Result<(), TreeError> {
        match self.report.entries + self.report.skipped + self.implied.get() >= MAX_ENTRIES {
            true => Err(TreeError::TooMany),
            false => Ok(()),
        }
    }

    fn member(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), TreeError> {
        let path = relative(&member.path)?;
        self.check_room()?;
        if self.leaves_out(&path) {
            return Ok(());
        }
        self.report.entries += 1;
        let target = OsStr::from_bytes(&member.target);
        match member.kind {
            Kind::Directory => self.directory(&path, member.mode),
            Kind::File => self.file(&path, member, content),
            Kind::Symlink if stays_inside(&path, target) => self.symlink(&path, target),
            Kind::Symlink => self.skip(&path, Reason::Outward),
            Kind::HardLink => {
                let first = relative(&member.target)?;
                match self.protected(&first) {
                    // It is the same file.
                    Some(_) => self.skip(&path, Reason::Protected),
                    None => self.hard_link(&path, &first),
                }
            }
            Kind::Fifo | Kind::Device | Kind::Other(_) => self.skip(&path, Reason::Special),
        }
    }

    /// Returns the path that keeps an entry out: itself, or a directory that it lies in.
    fn protected(&self, path: &Path) -> Option<PathBuf> {
        let rules = self.bounds.rules.as_ref()?;
        let named = rules.protected(path);
        named.or_else(|| (rules.is_acted_on(path) || self.is_relied_on(rules, path)).then(|| path.to_owned()))
    }

    /// Returns `true` if a trusted file is there or above, or git would take a directory on the way for a repository.
    fn is_relied_on(&self, rules: &CopyRules, path: &Path) -> bool {
        // `None` below what is missing.
        let mut directory = Some(Parent(None));
        for name in path.iter() {
            let here = directory.as_ref().map(|directory| directory.here(self));
            let stat = |name: &OsStr| here?.stat(name).ok();
            if makes_repository(name, |mark| stat(mark).is_some())
                || stat(name).is_some_and(|found| rules.is_kept(&found))
            {
                return true;
            }
            let child = here.and_then(|here| here.child(name).ok());
            directory = child.map(|child| Parent(Some(child)));
        }
        false
    }

    /// Leaves out what is protected, and names it once.
    fn leaves_out(&mut self, path: &Path) -> bool {
        let Some(protected) = self.protected(path) else {
            return false;
        };
        match self.left_out.contains(&protected) {
            true => self.report.skipped += 1,
            false => {
                self.report.skip(&protected, Reason::Protected);
                self.left_out.insert(protected);
            }
        }
        true
    }

    fn directory(&mut self, path: &Path, mode: u32) -> Result<(), TreeError> {
        // The first directory itself is the caller's.
        let Some(name) = path.file_name() else {
            return Ok(());
        };
        let parent = self.parent(path)?;
        let made = parent.here(self).make_child(name, mode | 0o700);
        if made.map_err(|error| no_directory(path, error))? && mode & 0o700 != 0o700 {
            self.locked.push((path.to_owned(), mode));
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, member: &Member, content: &mut dyn Read) -> Result<(), TreeError> {
        if member.size > self.left {
            return Err(TreeError::TooLarge(self.bounds.most));
        }
        let (parent, name) = self.place(path)?;
        let mut file = parent.here(self).replace(&name, member.mode).at(path)?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = content.read(&mut buffer);
            let read = read.map_err(|error| TreeError::Archive(ringfence_tar::TarError::Input(error)))?;
            if read == 0 {
                break;
            }
            file.write_all(&buffer[..read]).at(path)?;
            self.charge(read as u64)?;
            self.advance(read as u64);
        }
        file.set_modified(time(member)).at(path)?;
        let made = file.metadata().at(path)?;
        file.commit().at(path)?;
        self.made.insert(identity(&made));
        Ok(())
    }

    fn symlink(&mut self, path: &Path, target: &OsStr) -> Result<(), TreeError> {
        let (parent, name) = self.place(path)?;
        let parent = parent.here(self);
        parent.symlink(&name, target).at(path)?;
        let made = parent.stat(&name).at(path)?;
        self.made.insert(identity(&made));
        Ok(())
    }

    /// Gives a file that came before another name; no other file, which would be the caller's.
    fn hard_link(&mut self, path: &Path, first: &Path) -> Result<(), TreeError> {
        let refused = || TreeError::HardLink {
            path: shown(path),
            first: shown(first),
        };
        let first_name = first.file_name().ok_or_else(refused)?;
        let (parent, name) = self.place(path)?;
        let from = self.parent(first)?;
        let from = from.here(self);
        let found = from.stat(first_name).map_err(|_| refused())?;
        if !found.is_file() || !self.made.contains(&identity(&found)) {
            return Err(refused());
        }
        parent.here(self).hard_link(from, first_name, &name).at(path)
    }

    /// Returns the directory of an entry and its name there, which nothing that came before has.
    fn place(&self, path: &Path) -> Result<(Parent, OsString), TreeError> {
        let name = path.file_name().ok_or_else(|| TreeError::Name(shown(path)))?;
        let parent = self.parent(path)?;
        match parent.here(self).stat(name) {
            Ok(found) if found.is_dir() => Err(TreeError::Directory(shown(path))),
            Ok(found) if self.made.contains(&identity(&found)) => Err(TreeError::Twice(shown(path))),
            _ => Ok((parent, name.to_owned())),
        }
    }

    /// Returns the directory of an entry, from the first one on, and makes what is missing.
    fn parent(&self, path: &Path) -> Result<Parent, TreeError> {
        let mut parent = Parent(None);
        for name in path.parent().into_iter().flat_map(Path::iter) {
            let above = parent.here(self);
            let opened = match above.child(name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.check_room()?;
                    self.implied.set(self.implied.get() + 1);
                    above.make_child(name, 0o777).and_then(|_| above.child(name))
                }
                opened => opened,
            };
            parent = Parent(Some(opened.map_err(|error| no_directory(path, error))?));
        }
        Ok(parent)
    }

    #[allow(clippy::unnecessary_wraps, reason = "an arm of a match whose others fail")]
    fn skip(&mut self, path: &Path, reason: Reason) -> Result<(), TreeError> {
        self.report.entries -= 1;
        self.report.skip(path, reason);
        Ok(())
    }

    fn charge(&mut self, bytes: u64) -> Result<(), TreeError> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(TreeError::TooLarge(self.bounds.most))?;
        Ok(())
    }

    fn advance(&mut self, bytes: u64) {
        self.report.bytes += bytes;
        (self.progress)(Progress {
            entries: self.report.entries,
            bytes: self.report.bytes,
        });
    }

    /// Takes the rights from directories that their owner may not change.
    fn finish(&self) {
        for (path, mode) in self.locked.iter().rev() {
            let name = path.file_name().unwrap_or_default();
            let Ok(parent) = self.parent(path) else { continue };
            // Others may have removed it.
            let Ok(opened) = parent.here(self).readable_child(name) else {
                continue;
            };
            let file = opened.into_file();
            if let Ok(found) = file.metadata() {
                let _ = file.set_permissions(Permissions::from_mode(found.mode() & mode & 0o777));
            }
        }
    }
}

/// A directory of the tree; `None` for the first one.
struct Parent(Option<Directory>);

impl Parent {
    fn here<'a>(&'a self, unpacking: &'a Unpacking) -> &'a Directory {
        self.0.as_ref().unwrap_or(&unpacking.root)
    }
}

trait At<T> {
    fn at(self, path: &Path) -> Result<T, TreeError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, TreeError> {
        self.map_err(|source| TreeError::Write {
            path: shown(path),
            source,
        })
    }
}

/// Returns `true` if a link leads to the tree that it is in, whatever other links do: `..` counts from the directory of the
/// link alone, never from one that a link may lead to.
fn stays_inside(path: &Path, target: &OsStr) -> bool {
    let mut above = path.components().count().saturating_sub(1);
    let mut is_below = false;
    for part in Path::new(target).components() {
        match part {
            Component::Normal(_) => is_below = true,
            Component::CurDir => {}
            Component::ParentDir if above > 0 && !is_below => above -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    !target.is_empty()
}

fn no_directory(path: &Path, source: io::Error) -> TreeError {
    match Errno::from_io_error(&source) {
        // Of opening a file or a link as a directory.
        Some(Errno::NOTDIR | Errno::LOOP) => TreeError::NoDirectory(shown(path)),
        _ => TreeError::Write {
            path: shown(path),
            source,
        },
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn time(member: &Member) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_secs(member.modified))
        .unwrap_or(UNIX_EPOCH)
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
