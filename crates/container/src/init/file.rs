//! Writes the init program to a file that containers can mount.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

/// The init program, a static binary: it needs nothing of an image.
const PROGRAM: &[u8] = include_bytes!(env!("RINGFENCE_INIT"));

/// Path of the program in a container.
pub const INSIDE: &str = "/.ringfence/init";

static WRITING: Mutex<()> = Mutex::new(());

/// A file of ours that containers mount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FixedFile {
    pub(crate) name: &'static str,
    pub(crate) bytes: &'static [u8],
    pub(crate) mode: u32,
}

/// Returns the path of the program in this private directory; creates both if necessary.
///
/// # Errors
/// If the file cannot be written, or the directory belongs to another user or is open to others.
pub fn file(directory: &Path) -> io::Result<PathBuf> {
    let program = FixedFile {
        name: "init",
        bytes: PROGRAM,
        mode: 0o555,
    };
    fixed(directory, program)
}

/// Returns the path of a file in this private directory; creates both if necessary.
///
/// # Errors
/// As [`file`].
pub(crate) fn fixed(directory: &Path, file: FixedFile) -> io::Result<PathBuf> {
    let FixedFile { name, bytes, .. } = file;
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let metadata = fs::symlink_metadata(directory)?;
    // `/proc/self` belongs to our own user.
    let ours = fs::metadata("/proc/self")?.uid() == metadata.uid();
    if !metadata.is_dir() || !ours || metadata.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the directory of the init is open to others",
        ));
    }
    let digest = Sha256::digest(bytes);
    let digest: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let path = directory.join(format!("{name}-{digest}"));
    // Two threads writing at once would take each other's partial file for a stale one of their own.
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    if !is_whole(&path, file) {
        write(&path, file)?;
    }
    Ok(path)
}

/// Returns `true` if the file has exactly these bytes and is not writable.
fn is_whole(path: &Path, FixedFile { bytes, mode, .. }: FixedFile) -> bool {
    let kind = fs::symlink_metadata(path);
    kind.is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o7777 == mode)
        && fs::read(path).is_ok_and(|found| found == bytes)
}

/// Writes the file atomically, to a temporary path first.
fn write(path: &Path, file: FixedFile) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    // A stale file of a process that had our process id.
    drop(fs::remove_file(&temporary));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&temporary)
        .and_then(|mut opened| {
            opened.write_all(file.bytes)?;
            opened.set_permissions(fs::Permissions::from_mode(file.mode))?;
            opened.sync_all()
        })
        .and_then(|()| place(&temporary, path, file));
    written.inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Gives a file its name. If another process was faster, its file stays: containers that are being created know it by its
/// identity.
fn place(temporary: &Path, path: &Path, file: FixedFile) -> io::Result<()> {
    match fs::hard_link(temporary, path) {
        Err(_) if !is_whole(path, file) => fs::rename(temporary, path),
        _ => fs::remove_file(temporary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_changed_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("init");
        let path = file(&place).unwrap();
        assert_eq!(fs::read(&path).unwrap(), PROGRAM);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(file(&place).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
        fs::remove_file(&path).unwrap();
        fs::write(&path, &PROGRAM[1..]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
        file(&place).unwrap();
        assert_eq!(fs::read(&path).unwrap(), PROGRAM);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o555);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(
            file(dir.path()).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn the_program_is_small_and_static() {
        assert!(PROGRAM.len() <= 1_600_000, "{}", PROGRAM.len());
        // A program that needs a loader names it.
        assert!(!PROGRAM.windows(7).any(|bytes| bytes == b"/ld-lin"));
    }
}
