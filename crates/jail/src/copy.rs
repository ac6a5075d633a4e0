//! Copies a session's private files for its fork, while the session may be modifying them in any way.
//!
//! Every step goes from an open directory to one name in it and follows no symbolic link. Depth, entries and
//! bytes are bounded. Sockets, FIFOs and devices are skipped: copying them would be meaningless.

use std::ffi::{CStr, OsStr};
use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::step_error::{Step, StepError};
use crate::sys;

/// Maximum depth of directories.
const MAX_DEPTH: usize = 128;
/// Maximum number of entries overall; a cell's file system holds half as many.
const MAX_ENTRIES: usize = 131_072;
/// Bytes of a file that are copied at once.
const PIECE: u64 = 8 << 20;

/// Copies these directories of a session to the empty ones of its fork.
pub(crate) fn directories<'a>(
    from: &OwnedFd,
    to: &OwnedFd,
    names: impl Iterator<Item = &'a CStr>,
) -> Result<(), StepError> {
    const STEP: &str = "copy the session's files";
    let mut budget = MAX_ENTRIES;
    for name in names {
        let name = OsStr::from_bytes(name.to_bytes());
        let target = open_directory(&child(to, name)).step(STEP)?;
        match open_directory(&child(from, name)) {
            Ok(source) => fill(&source, &target, MAX_DEPTH, &mut budget).step(STEP)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).step(STEP),
        }
    }
    Ok(())
}

/// Returns the path of a name in an open directory. The session can change only this last component.
fn child(directory: &impl AsRawFd, name: &OsStr) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(directory.as_raw_fd().to_string())
        .join(name)
}

fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
        .open(path)
}

fn fill(from: &File, to: &File, depth: usize, budget: &mut usize) -> io::Result<()> {
    let listed = fs::read_dir(child(from, OsStr::new(".")))?;
    for entry in listed {
        *budget = budget
            .checked_sub(1)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::E2BIG))?;
        let name = entry?.file_name();
        match copy_entry(&child(from, &name), &child(to, &name), depth, budget) {
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => copied?,
        }
    }
    take_over_attributes(&from.metadata()?, to)
}

fn copy_entry(from: &Path, to: &Path, depth: usize, budget: &mut usize) -> io::Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    if kind.is_dir() {
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ELOOP))?;
        let source = open_directory(from)?;
        DirBuilder::new().mode(0o700).create(to)?;
        return fill(&source, &open_directory(to)?, depth, budget);
    }
    if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
        return Ok(());
    }
    copy_file(from, to)
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    // If it has become a FIFO meanwhile, opening it must not block.
    let source = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(from)?;
    let metadata = source.metadata()?;
    if !metadata.is_file() {
        return Ok(());
    }
    let target = OpenOptions::new().write(true).create_new(true).open(to)?;
    copy_data(&source, &target, metadata.len(), || Ok(()))?;
    take_over_attributes(&metadata, &target)
}

/// Copies the data that the file had when its length was read, and preserves holes, as long as `proceed` succeeds.
pub(crate) fn copy_data(
    mut source: &File,
    mut target: &File,
    length: u64,
    proceed: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let mut at = 0;
    while at < length {
        let Some((start, end)) = sys::next_data(source.as_fd(), at)? else {
            break;
        };
        proceed()?;
        at = end.min(length).min(start.saturating_add(PIECE));
        source.seek(SeekFrom::Start(start))?;
        target.seek(SeekFrom::Start(start))?;
        io::copy(&mut source.take(at.saturating_sub(start)), &mut target)?;
    }
    target.set_len(length)
}

fn take_over_attributes(metadata: &fs::Metadata, target: &File) -> io::Result<()> {
    target.set_permissions(Permissions::from_mode(metadata.mode() & 0o1777))?;
    target.set_times(FileTimes::new().set_modified(metadata.modified()?))
}
