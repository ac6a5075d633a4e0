//! Files that are sent to a sandbox: only those of the request, no others of this machine.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ringfence_exec::local::{O_NOFOLLOW, O_NONBLOCK};
use ringfence_policy::{Access, Mount};

use crate::error::Error;

/// Maximum number of bytes that are sent with one request.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum number of files.
const MAX_FILES: usize = 1000;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 32;

/// A file to send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SentFile {
    /// Absolute path in the sandbox.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// Reads the files of a request.
pub(crate) fn gathered(mounts: &[Mount]) -> Result<Vec<SentFile>, Error> {
    let mut gathering = Gathering::default();
    for mount in mounts {
        match mount.access {
            Access::Copy => gathering.take(&mount.host, mount.guest(), 0)?,
            Access::ReadOnly | Access::ReadWrite => {
                return Err(Error::Elsewhere("files and directories of this machine"));
            }
        }
    }
    Ok(gathering.files)
}

#[derive(Default)]
struct Gathering {
    files: Vec<SentFile>,
    bytes: u64,
}

impl Gathering {
    /// Reads the regular files below a path, and follows no link.
    fn take(&mut self, host: &Path, guest: &Path, depth: usize) -> Result<(), Error> {
        let failed = |source| Error::File {
            path: host.to_path_buf(),
            source,
        };
        let kind = fs::symlink_metadata(host).map_err(failed)?.file_type();
        if kind.is_dir() && depth < MAX_DEPTH {
            for entry in fs::read_dir(host).map_err(failed)? {
                let name = entry.map_err(failed)?.file_name();
                self.take(&host.join(&name), &guest.join(&name), depth + 1)?;
            }
        } else if kind.is_file() {
            let path = guest.to_str().ok_or(io::ErrorKind::InvalidFilename);
            let path = path.map_err(|kind| failed(kind.into()))?.to_owned();
            let bytes = read(host, MAX_BYTES - self.bytes).map_err(failed)?;
            self.bytes += bytes.len() as u64;
            if self.bytes > MAX_BYTES || self.files.len() == MAX_FILES {
                return Err(Error::TooMuch(MAX_BYTES));
            }
            self.files.push(SentFile { path, bytes });
        }
        Ok(())
    }
}

/// Reads a file, and at most a byte more than there is room for.
fn read(path: &Path, room: u64) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(O_NOFOLLOW | O_NONBLOCK)
        .open(path)?;
    let mut bytes = Vec::new();
    file.take(room + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_sent_and_nothing_else_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/a"), "one").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        let mount = |access| [Mount::new(dir.path().to_path_buf(), "/workspace", access).unwrap()];
        let sent = SentFile {
            path: "/workspace/sub/a".to_owned(),
            bytes: b"one".to_vec(),
        };
        assert_eq!(gathered(&mount(Access::Copy)).unwrap(), [sent]);
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let refused = gathered(&mount(access)).unwrap_err();
            assert!(matches!(refused, Error::Elsewhere(_)), "{refused}");
        }
        fs::write(dir.path().join("big"), vec![0; MAX_BYTES as usize]).unwrap();
        let refused = gathered(&mount(Access::Copy)).unwrap_err();
        assert!(matches!(refused, Error::TooMuch(_)), "{refused}");
    }
}
