//! The files of an archive or a directory that holds images, by name.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use ringfence_tar::{Kind, Reader, TarError};

use crate::bounds::{Bounds, read_at_most};
use crate::decode::Decoded;
use crate::digest::{Digest, Hashing};
use crate::document::Descriptor;
use crate::error::{Error, InStore};
use crate::staging::Staging;
use crate::store::Store;
use crate::tree::plain;

/// Maximum number of links from one member to another: old archives of `docker save` name equal layers so.
const MAX_LINKS: usize = 4;

/// Files of an image by name. Their contents are untrusted.
#[derive(Debug)]
pub(crate) enum Files {
    Directory(PathBuf),
    /// Members of an archive, copied to files of the staging directory.
    Archive(HashMap<PathBuf, Stored>),
}

#[derive(Debug)]
pub(crate) enum Stored {
    File(PathBuf),
    Link(PathBuf),
}

/// Returns `true` if an archive has one of these members.
pub(crate) fn has_member(archive: &Path, names: &[&str], bounds: &Bounds) -> Result<bool, Error> {
    let mut decoded = Decoded::of(open(archive)?, bounds).map_err(Error::Archive)?;
    let mut reader = Reader::new(&mut decoded);
    let mut next = reader.member().map_err(|error| match error {
        TarError::Truncated => invalid(TarError::Invalid("it ends before its first member")),
        error => invalid(error),
    })?;
    while let Some(member) = next {
        let path = plain(&member.path);
        if path.is_some_and(|path| names.iter().any(|name| path == Path::new(name))) {
            return Ok(true);
        }
        next = reader.member().map_err(invalid)?;
    }
    Ok(false)
}

/// Copies the members of an archive to the staging directory, into numbered files.
pub(crate) fn spool(archive: &Path, staging: &Staging, store: &Store) -> Result<Files, Error> {
    let bounds = store.bounds();
    let mut decoded = Decoded::of(open(archive)?, bounds).map_err(Error::Archive)?;
    let mut reader = Reader::new(&mut decoded);
    let mut files = HashMap::new();
    let mut room = store.room();
    while let Some(member) = reader.member().map_err(invalid)? {
        let Some(path) = plain(&member.path) else {
            return Err(Error::ArchiveContent("a member's path leads upwards".to_owned()));
        };
        if files.len() >= bounds.members {
            let message = format!("it has more than {} members", bounds.members);
            return Err(Error::ArchiveContent(message));
        }
        match member.kind {
            Kind::File => {
                if member.size > bounds.blob {
                    return Err(Error::ArchiveContent(format!("{path:?} is too large")));
                }
                room = room.checked_sub(member.size).ok_or_else(|| store.full())?;
                let name = format!("member-{}", files.len());
                let mut copy = staging.create(&name).when("write")?;
                io::copy(&mut reader.content(), &mut copy).map_err(Error::Archive)?;
                files.insert(path, Stored::File(staging.file(&name)));
            }
            Kind::Symlink | Kind::HardLink => {
                let above = match member.kind {
                    Kind::Symlink => path.parent().unwrap_or(Path::new("")),
                    _ => Path::new(""),
                };
                if let Some(target) = joined(above, &member.target) {
                    files.insert(path, Stored::Link(target));
                }
            }
            Kind::Directory | Kind::Fifo | Kind::Device | Kind::Other(_) => {}
        }
    }
    Ok(Files::Archive(files))
}

/// Returns the name that a link means: `../x/layer.tar`, below the archive's root.
fn joined(above: &Path, target: &[u8]) -> Option<PathBuf> {
    let mut path = above.to_owned();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => path.pop().then_some(())?,
            name => path.push(plain(name)?),
        }
    }
    Some(path)
}

impl Files {
    /// Opens a file by its name, without `..`.
    pub(crate) fn open(&self, name: &str) -> Result<File, Error> {
        let missing = || Error::ArchiveContent(format!("it has no file {name:?}"));
        let name = plain(name.as_bytes()).ok_or_else(missing)?;
        match self {
            Self::Directory(directory) => open(&directory.join(name)),
            Self::Archive(files) => {
                let mut found = files.get(&name);
                for _ in 0..MAX_LINKS {
                    match found {
                        Some(Stored::Link(target)) => found = files.get(target),
                        Some(Stored::File(path)) => return File::open(path).when("read"),
                        None => break,
                    }
                }
                Err(missing())
            }
        }
    }

    /// Reads a document of bounded length.
    pub(crate) fn document(&self, name: &str, bounds: &Bounds) -> Result<Vec<u8>, Error> {
        let read = read_at_most(self.open(name)?, bounds.document).map_err(Error::Archive)?;
        read.ok_or_else(|| Error::ArchiveContent(format!("{name:?} is too long")))
    }

    /// Reads a document by its digest.
    pub(crate) fn blob_document(&self, descriptor: &Descriptor, bounds: &Bounds) -> Result<Vec<u8>, Error> {
        let name = blob(descriptor);
        let bytes = self.document(&name, bounds)?;
        check(&name, descriptor, Digest::of(&bytes), bytes.len() as u64)?;
        Ok(bytes)
    }

    /// Opens a layer by its digest.
    pub(crate) fn blob_file(&self, descriptor: &Descriptor, bounds: &Bounds) -> Result<File, Error> {
        let name = blob(descriptor);
        let mut file = self.open(&name)?;
        let mut hashing = Hashing::new(io::sink());
        let mut bounded = (&mut file).take(bounds.blob.min(descriptor.size).saturating_add(1));
        io::copy(&mut bounded, &mut hashing).map_err(Error::Archive)?;
        let (digest, length) = hashing.finish();
        check(&name, descriptor, digest, length)?;
        file.rewind().map_err(Error::Archive)?;
        Ok(file)
    }
}

/// Checks a blob against its descriptor.
pub(crate) fn check(what: &str, descriptor: &Descriptor, found: Digest, length: u64) -> Result<(), Error> {
    if length != descriptor.size {
        let expected = descriptor.size;
        let message = format!("{what:?} has not the length {expected} that its descriptor says");
        return Err(Error::ArchiveContent(message));
    }
    if found != descriptor.digest {
        return Err(Error::Digest {
            what: what.to_owned(),
            expected: descriptor.digest,
            found,
        });
    }
    Ok(())
}

fn blob(descriptor: &Descriptor) -> String {
    format!("blobs/sha256/{}", descriptor.digest.hex())
}

/// Opens a regular file. A FIFO would block, a device would never end.
fn open(path: &Path) -> Result<File, Error> {
    let unreadable = |source| Error::Input {
        path: path.to_owned(),
        source,
    };
    let is_file = fs::metadata(path).map_err(unreadable)?.is_file();
    if !is_file {
        return Err(unreadable(io::Error::other("it is not a regular file")));
    }
    File::open(path).map_err(unreadable)
}

fn invalid(error: TarError) -> Error {
    match error {
        TarError::Input(source) => Error::Archive(source),
        error => Error::ArchiveContent(error.to_string()),
    }
}
