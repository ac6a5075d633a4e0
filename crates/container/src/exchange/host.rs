//! Reads and writes a host directory of transferred files without following symbolic links.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_exec::local::{O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, below, handle};
use ringfence_jail::init::files::{
    Attributes, FilePath, MAX_DEPTH, MAX_ENTRIES, Record, copy_content, identity,
};

/// Name prefix of incomplete files.
const UNFINISHED: &str = ".ringfence-";

#[derive(Debug)]
pub(super) struct HostDirectory(File);

/// The content of a directory.
#[derive(Debug, Default)]
pub(super) struct DirectoryContent {
    pub(super) files: BTreeMap<FilePath, FileFingerprint>,
    pub(super) directories: BTreeSet<FilePath>,
}

/// A file's identity, size and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileFingerprint {
    pub(super) identity: u64,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
}

impl FileFingerprint {
    fn of(found: &Metadata) -> Self {
        Self {
            identity: identity(found),
            size: found.len(),
            // Linux always has one.
            modified: found.modified().unwrap_or(UNIX_EPOCH),
        }
    }
}

impl HostDirectory {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        open_directory(path).map(Self)
    }

    /// Like [`Self::open`], with an exclusive lock on the directory. May block.
    pub(super) fn locked(path: &Path) -> io::Result<Self> {
        let directory = open_directory(path)?;
        directory.lock()?;
        Ok(Self(directory))
    }

    /// Lists the regular files and directories whose paths can be transferred.
    pub(super) fn scan(&self) -> io::Result<DirectoryContent> {
        let (mut found, mut left) = (DirectoryContent::default(), MAX_ENTRIES);
        scan(&self.0, Path::new(""), &mut found, &mut left)?;
        Ok(found)
    }

    /// Sends a file with its content. Returns its metadata, or the inner error if it cannot be read.
    pub(super) fn send(
        &self,
        path: &FilePath,
        out: &mut dyn Write,
    ) -> io::Result<io::Result<FileFingerprint>> {
        let opened = self.parent(path).and_then(|(parent, name)| {
            let flags = O_NOFOLLOW | O_NONBLOCK;
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(flags)
                .open(below(&parent, name))?;
            let found = file.metadata()?;
            match found.is_file() {
                true => Ok((file, found)),
                false => Err(io::ErrorKind::InvalidInput.into()),
            }
        });
        let (file, found) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        let record = Record::File {
            path: path.clone(),
            identity: identity(&found),
            size: found.len(),
            attributes: Attributes::of(&found),
        };
        record.write(out)?;
        let mut out = out;
        // A file that was truncated meanwhile differs from this identity, and is sent again before the next
        // call.
        copy_content(found.len(), file, &mut out)?;
        Ok(Ok(FileFingerprint::of(&found)))
    }

    /// Creates a directory, replacing a file.
    pub(super) fn make_directory(&self, path: &FilePath) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let place = below(&parent, name);
        match fs::create_dir(&place) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(&place)?.is_dir() {
                    return Ok(());
                }
                fs::remove_file(&place)?;
                fs::create_dir(&place)
            }
            made => made,
        }
    }

    /// Writes a file atomically and returns its metadata.
    pub(super) fn put(
        &self,
        path: &FilePath,
        content: &mut impl Read,
        attributes: Attributes,
    ) -> io::Result<FileFingerprint> {
        let (parent, name) = self.parent(path)?;
        let unfinished = below(
            &parent,
            OsStr::new(&format!("{UNFINISHED}{}", std::process::id())),
        );
        // A stale file of a process that had our process id.
        let _ = fs::remove_file(&unfinished);
        let put = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&unfinished)?;
            io::copy(content, &mut file)?;
            let mode = attributes.mode & 0o755 | 0o600;
            Attributes { mode, ..attributes }.apply(&file)?;
            let place = below(&parent, name);
            if fs::symlink_metadata(&place).is_ok_and(|found| found.is_dir()) {
                fs::remove_dir_all(&place)?;
            }
            fs::rename(&unfinished, place)?;
            Ok(FileFingerprint::of(&file.metadata()?))
        };
        let mut put = put;
        put().inspect_err(|_| drop(fs::remove_file(&unfinished)))
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, path: &FilePath) {
        if let Ok((parent, name)) = self.parent(path) {
            let _ = fs::remove_file(below(&parent, name));
        }
    }

    /// Removes a file if it still has this identity.
    pub(super) fn remove_if(&self, path: &FilePath, wanted: u64) {
        if self.holds_file(path, wanted) {
            self.remove(path);
        }
    }

    /// Returns `true` if a file still has this identity.
    pub(super) fn holds_file(&self, path: &FilePath, wanted: u64) -> bool {
        self.metadata(path).is_ok_and(|found| identity(&found) == wanted)
    }

    pub(super) fn holds_directory(&self, path: &FilePath) -> bool {
        self.metadata(path).is_ok_and(|found| found.is_dir())
    }

    fn metadata(&self, path: &FilePath) -> io::Result<Metadata> {
        let (parent, name) = self.parent(path)?;
        fs::symlink_metadata(below(&parent, name))
    }

    /// Removes a directory if it is empty.
    pub(super) fn remove_empty(&self, path: &FilePath) {
        if let Ok((parent, name)) = self.parent(path) {
            let _ = fs::remove_dir(below(&parent, name));
        }
    }

    /// Opens the parent directory of a path; also returns its file name.
    fn parent<'a>(&self, path: &'a FilePath) -> io::Result<(File, &'a OsStr)> {
        let path = path.as_path();
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parents = path.parent().unwrap_or(Path::new("")).components();
        let parent = parents
            .into_iter()
            .try_fold(self.0.try_clone()?, |directory, part| match part {
                Component::Normal(name) => open_directory(&below(&directory, name)),
                _ => Err(io::ErrorKind::InvalidInput.into()),
            })?;
        Ok((parent, name))
    }
}

fn scan(directory: &File, prefix: &Path, found: &mut DirectoryContent, left: &mut usize) -> io::Result<()> {
    for entry in fs::read_dir(handle(directory))? {
        let entry = entry?;
        let name = entry.file_name();
        *left = left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("there are too many"))?;
        // The entry may be gone by now.
        let Ok(metadata) = entry.metadata() else { continue };
        let unfinished = name.as_bytes().starts_with(UNFINISHED.as_bytes());
        let path: PathBuf = prefix.join(&name);
        let Some(path) = FilePath::new(&path).filter(|_| !unfinished) else {
            continue;
        };
        if metadata.is_file() {
            found.files.insert(path, FileFingerprint::of(&metadata));
        } else if metadata.is_dir() {
            found.directories.insert(path.clone());
            let lowest = path.as_path().components().count() == MAX_DEPTH;
            if let (false, Ok(inner)) = (lowest, open_directory(&below(directory, &name))) {
                scan(&inner, path.as_path(), found, left)?;
            }
        }
    }
    Ok(())
}

fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(O_DIRECTORY | O_NOFOLLOW)
        .open(path)
}
