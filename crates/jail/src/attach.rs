//! Mounts at paths of guests.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::sys;

/// Attaches a mount at a guest's path below the root; creates a directory or an empty file as mount point if
/// necessary.
///
/// Guests may be modifying directories on the way: no symbolic link is followed, for that would lead into the
/// host's root.
pub(crate) fn attach_at(root: BorrowedFd<'_>, guest: &Path, mount: &OwnedFd) -> io::Result<()> {
    let is_directory = metadata(mount)?.is_dir();
    let mut place = root.try_clone_to_owned()?;
    let mut names = guest.strip_prefix("/").unwrap_or(guest).iter().peekable();
    while let Some(name) = names.next() {
        let name = c_path(Path::new(name))?;
        place = match sys::open_without_links(place.as_fd(), &name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if is_directory || names.peek().is_some() {
                    sys::mkdir_at(place.as_fd(), &name, 0o755)?;
                } else {
                    sys::make_file_at(place.as_fd(), &name, 0o644)?;
                }
                sys::open_without_links(place.as_fd(), &name)?
            }
            opened => opened?,
        };
    }
    sys::move_mount_onto(mount.as_fd(), place.as_fd())
}

pub(crate) fn metadata(handle: &OwnedFd) -> io::Result<fs::Metadata> {
    fs::metadata(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// Converts a C string to a path.
pub(crate) fn os_path(path: &CStr) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes()))
}

pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
