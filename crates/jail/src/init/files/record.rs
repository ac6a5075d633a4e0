//! Records of the file stream.

use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::MAX_DEPTH;

/// Maximum length of a path, in bytes.
pub const MAX_PATH: usize = 4095;
/// Maximum length of a record's payload.
const MAX_PAYLOAD: usize = MAX_PATH + 64;

/// A relative path of plain components: it cannot lead upwards.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(PathBuf);

impl FilePath {
    /// Returns the path, if all its components are plain names.
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

    /// Returns the path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

/// A reason to omit an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Neither a regular file nor a directory.
    Kind,
    /// Not readable or writable.
    Denied,
    /// Path too long or too deep.
    Path,
    /// Size limit exceeded, or no space left.
    Room,
    /// Modified during the read.
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

    /// Sets the attributes of a file. A time before 1970 or beyond the clock's range is left out.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A file that the reader has, with its fingerprint.
    Known {
        path: FilePath,
        /// [`super::identity`] of the file.
        identity: u64,
    },
    /// A file that is unchanged since its [`Record::Known`].
    Same(FilePath),
    Directory(FilePath),
    /// A file; its contents follow the record.
    File {
        path: FilePath,
        /// [`super::identity`] of the file.
        identity: u64,
        /// Length of the file's contents.
        size: u64,
        attributes: Attributes,
    },
    /// An omitted entry. If a file of this path was sent before, it is invalid.
    Left {
        /// Path, unvalidated: it may be too long or too deep.
        path: PathBuf,
        why: Reason,
    },
    /// An entry to be removed.
    Gone(FilePath),
    /// [`super::state`] of the directory that the records before describe exactly.
    State(u64),
    /// The last record.
    End {
        /// Set if every entry was reported.
        complete: bool,
    },
}

impl Record {
    /// Writes the record.
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
            Self::State(state) => (b'T', state.to_le_bytes().to_vec(), Path::new("")),
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

    /// Reads the next record; the caller must then consume the whole contents of a file.
    ///
    /// # Errors
    /// If there is none, or it is invalid.
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
            b'T' => Self::State(u64::from_le_bytes(array(&mut fields)?)),
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

/// Copies `size` bytes of a file's contents; pads a short file with zeros, so that the next record can be
/// found. Returns `true` if no padding was needed.
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
    io::Error::new(
        io::ErrorKind::InvalidData,
        "expected a record of a file, got other data",
    )
}
