//! Files that cross between an engine and a container: a directory's content as a stream of records.
//!
//! `ringfence-agent collect DIR` writes what is new in a directory, `ringfence-agent place DIR` puts there what it reads.
//! Both run as the container's user beside its guests, which can do the same: the engine takes their word as a guest's.

mod collect;
mod place;
mod record;

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::hash::Hasher;
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub use collect::collect;
pub use place::place;
pub use record::{Attributes, FilePath, MAX_PATH, Reason, Record, copy_content};

/// The deepest path, in names.
pub const MAX_DEPTH: usize = 32;
/// The most entries that are looked at in a directory and all below it.
pub const MAX_ENTRIES: usize = 65_536;

/// The state of a directory in which nothing lies.
pub const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;

/// The entry of the program beside the agent: `collect DIR BYTES` or `place DIR`.
pub(super) fn main(arguments: &[OsString]) -> ExitCode {
    let (input, output) = (BufReader::new(io::stdin()), BufWriter::new(io::stdout()));
    let done = match arguments {
        [verb, root, limit] if verb == "collect" => match limit.to_str().and_then(|text| text.parse().ok()) {
            Some(limit) => collect(Path::new(root), limit, input, output),
            None => Err(io::ErrorKind::InvalidInput.into()),
        },
        [verb, root] if verb == "place" => place(Path::new(root), input, output),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns a number that changes with anything in a file but its name. Only the kernel sets the time of a change, so no
/// program can write to a file and keep it.
pub fn identity(found: &Metadata) -> u64 {
    let mut hash = Fnv(EMPTY);
    for number in [found.ino(), found.size(), u64::from(found.mode())] {
        hash.write_u64(number);
    }
    hash.write_i64(found.ctime());
    hash.write_i64(found.ctime_nsec());
    hash.finish()
}

/// Returns a number that changes with anything in a directory or below it; [`EMPTY`] if nothing lies there.
pub fn state(root: &Path) -> u64 {
    let (mut hash, mut left) = (Fnv(EMPTY), MAX_ENTRIES);
    mix(root, PathBuf::new(), &mut hash, &mut left);
    hash.finish()
}

fn mix(root: &Path, below: PathBuf, hash: &mut Fnv, left: &mut usize) {
    let Ok(listed) = fs::read_dir(root.join(&below)) else {
        // Not as if nothing lay there.
        return hash.write_u8(1);
    };
    for entry in listed.flatten() {
        let Some(rest) = left.checked_sub(1) else { return };
        *left = rest;
        hash.write(entry.file_name().as_bytes());
        let Ok(found) = entry.metadata() else { continue };
        hash.write_u64(identity(&found));
        let path = below.join(entry.file_name());
        if found.is_dir() && path.components().count() < MAX_DEPTH {
            mix(root, path, hash, left);
        }
    }
}

/// FNV-1a: the engine and its agent must agree, and nobody gains by a collision in a directory of their own.
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
