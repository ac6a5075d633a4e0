//! Programs of the init that work on a container's or sandbox's files, or connect to its ports.
//!
//! `ringfence-init collect DIR` writes the new files of a directory, `ringfence-init place DIR` stores the
//! files it reads; an [`Operation`] does what the API of sandboxes offers. All of them run as the guests' user,
//! beside guests, which can do the same: the server trusts their output no more than a guest's.

mod archive;
mod cancel;
mod collect;
mod connect;
mod copy;
mod directory;
mod entry;
mod error;
mod extract;
mod list;
mod make_directory;
mod operate;
mod operation;
mod place;
mod read;
mod record;
mod remove;
mod rename;
mod report;
mod resolve;
mod rights;
mod staged;
mod stream;
mod watch;
mod write;

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::hash::Hasher;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use collect::collect;
pub(super) use directory::FileOwner;
pub use entry::{Copied, Entry, EntryType, FileIdentity, ListEnd, ListLine, MadeDirectory, Written};
pub use error::{FileError, FileErrorKind};
pub use operation::Operation;
pub(crate) use operation::{packs_root, stages};
pub use place::place;
pub use read::FileRange;
pub use record::{Attributes, FilePath, MAX_PATH, Reason, Record, copy_content};
pub use report::{SkipReason, SkippedEntry, TreeReport};
pub use watch::{Event, EventType, MAX_WATCHES, WatchDepth};

use ringfence_tar::Kind;

use crate::steps::SESSION_FD;
use crate::sys;

/// Maximum depth of a path, in components.
pub const MAX_DEPTH: usize = 32;
/// Maximum number of entries processed in a directory tree.
pub const MAX_ENTRIES: usize = 65_536;

/// Maximum depth of a tree that an [`Operation`] works on, in directories.
pub const MAX_TREE_DEPTH: usize = 128;
/// Maximum number of entries of such a tree, if it is copied, archived or extracted.
pub const MAX_TREE_ENTRIES: usize = 1_000_000;

/// Number of the descriptor of a root's changes, for [`Operation::PackRoot`].
pub(crate) const CHANGES_FD: RawFd = SESSION_FD;

/// Type of the members of an archive that represent removed entries of a root. Other programs' archives do
/// not have it.
const WHITEOUT: Kind = Kind::Other(b'W');

/// Fingerprint of an empty directory.
pub const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// Runs one of the programs: `collect DIR BYTES`, `place DIR`, or an [`Operation`] by its arguments. An operation is that of
/// `user`, or of the process's own.
pub(super) fn main(arguments: &[OsString], user: Option<FileOwner>) -> ExitCode {
    // A write beyond the limit on a file's size fails, as one on a full disk does, and leaves no staged file behind.
    let _ = sys::block_signals(&[libc::SIGXFSZ]);
    let (input, output) = (BufReader::new(io::stdin()), BufWriter::new(io::stdout()));
    let done = match arguments {
        [verb, root, limit] if verb == "collect" => match limit.to_str().and_then(|text| text.parse().ok()) {
            Some(limit) => collect(Path::new(root), limit, input, output),
            None => Err(io::ErrorKind::InvalidInput.into()),
        },
        [verb, root] if verb == "place" => place(Path::new(root), input, output),
        operation => return operate(operation, user),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn operate(arguments: &[OsString], user: Option<FileOwner>) -> ExitCode {
    let done = Operation::parse(arguments).and_then(|operation| operate::operate(&operation, user));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = serde_json::to_string(&error).unwrap_or_default();
            let _ = writeln!(io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a fingerprint of a file, which changes with everything except its name. Only the kernel sets the
/// change time (ctime), so no program can write to a file and keep its fingerprint.
pub fn identity(found: &Metadata) -> u64 {
    let mut hash = Fnv(EMPTY);
    for number in [found.ino(), found.size(), u64::from(found.mode())] {
        hash.write_u64(number);
    }
    hash.write_i64(found.ctime());
    hash.write_i64(found.ctime_nsec());
    hash.finish()
}

/// Returns a fingerprint of a directory tree, which changes with everything in it; [`EMPTY`] for an empty
/// one.
pub fn state(root: &Path) -> u64 {
    let (mut tree, mut left) = (TreeState::new(), MAX_ENTRIES);
    add_tree(root, PathBuf::new(), &mut tree, &mut left);
    tree.0
}

fn add_tree(root: &Path, below: PathBuf, tree: &mut TreeState, left: &mut usize) {
    let Ok(listed) = fs::read_dir(root.join(&below)) else {
        // Differs from an empty directory.
        return tree.add(&below, 1);
    };
    for entry in listed.flatten() {
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        let Ok(found) = entry.metadata() else { continue };
        let path = below.join(entry.file_name());
        tree.add(&path, identity(&found));
        if found.is_dir() && path.components().count() < MAX_DEPTH && path.as_os_str().len() <= MAX_PATH {
            add_tree(root, path, tree, left);
        }
    }
}

/// Fingerprint of a directory tree: a sum of the entries' hashes, so that their order does not matter.
#[derive(Clone, Copy)]
struct TreeState(u64);

impl TreeState {
    fn new() -> Self {
        Self(EMPTY)
    }

    fn add(&mut self, path: &Path, identity: u64) {
        let mut hash = Fnv(EMPTY);
        hash.write(path.as_os_str().as_bytes());
        hash.write_u64(identity);
        self.0 = self.0.wrapping_add(hash.finish());
    }
}

/// The hash function FNV-1a: server and init must agree on it. Collisions are harmless, since a program could
/// cause them only in its own directory.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests;
