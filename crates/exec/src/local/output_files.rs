//! Collects the files of a program's output directory, without following links that it planted.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ringfence_policy::OutputFile;

use super::destination::{Destination, check_same_file_system, handle, is_refusal};
use super::exchange::OneWayCopy;
use crate::open_flags::{O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK};

/// Maximum number of files and warnings.
const MAX_FILES: usize = 1_000;
/// Maximum number of directories entered.
const MAX_DIRECTORIES: usize = 1_000;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 16;

/// The collected files, and warnings about skipped ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CollectedFiles {
    pub files: Vec<OutputFile>,
    pub warnings: Vec<String>,
    /// Set if an error kept files from being read or delivered.
    pub incomplete: bool,
}

/// Collects files from an output directory, given the result of opening it.
pub fn collect_from(
    source: io::Result<OwnedFd>,
    destination: Option<&Destination>,
    limit: u64,
) -> CollectedFiles {
    match source {
        Ok(source) => collect(&source, destination, limit, None),
        Err(error) => unreadable(&error),
    }
}

/// Copies files as [`collect_from`] does, but for those that the destination has.
pub(super) fn copy(
    source: io::Result<OwnedFd>,
    destination: &Destination,
    limit: u64,
    copying: &mut OneWayCopy<'_>,
) -> CollectedFiles {
    match source {
        Ok(source) => collect(&source, Some(destination), limit, Some(copying)),
        Err(error) => unreadable(&error),
    }
}

fn unreadable(error: &io::Error) -> CollectedFiles {
    CollectedFiles {
        files: Vec::new(),
        warnings: vec![format!("the output files could not be collected: {error}")],
        incomplete: true,
    }
}

/// Type of a tmpfs in `statfs`.
const TMPFS: i64 = 0x0102_1994;
/// Size of an empty directory there: 20 bytes for each entry, `.` and `..` included (`BOGO_DIRENT_SIZE` in
/// mm/shmem.c).
const EMPTY: i64 = 40;

/// Returns `true` if a directory is an empty one of a tmpfs. The kernel counts the entries there, and no
/// program can set the count. Most programs write no output files, and a walk takes five times as many calls.
pub fn is_empty_tmpfs(directory: &OwnedFd) -> bool {
    let is_empty = rustix::fs::fstat(directory).is_ok_and(|found| found.st_size == EMPTY);
    is_empty && rustix::fs::fstatfs(directory).is_ok_and(|found| found.f_type == TMPFS)
}

/// Returns the used bytes of the file system that a directory is in.
pub(super) fn used_bytes(directory: &OwnedFd) -> Option<u64> {
    let found = rustix::fs::fstatvfs(directory).ok()?;
    found
        .f_blocks
        .checked_sub(found.f_bfree)?
        .checked_mul(found.f_frsize)
}

/// Lists the regular files below `source` and, with a `destination`, copies them there.
///
/// Links, devices, FIFOs and sockets are skipped. `limit` bounds the bytes copied, which sparse files could
/// otherwise inflate without limit. Skipping one entry does not affect the others; upper directories come
/// first.
fn collect(
    source: &OwnedFd,
    destination: Option<&Destination>,
    limit: u64,
    copying: Option<&mut OneWayCopy<'_>>,
) -> CollectedFiles {
    let mut walk = Walk {
        destination,
        copying,
        left: limit,
        waiting: VecDeque::from([PathBuf::new()]),
        entered: 0,
        collected: CollectedFiles::default(),
    };
    match source.try_clone() {
        Ok(source) => walk.walk(&File::from(source)),
        Err(error) => walk.fail(&format!("the output files could not be collected: {error}")),
    }
    let mut collected = walk.collected;
    collected.files.sort_by(|a, b| a.path.cmp(&b.path));
    collected
}

/// A breadth-first walk through an output directory.
struct Walk<'a, 'b> {
    destination: Option<&'a Destination>,
    copying: Option<&'a mut OneWayCopy<'b>>,
    /// Remaining number of bytes that may be copied.
    left: u64,
    /// Directories to enter. Their paths contain no links: each component is opened without following one.
    waiting: VecDeque<PathBuf>,
    entered: usize,
    collected: CollectedFiles,
}

impl Walk<'_, '_> {
    fn walk(&mut self, root: &File) {
        while let Some(path) = self.waiting.pop_front() {
            let entries = open_below(root, &path).and_then(|directory| {
                let entries = fs::read_dir(handle(&directory))?;
                Ok((directory, entries))
            });
            let (directory, entries) = match entries {
                Ok(found) => found,
                Err(error) => {
                    self.fail(&format!("{} could not be read: {error}", shown(&path)));
                    continue;
                }
            };
            for entry in entries {
                if self.is_full() {
                    return self.leave(&format!("more than {MAX_FILES} files: the rest was left"));
                }
                match entry {
                    Ok(entry) => self.meet(&directory, &path.join(entry.file_name())),
                    Err(error) => self.fail(&format!("not all of {} was read: {error}", shown(&path))),
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.collected.files.len() + self.collected.warnings.len() >= MAX_FILES
    }

    fn leave(&mut self, why: &str) {
        self.collected.warnings.push(why.to_owned());
    }

    fn fail(&mut self, why: &str) {
        self.collected.incomplete = true;
        self.leave(why);
    }

    /// Takes a file, queues a directory, or adds a warning.
    fn meet(&mut self, directory: &File, path: &Path) {
        let protects = match (&self.copying, self.destination) {
            (Some(copying), _) => copying.protects(path),
            (None, Some(destination)) => destination.protects(path),
            (None, None) => false,
        };
        if protects {
            let path = shown(path);
            return self.leave(&format!(
                "{path} was not copied: programs of the host execute or obey files of that name"
            ));
        }
        let found = open_entry(directory, path)
            .ok()
            .and_then(|file| Some((file.metadata().ok()?, file)));
        if let Some((_, file)) = &found
            && check_same_file_system(directory, file).is_err()
        {
            return self.leave(&format!("{} is a mount and was left", shown(path)));
        }
        match found {
            Some((metadata, _)) if metadata.is_dir() => self.note(path),
            Some((metadata, file)) if metadata.is_file() => self.take(&file, path, &metadata),
            Some(_) => self.leave(&format!("{} is not a regular file and was left", shown(path))),
            None => {
                let path = shown(path);
                self.leave(&format!("{path} is not a readable regular file and was left"));
            }
        }
    }

    fn note(&mut self, path: &Path) {
        if path.components().count() > MAX_DEPTH {
            let path = shown(path);
            self.leave(&format!(
                "{path} lies deeper than {MAX_DEPTH} levels and was left"
            ));
        } else if self.entered >= MAX_DIRECTORIES {
            let path = shown(path);
            self.leave(&format!(
                "{path} is one of more than {MAX_DIRECTORIES} directories and was left"
            ));
        } else {
            self.entered += 1;
            self.waiting.push_back(path.to_path_buf());
        }
    }

    fn take(&mut self, file: &File, path: &Path, found: &Metadata) {
        let bytes = found.len();
        if let Some(destination) = self.destination {
            if let Some(copying) = &mut self.copying
                && copying.skips(path, found, destination)
            {
                return;
            }
            let Some(left) = self.left.checked_sub(bytes) else {
                return self.leave(&format!("{} exceeds the disk limit and was left", shown(path)));
            };
            self.left = left;
            let mut delivered = destination.deliver(file, path, bytes);
            if let (Err(error), Some(copying)) = (&delivered, &mut self.copying)
                && error.kind() == io::ErrorKind::NotADirectory
                && copying.remove_replaced_file(path, destination)
            {
                delivered = destination.deliver(file, path, bytes);
            }
            match (delivered, &mut self.copying) {
                (Ok(placed), Some(copying)) => copying.record(path, found, placed),
                (Ok(_), None) => {}
                (Err(error), _) => {
                    let why = format!("{} could not be copied: {error}", shown(path));
                    return match is_refusal(&error) {
                        true => self.leave(&why),
                        false => self.fail(&why),
                    };
                }
            }
        }
        self.collected.files.push(OutputFile {
            path: path.display().to_string(),
            bytes,
        });
    }
}

/// Opens the last component of a path in its directory. Follows no link; O_NONBLOCK, so that no FIFO blocks.
fn open_entry(directory: &File, path: &Path) -> io::Result<File> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(handle(directory).join(name))
}

/// Opens a directory below another. Keeps none on the way open: there may be more directories than file
/// descriptors.
fn open_below(root: &File, path: &Path) -> io::Result<File> {
    path.iter().try_fold(root.try_clone()?, |directory, name| {
        OpenOptions::new()
            .read(true)
            .custom_flags(O_DIRECTORY | O_NOFOLLOW)
            .open(handle(&directory).join(name))
    })
}

/// Formats a path for a message of one line; the output directory itself has an empty one.
pub(super) fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        "the output directory".to_owned()
    } else {
        path.to_string_lossy().escape_debug().to_string()
    }
}

/// Opens a host directory.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_DIRECTORY | O_NOFOLLOW)
        .open(path)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::super::destination::Spared;
    use super::*;
    use std::os::unix::fs::symlink;

    fn fixture() -> (tempfile::TempDir, OwnedFd) {
        let source = tempfile::tempdir().unwrap();
        fs::create_dir(source.path().join("sub")).unwrap();
        fs::write(source.path().join("sub/a.txt"), "hello").unwrap();
        symlink("/etc/passwd", source.path().join("planted")).unwrap();
        symlink("/etc", source.path().join("planted-directory")).unwrap();
        let handle = open_directory(source.path()).unwrap();
        (source, handle)
    }

    fn destination(directory: &tempfile::TempDir) -> Destination {
        let trusted = ringfence_policy::Trusted::none();
        let protected = [".git".to_owned(), "*.pth".to_owned()];
        let spared = Spared {
            protected: &protected,
            trusted: &trusted,
        };
        Destination::open(&directory.path().canonicalize().unwrap(), spared).unwrap()
    }

    #[test]
    fn takes_regular_files_and_follows_nothing() {
        let (_source, handle) = fixture();
        let target = tempfile::tempdir().unwrap();
        let collected = collect(&handle, Some(&destination(&target)), 1 << 20, None);
        assert_eq!(
            collected.files,
            [OutputFile {
                path: "sub/a.txt".to_owned(),
                bytes: 5
            }]
        );
        assert_eq!(collected.warnings.len(), 2);
        assert_eq!(
            fs::read_to_string(target.path().join("sub/a.txt")).unwrap(),
            "hello"
        );
        assert!(!target.path().join("planted").exists());
    }

    #[test]
    fn emptiness_is_known_at_a_look_where_files_are_in_memory() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let handle = open_directory(directory.path()).unwrap();
        let check = |expected, what| assert_eq!(is_empty_tmpfs(&handle), expected, "{what}");
        check(true, "new");
        for name in ["a", ".b"] {
            fs::write(directory.path().join(name), "").unwrap();
            check(false, name);
            fs::remove_file(directory.path().join(name)).unwrap();
        }
        check(true, "removed");
        let (here, elsewhere) = (directory.path().join("c"), directory.path().with_extension("c"));
        fs::create_dir(&here).unwrap();
        check(false, "a directory");
        fs::rename(&here, &elsewhere).unwrap();
        check(true, "moved away");
        fs::rename(&elsewhere, &here).unwrap();
        check(false, "moved back");
        // Elsewhere a size says nothing.
        assert!(!is_empty_tmpfs(
            &open_directory(Path::new("/proc/self/task")).unwrap()
        ));
    }

    /// A directory that is too deep, or one too many, does not affect the others.
    #[test]
    fn what_lies_too_deep_is_left_alone() {
        let (source, handle) = fixture();
        let deep: PathBuf = std::iter::repeat_n("d", MAX_DEPTH).collect();
        fs::create_dir_all(source.path().join(&deep).join("too/deep")).unwrap();
        fs::write(source.path().join(&deep).join("last.txt"), "x").unwrap();
        fs::write(source.path().join(&deep).join("too/deep/lost.txt"), "x").unwrap();
        fs::write(source.path().join("z.txt"), "x").unwrap();
        for n in 0..MAX_DIRECTORIES {
            fs::create_dir(source.path().join(format!("sub/{n}"))).unwrap();
        }
        let target = tempfile::tempdir().unwrap();
        let collected = collect(&handle, Some(&destination(&target)), 1 << 20, None);
        let paths: Vec<&str> = collected.files.iter().map(|file| file.path.as_str()).collect();
        assert!(
            paths.contains(&"sub/a.txt") && paths.contains(&"z.txt"),
            "{paths:?}"
        );
        let too_many = |text: &&String| text.contains("more than 1000 directories");
        assert!(
            collected.warnings.iter().any(|text| too_many(&text)),
            "{collected:?}"
        );

        for n in 0..MAX_DIRECTORIES {
            fs::remove_dir(source.path().join(format!("sub/{n}"))).unwrap();
        }
        let collected = collect(&handle, Some(&destination(&target)), 1 << 20, None);
        let last = deep.join("last.txt").display().to_string();
        let paths: Vec<&str> = collected.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [&last, "sub/a.txt", "z.txt"]);
        let left = format!("{}/too lies deeper than 16 levels and was left", deep.display());
        assert!(collected.warnings.contains(&left), "{collected:?}");
    }

    #[test]
    fn nothing_is_delivered_to_protected_names() {
        let (source, handle) = fixture();
        for name in ["sub/.Git/hooks", "venv"] {
            fs::create_dir_all(source.path().join(name)).unwrap();
        }
        for name in ["sub/.Git/hooks/post-checkout", "venv/a.pth", "venv/a.py"] {
            fs::write(source.path().join(name), "x").unwrap();
        }
        let target = tempfile::tempdir().unwrap();
        let collected = collect(&handle, Some(&destination(&target)), 1 << 20, None);
        let files: Vec<&str> = collected.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["sub/a.txt", "venv/a.py"]);
        for left in ["sub/.Git was not copied", "venv/a.pth was not copied"] {
            assert!(
                collected.warnings.iter().any(|warning| warning.starts_with(left)),
                "{collected:?}"
            );
        }
        assert!(!target.path().join("sub/.Git").exists());
    }

    #[test]
    fn a_sparse_file_does_not_fill_the_host() {
        let (source, handle) = fixture();
        File::create(source.path().join("huge"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let target = tempfile::tempdir().unwrap();
        let collected = collect(&handle, Some(&destination(&target)), 1 << 20, None);
        assert!(
            collected
                .warnings
                .iter()
                .any(|warning| warning.contains("disk limit")),
            "{collected:?}"
        );
        assert!(!target.path().join("huge").exists());
    }

    #[test]
    fn a_link_at_the_destination_is_replaced_not_followed() {
        let (_source, handle) = fixture();
        let target = tempfile::tempdir().unwrap();
        let victim = target.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::create_dir(target.path().join("sub")).unwrap();
        symlink(&victim, target.path().join("sub/a.txt")).unwrap();
        collect(&handle, Some(&destination(&target)), 1 << 20, None);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(
            fs::read_to_string(target.path().join("sub/a.txt")).unwrap(),
            "hello"
        );
    }

    #[test]
    fn a_linked_directory_at_the_destination_is_not_entered() {
        let (_source, handle) = fixture();
        let target = tempfile::tempdir().unwrap();
        let precious = tempfile::tempdir().unwrap();
        symlink(precious.path(), target.path().join("sub")).unwrap();
        let collected = collect(&handle, Some(&destination(&target)), 1 << 20, None);
        assert_eq!(collected.files, []);
        assert!(
            collected
                .warnings
                .iter()
                .any(|warning| warning.starts_with("sub/a.txt could not be copied")),
            "{collected:?}"
        );
        assert_eq!(fs::read_dir(precious.path()).unwrap().count(), 0);
    }
}
