//! Mounts a file or directory at a path that no guest can change, optionally so that its owner appears as another
//! user (mount_setattr(2), `MOUNT_ATTR_IDMAP`).

use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::mount_point::FileIdentity;
use crate::{id_map, sys};

/// A mount for a container engine, which would follow a link that replaced the source. Detached when dropped: bind mounts that
/// were made of it meanwhile stay.
#[derive(Debug)]
pub struct AttachedMount {
    target: CString,
}

impl AttachedMount {
    /// Mounts `source`, whose path must be without links, at `target`, a directory or file like `source`.
    ///
    /// With a `guest`, that user and the owner of `source` change places: a file that the guest makes there belongs
    /// to the owner on disk. Such a guest must not be able to set set-user-ID bits: a seccomp filter of this crate
    /// refuses them.
    ///
    /// # Errors
    /// `ESTALE` if another file is at `source` now; `ELOOP` or `ENOTDIR` if a link is on the way. Others if the caller
    /// lacks CAP_SYS_ADMIN, or the file system cannot map ids.
    pub fn attach(
        source: &Path,
        checked: FileIdentity,
        target: &Path,
        guest: Option<u32>,
    ) -> io::Result<Self> {
        let path = CString::new(source.as_os_str().as_bytes())?;
        let target = CString::new(target.as_os_str().as_bytes())?;
        let place = sys::open_without_links(sys::open_path(c"/")?.as_fd(), &path)?;
        let found = File::from(place.try_clone()?).metadata()?;
        if FileIdentity::of(&found) != checked {
            return Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
        let tree = sys::open_tree_of(place.as_fd())?;
        let map = guest.map(|guest| id_map(&found, guest));
        let map = map.transpose()?;
        let attributes = sys::MountAttributes {
            set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
            id_map: map.as_ref().map(AsFd::as_fd),
        };
        sys::set_mount_attributes(tree.as_fd(), &attributes)?;
        sys::move_mount(tree.as_fd(), &target)?;
        Ok(Self { target })
    }

    /// Detaches a mount that a dead process left at `target`, and removes the directory or file that it covered.
    ///
    /// # Errors
    /// If there is none.
    pub fn remove(target: &Path) -> io::Result<()> {
        let path = CString::new(target.as_os_str().as_bytes())?;
        // Nothing is mounted there if the process died early.
        let _ = sys::detach_mount(&path);
        // Never recursive: what is mounted there belongs to the user.
        match target.is_dir() {
            true => fs::remove_dir(target),
            false => fs::remove_file(target),
        }
    }

    /// Returns the path of the mount point.
    pub fn target(&self) -> PathBuf {
        PathBuf::from(std::ffi::OsStr::from_bytes(self.target.as_bytes()))
    }
}

impl Drop for AttachedMount {
    fn drop(&mut self) {
        let _ = Self::remove(&self.target());
    }
}

/// Returns a user namespace in which the owner of a file and a guest have changed places.
fn id_map(owner: &Metadata, guest: u32) -> io::Result<OwnedFd> {
    id_map::user_namespace(&swapped(owner.uid(), guest), &swapped(owner.gid(), guest))
}

/// Returns an id map (user_namespaces(7)) that swaps two ids and maps all others to themselves.
fn swapped(owner: u32, guest: u32) -> String {
    let (low, high) = (owner.min(guest), owner.max(guest));
    if low == high {
        return format!("0 0 {}\n", u32::MAX);
    }
    let ranges = [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, high - low - 1),
        (high, low, 1),
        (high + 1, high + 1, u32::MAX - high - 1),
    ];
    let filled = ranges.iter().filter(|(_, _, count)| *count > 0);
    filled
        .map(|(on_disk, shown, count)| format!("{on_disk} {shown} {count}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_exchanged_source_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().canonicalize().unwrap().join(name);
        let (source, target) = (path("source"), path("target"));
        for directory in [&source, &target, &path("secret")] {
            fs::create_dir(directory).unwrap();
        }
        let checked = FileIdentity::at(&source).unwrap();
        let attach =
            || AttachedMount::attach(&source, checked, &target, None).map_err(|error| error.raw_os_error());
        fs::rename(&source, path("away")).unwrap();
        fs::create_dir(&source).unwrap();
        assert_eq!(attach().unwrap_err(), Some(libc::ESTALE));
        fs::remove_dir(&source).unwrap();
        symlink("secret", &source).unwrap();
        assert_eq!(attach().unwrap_err(), Some(libc::ELOOP));
        fs::remove_file(&source).unwrap();
        fs::rename(path("away"), &source).unwrap();
        // The same act with the file that was checked; only root may mount.
        match attach() {
            Ok(mount) => assert_eq!(
                FileIdentity::at(&target).map(|found| found.inode),
                Some(checked.inode),
                "{mount:?}"
            ),
            Err(error) => assert_eq!(error, Some(libc::EPERM)),
        }
    }

    #[test]
    fn two_ids_change_places() {
        assert_eq!(
            swapped(0, 65_534),
            "0 65534 1\n1 1 65533\n65534 0 1\n65535 65535 4294901760\n"
        );
        assert_eq!(swapped(65_534, 0), swapped(0, 65_534));
        assert_eq!(swapped(5, 5), "0 0 4294967295\n");
        assert_eq!(swapped(1, 2), "0 0 1\n1 2 1\n2 1 1\n3 3 4294967292\n");
    }
}
