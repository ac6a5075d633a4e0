//! Handles to directories, in which names are found and made without following links.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, linkat, mkdirat, openat, readlinkat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::named::names;
use super::replacement::{FIXED, Replacement, enter, unused_name};

/// An open directory. Programs may rename it and its entries at any time: a name is an entry of this very directory or an
/// error, and never leads through a link.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl From<OwnedFd> for Directory {
    fn from(handle: OwnedFd) -> Self {
        Self(handle)
    }
}

impl Directory {
    /// Opens a resolved path, and makes the directories that are missing.
    ///
    /// # Errors
    /// If something else is in a directory's place, or none can be made.
    pub fn make(path: &Path) -> io::Result<Self> {
        enter(&names(path)).map(Self)
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// If it is none, or out of reach.
    pub fn child(&self, name: &OsStr) -> io::Result<Self> {
        self.open(name, OFlags::PATH | OFlags::DIRECTORY).map(Self)
    }

    /// Opens a directory in this one, to read its names or change its mode.
    ///
    /// # Errors
    /// If it is none, or may not be read.
    pub fn readable_child(&self, name: &OsStr) -> io::Result<Self> {
        self.open(name, OFlags::RDONLY | OFlags::DIRECTORY).map(Self)
    }

    /// Makes a directory in this one, with at most these permission bits. `false` if it was there.
    ///
    /// # Errors
    /// If something else has the name, or none can be made.
    pub fn make_child(&self, name: &OsStr, mode: u32) -> io::Result<bool> {
        match mkdirat(&self.0, name, Mode::from_raw_mode(mode & 0o777)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => self.child(name).map(|_| false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the names in a directory that was opened to read them, sorted.
    ///
    /// # Errors
    /// If it cannot be read, or has more than `most` names.
    pub fn names(&self, most: usize) -> io::Result<Vec<OsString>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if found.len() == most {
                return Err(ErrorKind::FileTooLarge.into());
            }
            found.push(OsString::from_vec(name));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Returns the metadata of an entry itself.
    ///
    /// # Errors
    /// If there is none.
    pub fn stat(&self, name: &OsStr) -> io::Result<Metadata> {
        self.open(name, OFlags::PATH).map(File::from)?.metadata()
    }

    /// Opens a file for reading. Does not block on a FIFO.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.open(name, flags).map(File::from)
    }

    /// Returns the text of a symbolic link.
    ///
    /// # Errors
    /// If it is none.
    pub fn link_target(&self, name: &OsStr) -> io::Result<OsString> {
        let target = readlinkat(&self.0, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Begins a new file, with at most these permission bits and the caller as its owner, which replaces what is there.
    ///
    /// # Errors
    /// If a directory is there, or no file can be made.
    pub fn replace(&self, name: &OsStr, mode: u32) -> io::Result<Replacement> {
        self.refuse_directory(name)?;
        Replacement::new_beside(self.0.try_clone()?, name, mode & 0o777)
    }

    /// Makes a symbolic link, which replaces what is there.
    ///
    /// # Errors
    /// If a directory is there, or no link can be made.
    pub fn symlink(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        self.refuse_directory(name)?;
        let temporary = unused_name();
        symlinkat(target, &self.0, &temporary)?;
        self.finish(&temporary, name)
    }

    /// Gives a file of another directory a second name in this one, which replaces what is there.
    ///
    /// # Errors
    /// If a directory is there, or the file system refuses.
    pub fn hard_link(&self, from: &Self, first: &OsStr, name: &OsStr) -> io::Result<()> {
        self.refuse_directory(name)?;
        let temporary = unused_name();
        linkat(&from.0, first, &self.0, &temporary, AtFlags::empty())?;
        self.finish(&temporary, name)
    }

    /// Returns the descriptor.
    pub fn into_file(self) -> File {
        self.0.into()
    }

    fn finish(&self, temporary: &OsStr, name: &OsStr) -> io::Result<()> {
        let renamed = renameat(&self.0, temporary, &self.0, name);
        // After a success nothing has that name, unless both were names of one file.
        let _ = unlinkat(&self.0, temporary, AtFlags::empty());
        Ok(renamed?)
    }

    fn refuse_directory(&self, name: &OsStr) -> io::Result<()> {
        match self.stat(name) {
            Ok(found) if found.is_dir() => Err(ErrorKind::IsADirectory.into()),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn open(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        // Only names: `..` and paths would lead out.
        match name.as_encoded_bytes() {
            b"" | b"." | b".." => Err(ErrorKind::InvalidInput.into()),
            bytes if bytes.contains(&b'/') => Err(ErrorKind::InvalidInput.into()),
            _ => Ok(openat(&self.0, name, FIXED | flags, Mode::empty())?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn no_name_leads_out_of_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("outside")).unwrap();
        fs::write(root.join("outside/precious"), "precious").unwrap();
        let inside = Directory::make(&root.join("inside")).unwrap();
        symlink("../outside", root.join("inside/link")).unwrap();
        symlink("../outside/precious", root.join("inside/file")).unwrap();
        for name in ["link", "..", ".", "", "link/precious", "../outside"] {
            // By its path, each is a directory or a file that can be opened.
            assert!(File::open(root.join("inside").join(name)).is_ok(), "{name}");
            assert!(inside.child(OsStr::new(name)).is_err(), "{name}");
            assert!(inside.open_file(OsStr::new(name)).is_err(), "{name}");
            assert!(inside.replace(OsStr::new("link/new"), 0o644).is_err());
        }
        // A link is replaced itself.
        let mut new = inside.replace(OsStr::new("file"), 0o6777).unwrap();
        new.write_all(b"new").unwrap();
        new.commit().unwrap();
        let mode = fs::symlink_metadata(root.join("inside/file"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7000, 0);
        assert_eq!(fs::read(root.join("outside/precious")).unwrap(), b"precious");
        inside
            .hard_link(&inside, OsStr::new("file"), OsStr::new("second"))
            .unwrap();
        // Both are names of one file already.
        inside
            .hard_link(&inside, OsStr::new("file"), OsStr::new("second"))
            .unwrap();
        let reading = Directory::make(&root)
            .unwrap()
            .readable_child(OsStr::new("inside"))
            .unwrap();
        assert_eq!(reading.names(3).unwrap(), ["file", "link", "second"]);
        assert!(reading.names(2).is_err());
    }
}
