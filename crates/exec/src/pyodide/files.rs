//! Files copied into a worker's memory and out of it. No host directory is mounted for programs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_policy::{Access, Mount};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

use super::error::RunError;
use crate::local::Workdir;

/// Maximum number of bytes copied into a worker's memory.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 32;

/// Contents in base64, by path.
pub(super) type Files = BTreeMap<String, String>;

/// Reads the files of mounts.
pub(super) fn gathered(mounts: &[Mount]) -> Result<Files, RunError> {
    let mut gathering = Gathering::default();
    for mount in mounts {
        if mount.access == Access::ReadWrite {
            return Err(RunError::Elsewhere("a directory of the host that can be written"));
        }
        gathering.take(&mount.host, mount.guest(), 0)?;
    }
    Ok(gathering.files)
}

/// Adds the files below a directory of ours, whose links are skipped, to those that are gathered already.
pub(super) fn gather(host: &Path, guest: &Path, files: &mut Files) -> Result<(), RunError> {
    let mut gathering = Gathering::default();
    gathering.take(host, guest, 0)?;
    files.append(&mut gathering.files);
    Ok(())
}

#[derive(Default)]
struct Gathering {
    files: Files,
    bytes: u64,
}

impl Gathering {
    /// Reads the files below a path. Links are skipped: they could lead anywhere.
    fn take(&mut self, host: &Path, guest: &Path, depth: usize) -> Result<(), RunError> {
        let failed = |source| RunError::File {
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
            let bytes = self.read(host).map_err(failed)?;
            let name = guest
                .to_str()
                .ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
            self.files.insert(name.to_owned(), STANDARD.encode(bytes?));
        }
        Ok(())
    }

    /// Reads a file, within the remaining limit.
    fn read(&mut self, path: &Path) -> io::Result<Result<Vec<u8>, RunError>> {
        let mut bytes = Vec::new();
        let room = MAX_BYTES - self.bytes;
        // Another program may write there: the file may have become a link since, or lie behind one.
        open_without_links(path)?.take(room + 1).read_to_end(&mut bytes)?;
        self.bytes += (bytes.len() as u64).min(room);
        Ok(match bytes.len() as u64 > room {
            true => Err(RunError::TooMuch(MAX_BYTES)),
            false => Ok(bytes),
        })
    }
}

/// Opens a regular file by a path without symbolic links. A link on the way, a pipe or a device is an error.
///
/// # Errors
/// If it is not a regular file, or cannot be opened.
fn open_without_links(path: &Path) -> io::Result<fs::File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let file = fs::File::from(opened);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Writes a program's output files to a directory, from which they are delivered like any program's. One that is there
/// with this content is not touched.
pub(super) fn put_down(files: &Files, directory: &Workdir) -> io::Result<()> {
    let output = directory.path().join("output");
    for (name, content) in files {
        let bytes = STANDARD.decode(content).map_err(io::Error::other)?;
        let path = output.join(plain(name)?);
        path.parent().map(fs::create_dir_all).transpose()?;
        if fs::read(&path).ok().as_ref() != Some(&bytes) {
            fs::write(path, bytes)?;
        }
    }
    Ok(())
}

/// Accepts only a relative path without `..`: names come from a guest.
fn plain(name: &str) -> io::Result<PathBuf> {
    let path = Path::new(name);
    let down = |component| matches!(component, Component::Normal(_));
    match !name.is_empty() && !name.contains('\0') && path.components().all(down) {
        true => Ok(path.to_path_buf()),
        false => Err(io::Error::other("a file's name leads somewhere else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_down() {
        for name in ["a", "a/b", "a b/ü"] {
            assert_eq!(plain(name).unwrap(), Path::new(name));
        }
        for name in ["", "/etc/passwd", "..", "a/../../b", "a\0b", "./../x"] {
            assert!(plain(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn mounts_are_copied_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/a"), "one").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link")).unwrap();
        let mount = |access| Mount::new(dir.path().to_path_buf(), "/data", access).unwrap();
        let files = gathered(&[mount(Access::ReadOnly)]).unwrap();
        assert_eq!(
            files,
            Files::from([("/data/sub/a".to_owned(), "b25l".to_owned())])
        );
        assert!(gathered(&[mount(Access::ReadWrite)]).is_err());
        fs::write(dir.path().join("big"), vec![0; MAX_BYTES as usize]).unwrap();
        let refused = gathered(&[mount(Access::ReadOnly)]).unwrap_err();
        assert!(matches!(refused, RunError::TooMuch(_)), "{refused}");
    }
}
