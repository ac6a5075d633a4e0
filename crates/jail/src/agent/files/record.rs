//! The records of a stream of files.

use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::MAX_DEPTH;

/// The longest path, in bytes.
pub const MAX_PATH: usize = 4095;
/// The longest payload of a record.
const MAX_PAYLOAD: usize = MAX_PATH + 64;

/// The path of an entry below its directory: names alone, none of which leads upwards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(PathBuf);

impl FilePath {
    /// Returns the path, if every part of it is a name.
    pub fn new(path: &Path) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        let plain: PathBuf = path
            .components()
            .map_while(|part| match part {
                Component::Normal(name) => Some(name),
                _ => None,
            })
            .collect();
        let usable = !bytes.is_empty()
            && bytes.len() <= MAX_PATH
            && !bytes.contains(&0)
            && plain.as_os_str() == path.as_os_str()
            && plain.components().count() <= MAX_DEPTH;
        usable.then_some(Self(plain))
    }

    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

/// Why an entry is not taken along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is no regular file and no directory.
    Kind,
    /// It cannot be read or written.
    Denied,
    /// Its path is too long, or too deep.
    Path,
    /// All that is taken along together would be too much, or there is no room for it.
    Room,
    /// It was changed while it was read.
    Changed,
}

/// Permission bits and modification time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, without set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    /// Modification time, in seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds of the modification time.
    pub nanos: u32,
}

impl Attributes {
    /// Returns the attributes of a file.
    pub fn of(file: &Metadata) -> Self {
        Self {
            mode: file.mode() & 0o777,
            seconds: file.mtime(),
            nanos: file.mtime_nsec().try_into().unwrap_or_default(),
        }
    }

    /// Sets them on a file. A time before 1970 or beyond the clock's range is left out.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn apply(&self, file: &File) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(self.mode))?;
        let seconds = u64::try_from(self.seconds).ok();
        let since = seconds.map(|seconds| Duration::new(seconds, self.nanos.min(999_999_999)));
        match since.and_then(|since| UNIX_EPOCH.checked_add(since)) {
            Some(time) => file.set_modified(time),
            None => Ok(()),
        }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A file that the reader has, as it was when it had this identity.
    Known {
        /// Where.
        path: FilePath,
        /// What [`super::identity`] said of it.
        identity: u64,
    },
    /// A file that is as the reader knows it.
    Same(FilePath),
    /// A directory.
    Directory(FilePath),
    /// A file, whose content follows the record.
    File {
        /// Where.
        path: FilePath,
        /// What [`super::identity`] says of it.
        identity: u64,
        /// The length of its content.
        size: u64,
        attributes: Attributes,
    },
    /// An entry that is not taken along. A file that was sent before is none, either.
    Left {
        /// Where; as it is, for it need not be a path that can be taken along.
        path: PathBuf,
        /// Why.
        why: Reason,
    },
    /// An entry that shall not be there.
    Gone(FilePath),
    /// The last one; whether all that lies there was told of.
    End {
        /// Whether it was.
        complete: bool,
    },
}

impl Record {
    /// Writes it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        let (kind, fields, path) = match self {
            Self::Known { path, identity } => (b'K', identity.to_le_bytes().to_vec(), path.as_path()),
            Self::Same(path) => (b'S', Vec::new(), path.as_path()),
            Self::Directory(path) => (b'D', Vec::new(), path.as_path()),
            Self::File {
                path,
                identity,
                size,
                attributes,
            } => {
                let mut fields = identity.to_le_bytes().to_vec();
                fields.extend(size.to_le_bytes());
                fields.extend(attributes.mode.to_le_bytes());
                fields.extend(attributes.seconds.to_le_bytes());
                fields.extend(attributes.nanos.to_le_bytes());
                (b'F', fields, path.as_path())
            }
            Self::Left { path, why } => (b'L', vec![*why as u8], path.as_path()),
            Self::Gone(path) => (b'G', Vec::new(), path.as_path()),
            Self::End { complete } => (b'E', vec![u8::from(*complete)], Path::new("")),
        };
        let path = path.as_os_str().as_bytes();
        let path = &path[..path.len().min(MAX_PATH)];
        let length = u32::try_from(fields.len() + path.len()).map_err(io::Error::other)?;
        out.write_all(&[kind])?;
        out.write_all(&length.to_le_bytes())?;
        out.write_all(&fields)?;
        out.write_all(path)
    }

    /// Reads the next one; the content of a file is the reader's to take, all of it.
    ///
    /// # Errors
    /// If there is none, or what comes is none.
    pub fn read(input: &mut (impl Read + ?Sized)) -> io::Result<Self> {
        let [kind, length @ ..] = array::<5>(input)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_PAYLOAD {
            return Err(senseless());
        }
        let mut payload = vec![0; length];
        input.read_exact(&mut payload)?;
        let mut fields = &payload[..];
        let record = match kind {
            b'K' => Self::Known {
                identity: u64::from_le_bytes(array(&mut fields)?),
                path: file_path(fields)?,
            },
            b'S' => Self::Same(file_path(fields)?),
            b'D' => Self::Directory(file_path(fields)?),
            b'F' => Self::File {
                identity: u64::from_le_bytes(array(&mut fields)?),
                size: u64::from_le_bytes(array(&mut fields)?),
                attributes: Attributes {
                    mode: u32::from_le_bytes(array(&mut fields)?) & 0o777,
                    seconds: i64::from_le_bytes(array(&mut fields)?),
                    nanos: u32::from_le_bytes(array(&mut fields)?),
                },
                path: file_path(fields)?,
            },
            b'L' if length <= MAX_PATH + 1 => Self::Left {
                why: reason(array(&mut fields)?)?,
                path: PathBuf::from(OsStr::from_bytes(fields)),
            },
            b'G' => Self::Gone(file_path(fields)?),
            b'E' => Self::End {
                complete: array(&mut fields)? == [1],
            },
            _ => return Err(senseless()),
        };
        Ok(record)
    }
}

fn reason([byte]: [u8; 1]) -> io::Result<Reason> {
    let all = [
        Reason::Kind,
        Reason::Denied,
        Reason::Path,
        Reason::Room,
        Reason::Changed,
    ];
    let found = all.into_iter().find(|reason| *reason as u8 == byte);
    found.ok_or_else(senseless)
}

/// Copies a file's content, `size` bytes; what is missing of it is made up of zeros, so that the next record is found.
/// Returns whether all of it was there.
///
/// # Errors
/// If it cannot be written.
pub fn copy_content(size: u64, from: impl Read, to: &mut (impl Write + ?Sized)) -> io::Result<bool> {
    let copied = io::copy(&mut from.take(size), to)?;
    let missing = size - copied;
    io::copy(&mut io::repeat(0).take(missing), to)?;
    Ok(missing == 0)
}

fn file_path(bytes: &[u8]) -> io::Result<FilePath> {
    FilePath::new(Path::new(OsStr::from_bytes(bytes))).ok_or_else(senseless)
}

fn array<const N: usize>(input: &mut (impl Read + ?Sized)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn senseless() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "what comes is no record of a file")
}
