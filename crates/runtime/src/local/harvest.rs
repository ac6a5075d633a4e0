//! Collects what a program left in its output directory, without following anything that it planted.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ringfence_policy::OutputFile;

/// The most files that are listed.
const MAX_FILES: usize = 1_000;
/// The deepest directory that is entered.
const MAX_DEPTH: usize = 16;

/// From `fcntl.h`; the same on x86_64 and aarch64 but for `O_DIRECTORY` and `O_NOFOLLOW`.
const O_NONBLOCK: i32 = 0o4000;
#[cfg(target_arch = "aarch64")]
const O_DIRECTORY: i32 = 0o40000;
#[cfg(target_arch = "aarch64")]
const O_NOFOLLOW: i32 = 0o100000;
#[cfg(not(target_arch = "aarch64"))]
const O_DIRECTORY: i32 = 0o200000;
#[cfg(not(target_arch = "aarch64"))]
const O_NOFOLLOW: i32 = 0o400000;

/// What was found, and what could not be taken along.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Harvest {
    pub(super) files: Vec<OutputFile>,
    pub(super) warnings: Vec<String>,
}

/// Lists the regular files below `source` and, if there is a `destination`, copies them to it.
///
/// Only regular files are taken: no links, devices, pipes or sockets. `limit` bounds the bytes copied, which a
/// sparse file could otherwise make any number.
pub(super) fn collect(source: &OwnedFd, destination: Option<&Path>, limit: u64) -> Harvest {
    let mut harvest = Harvest::default();
    let mut left = limit;
    let result = source.try_clone().and_then(|source| {
        walk(
            &File::from(source),
            Path::new(""),
            destination,
            &mut left,
            &mut harvest,
        )
    });
    if let Err(error) = result {
        harvest
            .warnings
            .push(format!("not all output files were collected: {error}"));
    }
    harvest.files.sort_by(|a, b| a.path.cmp(&b.path));
    harvest
}

fn walk(
    directory: &File,
    prefix: &Path,
    destination: Option<&Path>,
    left: &mut u64,
    harvest: &mut Harvest,
) -> io::Result<()> {
    let handle = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    for entry in fs::read_dir(&handle)? {
        let name = entry?.file_name();
        let path = prefix.join(&name);
        if harvest.files.len() >= MAX_FILES || path.components().count() > MAX_DEPTH {
            return Err(io::Error::other(format!(
                "more than {MAX_FILES} files or {MAX_DEPTH} levels"
            )));
        }
        // The name is the last component, so nothing planted is followed; O_NONBLOCK, so that no pipe holds us up.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(O_NOFOLLOW | O_NONBLOCK)
            .open(handle.join(&name));
        let Ok(file) = opened else {
            harvest.warnings.push(format!(
                "{} is not a readable regular file and was left",
                path.display()
            ));
            continue;
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            walk(&file, &path, destination, left, harvest)?;
        } else if metadata.is_file() {
            let bytes = metadata.len();
            if let Some(destination) = destination {
                *left = left
                    .checked_sub(bytes)
                    .ok_or_else(|| io::Error::other(format!("{} exceeds the disk limit", path.display())))?;
                copy(file, &destination.join(&path), bytes)?;
            }
            harvest.files.push(OutputFile {
                path: path.display().to_string(),
                bytes,
            });
        } else {
            harvest
                .warnings
                .push(format!("{} is not a regular file and was left", path.display()));
        }
    }
    Ok(())
}

/// The destination belongs to the caller, but a link planted there by an earlier run must not lead us astray:
/// the file is made anew beside its place and renamed.
fn copy(mut source: File, target: &Path, bytes: u64) -> io::Result<()> {
    let parent = target.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(parent)?;
    let mut name = std::ffi::OsString::from(".ringfence-");
    name.push(target.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    let temporary = parent.join(name);
    let _ = fs::remove_file(&temporary);
    let mut file = File::create_new(&temporary)?;
    let copied = io::copy(&mut io::Read::take(&mut source, bytes), &mut file);
    let placed = copied.and_then(|_| fs::rename(&temporary, target));
    if placed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    placed
}

/// A handle on a directory of the host.
pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_DIRECTORY | O_NOFOLLOW)
        .open(path)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn fixture() -> (tempfile::TempDir, OwnedFd) {
        let source = tempfile::tempdir().unwrap();
        fs::create_dir(source.path().join("sub")).unwrap();
        fs::write(source.path().join("sub/a.txt"), "hello").unwrap();
        symlink("/etc/passwd", source.path().join("planted")).unwrap();
        symlink("/etc", source.path().join("planted-directory")).unwrap();
        let handle = open_directory(source.path()).unwrap();
        (source, handle)
    }

    #[test]
    fn takes_regular_files_and_follows_nothing() {
        let (_source, handle) = fixture();
        let target = tempfile::tempdir().unwrap();
        let harvest = collect(&handle, Some(target.path()), 1 << 20);
        assert_eq!(
            harvest.files,
            [OutputFile {
                path: "sub/a.txt".to_owned(),
                bytes: 5
            }]
        );
        assert_eq!(harvest.warnings.len(), 2);
        assert_eq!(
            fs::read_to_string(target.path().join("sub/a.txt")).unwrap(),
            "hello"
        );
        assert!(!target.path().join("planted").exists());
    }

    #[test]
    fn a_sparse_file_does_not_fill_the_host() {
        let (source, handle) = fixture();
        File::create(source.path().join("huge"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let target = tempfile::tempdir().unwrap();
        let harvest = collect(&handle, Some(target.path()), 1 << 20);
        assert!(
            harvest
                .warnings
                .iter()
                .any(|warning| warning.contains("disk limit")),
            "{harvest:?}"
        );
        assert!(!target.path().join("huge").exists());
    }

    #[test]
    fn a_link_at_the_destination_is_replaced_not_followed() {
        let (_source, handle) = fixture();
        let target = tempfile::tempdir().unwrap();
        let victim = target.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::create_dir(target.path().join("sub")).unwrap();
        symlink(&victim, target.path().join("sub/a.txt")).unwrap();
        collect(&handle, Some(target.path()), 1 << 20);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(
            fs::read_to_string(target.path().join("sub/a.txt")).unwrap(),
            "hello"
        );
    }
}
