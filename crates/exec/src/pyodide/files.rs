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

/// Adds the files that other programs left in a directory of ours to those that are gathered already. Links are skipped. Returns the
/// names of files that cannot be given, as no text says them.
pub(super) fn gather_earlier(host: &Path, guest: &Path, files: &mut Files) -> Result<Vec<String>, RunError> {
    let mut gathering = Gathering {
        skips_nameless: true,
        ..Gathering::default()
    };
    gathering.take(host, guest, 0)?;
    files.append(&mut gathering.files);
    Ok(gathering.nameless)
}

#[derive(Default)]
struct Gathering {
    files: Files,
    bytes: u64,
    /// Skips files whose names are not UTF-8, instead of failing.
    skips_nameless: bool,
    /// Names of skipped files, with replacement characters.
    nameless: Vec<String>,
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
            match guest.to_str() {
                Some(name) => {
                    let bytes = self.read(host).map_err(failed)?;
                    self.files.insert(name.to_owned(), STANDARD.encode(bytes?));
                }
                None if self.skips_nameless => self.nameless.push(guest.to_string_lossy().into_owned()),
                None => return Err(failed(io::ErrorKind::InvalidFilename.into())),
            }
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

/// Writes a program's output files to a directory of ours, from which they are delivered like any program's. One that is there
/// with this content is not touched. Returns a warning for each that cannot be written.
pub(super) fn put_down(files: &Files, output: &Path) -> Vec<String> {
    let failed = files.iter().filter_map(|(name, content)| {
        let error = put_down_file(name, content, output).err()?;
        Some(format!("{} could not be collected: {error}", name.escape_debug()))
    });
    failed.collect()
}

fn put_down_file(name: &str, content: &str, output: &Path) -> io::Result<()> {
    let bytes = STANDARD.decode(content).map_err(io::Error::other)?;
    let name = plain(name)?;
    let path = output.join(&name);
    if fs::read(&path).ok().as_ref() == Some(&bytes) {
        return Ok(());
    }
    // A file of an earlier program may have become a directory of this one, and a directory a file.
    let above = name.ancestors().skip(1).map(|above| output.join(above));
    for file in above.filter(|above| above.is_file()) {
        fs::remove_file(file)?;
    }
    if path.is_dir() {
        fs::remove_dir_all(&path)?;
    }
    path.parent().map(fs::create_dir_all).transpose()?;
    fs::write(path, bytes)
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
    fn files_and_directories_take_the_place_of_each_other() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "old").unwrap();
        fs::create_dir_all(dir.path().join("dir/sub")).unwrap();
        let content = STANDARD.encode("new");
        let files = ["dir", "file/below/a", "../b"].map(|name| (name.to_owned(), content.clone()));
        let told = put_down(&Files::from(files), dir.path());
        assert_eq!(
            told,
            ["../b could not be collected: a file's name leads somewhere else"]
        );
        for name in ["dir", "file/below/a"] {
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"new", "{name}");
        }
    }

    #[test]
    fn names_that_are_no_text_cost_their_own_files_only() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"n\xff")), "2").unwrap();
        let mut files = Files::new();
        let skipped = gather_earlier(dir.path(), Path::new("/output"), &mut files).unwrap();
        assert_eq!(skipped, ["/output/n\u{fffd}"]);
        assert_eq!(Vec::from_iter(files.keys()), ["/output/a"]);
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
