//! Applies the layers of an image to its tree.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{FileTimes, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use ringfence_policy::Bytes;
use ringfence_tar::{Kind, Member, Reader, TarError};
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tree::{Directory, Tree, plain};

/// Prefix of a name that hides an entry of the layers below.
const WHITEOUT: &[u8] = b".wh.";
/// Name that hides all entries of its directory in the layers below.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Prefix of the notes of old storage drivers.
const NOTE: &[u8] = b".wh..wh.";

/// Bits that no file keeps: set-user-ID, set-group-ID.
const SET_IDS: u32 = 0o6000;

/// An error of applying a layer.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("cannot confine the thread that unpacks it")]
    Confine(#[source] io::Error),
    #[error(transparent)]
    Archive(#[from] TarError),
    /// The file of the layer cannot be read or decompressed.
    #[error("cannot read it")]
    Input(#[source] io::Error),
    #[error("cannot write {path:?}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{0:?} is not a path below the root: it leads upwards, is too long or too deep")]
    Path(PathBuf),
    #[error("{0:?} is no valid whiteout: expected `.wh.` and a file name")]
    Whiteout(PathBuf),
    #[error("{0:?} is a link to nothing, or to a directory")]
    HardLink(PathBuf),
    #[error("the layers have more than {0} entries together")]
    Entries(u64),
    #[error("the layers take more than {0} together")]
    Bytes(Bytes),
}

/// Bytes that an entry takes beside its content, in a common file system.
const ENTRY: u64 = 4096;

/// Remaining entries and bytes of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    pub(crate) entries: u64,
    /// Bytes of files and of the entries themselves.
    pub(crate) bytes: u64,
    /// Entries that whiteouts may find and leave, since their layer made them. Without a limit, a layer of many of both
    /// would take hours.
    pub(crate) kept: u64,
    /// The limits, for messages.
    pub(crate) most: (u64, Bytes),
}

impl Budget {
    fn take_entry(&mut self, content: &mut Content) -> Result<(), LayerError> {
        let left = self.entries.checked_sub(1);
        self.entries = left.ok_or(LayerError::Entries(self.most.0))?;
        content.entries += 1;
        self.take_bytes(ENTRY)
    }

    fn take_bytes(&mut self, bytes: u64) -> Result<(), LayerError> {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.ok_or(LayerError::Bytes(self.most.1))?;
        Ok(())
    }

    /// Takes an entry that a whiteout found and left.
    fn take_kept(&mut self) -> io::Result<()> {
        let few = || io::Error::other("the whiteouts of the image hide too little for their number");
        self.kept = self.kept.checked_sub(1).ok_or_else(few)?;
        Ok(())
    }
}

/// Content of an image's layers, and the omitted entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Content {
    /// Bytes of files.
    pub bytes: u64,
    pub entries: u64,
    /// Devices, FIFOs and other special files, which were left out.
    pub special: u64,
    /// Files that lost set-user-ID or set-group-ID.
    pub set_ids: u64,
    /// Extended attributes, such as capabilities, which were left out.
    pub attributes: u64,
}

impl Content {
    /// Describes what was not unpacked, with its number.
    pub fn left_out(&self) -> Vec<String> {
        let left_out = [
            (self.special, "devices and other special files"),
            (self.attributes, "extended attributes"),
            (self.set_ids, "set-user-ID and set-group-ID bits"),
        ];
        let named = left_out.iter().filter(|(count, _)| *count > 0);
        named.map(|(count, what)| format!("{what} ({count})")).collect()
    }

    /// Returns the bytes that it takes on disk, files and entries.
    pub(crate) fn stored(&self) -> u64 {
        self.bytes.saturating_add(self.entries.saturating_mul(ENTRY))
    }
}

/// Applies a layer to a tree.
pub(crate) fn apply(
    tree: &Tree,
    input: &mut dyn Read,
    budget: &mut Budget,
    content: &mut Content,
) -> Result<(), LayerError> {
    let mut application = Application {
        tree,
        budget,
        content,
        made: Made::default(),
    };
    let mut reader = Reader::new(input);
    while let Some(member) = reader.member()? {
        application.member(&member, &mut reader.content())?;
    }
    application.content.attributes += reader.attributes();
    Ok(reader.finish_input()?)
}

/// The paths that a layer has made itself, which its whiteouts leave. Only their hashes: a layer has many.
#[derive(Default)]
struct Made {
    paths: HashSet<u64>,
    hasher: RandomState,
}

impl Made {
    /// Adds a path and the directories on the way to it.
    fn add(&mut self, path: &Path) {
        for path in path.ancestors() {
            if !self.paths.insert(self.hasher.hash_one(path)) {
                return;
            }
        }
    }

    fn has(&self, path: &Path) -> bool {
        self.paths.contains(&self.hasher.hash_one(path))
    }
}

struct Application<'a> {
    tree: &'a Tree,
    budget: &'a mut Budget,
    content: &'a mut Content,
    made: Made,
}

impl Application<'_> {
    fn member(&mut self, member: &Member, content: &mut dyn Read) -> Result<(), LayerError> {
        let shown = || PathBuf::from(OsStr::from_bytes(&member.path));
        let path = plain(&member.path).ok_or_else(|| LayerError::Path(shown()))?;
        self.budget.take_entry(self.content)?;
        let Some(name) = path.file_name() else {
            // The root itself, whose attributes are ours.
            return match member.kind {
                Kind::Directory => Ok(()),
                _ => Err(LayerError::Path(shown())),
            };
        };
        if name.as_bytes().starts_with(WHITEOUT) {
            return self.whiteout(&path, name);
        }
        match member.kind {
            Kind::Directory => self.directory(&path, name, member).writing(&path),
            Kind::File => self.file(&path, name, member, content),
            Kind::Symlink => self.symlink(&path, name, member).writing(&path),
            Kind::HardLink => self.hard_link(&path, name, member),
            Kind::Fifo | Kind::Device | Kind::Other(_) => {
                self.content.special += 1;
                Ok(())
            }
        }
    }

    fn whiteout(&mut self, path: &Path, name: &OsStr) -> Result<(), LayerError> {
        let above = path.parent().unwrap_or(Path::new(""));
        let Some(parent) = self.tree.directory(above).writing(path)? else {
            return Ok(());
        };
        let (made, budget) = (&self.made, &mut self.budget);
        let mut keep = |path: &Path| match made.has(path) {
            true => budget.take_kept().map(|()| true),
            false => Ok(false),
        };
        let bytes = name.as_bytes();
        if bytes == OPAQUE {
            return parent.clear_but(&mut keep).writing(path);
        }
        if bytes.starts_with(NOTE) {
            return Ok(());
        }
        match &bytes[WHITEOUT.len()..] {
            b"" | b"." | b".." => Err(LayerError::Whiteout(path.to_owned())),
            hidden => parent
                .remove_but(OsStr::from_bytes(hidden), &mut keep)
                .writing(path),
        }
    }

    fn directory(&mut self, path: &Path, name: &OsStr, member: &Member) -> io::Result<()> {
        let parent = self.parent(path)?;
        if parent.kind(name)? != Some(FileType::Directory) {
            parent.remove(name)?;
            parent.create_directory(name)?;
        }
        self.made.add(&parent.path.join(name));
        parent.set_directory_mode(name, (member.mode & 0o1777) | 0o755)
    }

    fn file(
        &mut self,
        path: &Path,
        name: &OsStr,
        member: &Member,
        content: &mut dyn Read,
    ) -> Result<(), LayerError> {
        self.budget.take_bytes(member.size)?;
        let parent = self.place(path, name).writing(path)?;
        let mut file = parent.create_file(name).writing(path)?;
        copy(content, &mut file, path)?;
        self.content.bytes += member.size;
        self.content.set_ids += u64::from(member.mode & SET_IDS != 0);
        let modified = UNIX_EPOCH.checked_add(Duration::from_secs(member.modified));
        let times = FileTimes::new().set_modified(modified.unwrap_or(UNIX_EPOCH));
        file.set_permissions(Permissions::from_mode(readable(member.mode)))
            .and_then(|()| file.set_times(times))
            .writing(path)
    }

    fn symlink(&mut self, path: &Path, name: &OsStr, member: &Member) -> io::Result<()> {
        self.place(path, name)?.create_symlink(name, &member.target)
    }

    fn hard_link(&mut self, path: &Path, name: &OsStr, member: &Member) -> Result<(), LayerError> {
        let invalid = || LayerError::HardLink(path.to_owned());
        let target = plain(&member.target).ok_or_else(invalid)?;
        let first = target.file_name().ok_or_else(invalid)?;
        let above = target.parent().unwrap_or(Path::new(""));
        let from = self.tree.directory(above).writing(path)?.ok_or_else(invalid)?;
        match from.kind(first).writing(path)? {
            None | Some(FileType::Directory) => return Err(invalid()),
            Some(_) => {}
        }
        let parent = self.parent(path).writing(path)?;
        // A link to itself would remove what it leads to.
        if parent.path.join(name) == from.path.join(first) {
            return Ok(());
        }
        let parent = self.place(path, name).writing(path)?;
        from.create_hard_link(first, &parent, name).writing(path)
    }

    /// Returns the directory of a member, where its name is free.
    fn place(&mut self, path: &Path, name: &OsStr) -> io::Result<Directory> {
        let parent = self.parent(path)?;
        parent.remove(name)?;
        self.made.add(&parent.path.join(name));
        Ok(parent)
    }

    /// Returns the directory of a member, which is made if it is missing.
    fn parent(&mut self, path: &Path) -> io::Result<Directory> {
        let Self {
            tree,
            budget,
            content,
            ..
        } = self;
        tree.make(path.parent().unwrap_or(Path::new("")), &mut |_| {
            budget.take_entry(content).map_err(io::Error::other)
        })
    }
}

/// Returns the permission bits of a file: its owner's for everybody, since the owner inside may be another
/// user, without set-user-ID and set-group-ID.
fn readable(mode: u32) -> u32 {
    let executable = match mode & 0o111 {
        0 => 0,
        _ => 0o111,
    };
    (mode & 0o755) | 0o444 | executable
}

/// Copies the content of a file. Errors of the archive and of the disk are distinct.
fn copy(content: &mut dyn Read, file: &mut dyn Write, path: &Path) -> Result<(), LayerError> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match content.read(&mut buffer).map_err(LayerError::Input)? {
            0 => return Ok(()),
            read => file.write_all(&buffer[..read]).writing(path)?,
        }
    }
}

/// Adds the path to an error of writing.
trait Writing<T> {
    fn writing(self, path: &Path) -> Result<T, LayerError>;
}

impl<T> Writing<T> for io::Result<T> {
    fn writing(self, path: &Path) -> Result<T, LayerError> {
        self.map_err(|source| LayerError::Write {
            path: path.to_owned(),
            source,
        })
    }
}
