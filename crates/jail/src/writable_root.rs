//! Roots that the programs of a sandbox may change: an overlay (overlayfs) over the template's own files and an image.
//!
//! The launcher makes the lower layers, read-only and mapped to the root of its cell. The cell's init mounts the overlay, attaches
//! copies of its mounts to it, and makes it the root. What programs write lies in the file system of the cell's writable
//! directories, and counts there.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::attach::{attach_at, c_path, metadata, os_path};
use crate::id_map::guest_id_map;
use crate::places::{ASSEMBLY, CELL_MOUNT_POINTS, DEVICES, WRITABLE_DIRS};
use crate::protocol::{HostIds, Template};
use crate::step_error::{Step, StepError};
use crate::sys;

/// Mount points of the layers in the template's root.
const BASE: &CStr = c"/dev/.base";
const IMAGE: &CStr = c"/dev/.image";

/// Mount point of the overlay until it is the root.
const NEW_ROOT: &CStr = c"/cell/root";

/// Mount points of a cell's own, beside its writable directories.
const OWN_MOUNTS: &[&str] = &["/proc", "/dev/pts"];

const PREPARE: &str = "prepare a writable root";

/// A lower layer of a root.
pub(crate) struct Layer {
    place: &'static CStr,
    tree: OwnedFd,
    /// The user and group that own all its files.
    owner: (u32, u32),
}

/// Opens the image's files, if the template has an image as a layer.
pub(crate) fn open_image(template: &Template) -> Result<Option<Layer>, StepError> {
    let root = template.writable_root.as_ref();
    let Some(image) = root.and_then(|root| root.image.as_ref()) else {
        return Ok(None);
    };
    let open = || {
        let place = sys::open_without_links(sys::open_path(c"/")?.as_fd(), &c_path(image)?)?;
        let owner = metadata(&place)?;
        Ok(Layer {
            place: IMAGE,
            tree: sys::open_tree_of(place.as_fd())?,
            owner: (owner.uid(), owner.gid()),
        })
    };
    open().step(PREPARE).map(Some)
}

/// Opens the template's own files, if they are a layer. To be called before anything is attached to them: an overlay has no layer
/// with mounts in it.
pub(crate) fn open_base(template: &Template) -> Result<Option<Layer>, StepError> {
    if template.writable_root.is_none() {
        return Ok(None);
    }
    let open = || {
        Ok(Layer {
            place: BASE,
            tree: sys::open_tree(&c_path(Path::new(ASSEMBLY))?)?,
            owner: sys::effective_ids(),
        })
    };
    open().step(PREPARE).map(Some)
}

impl Layer {
    /// Attaches the layer to the template's root: read-only, and its owner mapped to the root of the cell.
    pub(crate) fn attach(&self, root: BorrowedFd<'_>, ids: Option<HostIds>) -> Result<(), StepError> {
        let attach = || {
            let ids = ids.ok_or_else(|| io::Error::from_raw_os_error(libc::EPERM))?;
            let map = guest_id_map(self.owner.0, self.owner.1, ids)?;
            let attributes = sys::MountAttributes {
                set: libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_RDONLY,
                id_map: Some(map.as_fd()),
            };
            sys::set_mount_attributes(self.tree.as_fd(), &attributes)?;
            attach_at(root, &os_path(self.place), &self.tree)
        };
        attach().step(PREPARE)
    }
}

/// The writable root of a launcher's cell.
#[derive(Debug)]
pub(crate) struct CellRoot {
    /// Lower layers, the uppermost first, as overlayfs wants them (`lowerdir`).
    lower: CString,
    /// Mount points of the template that are attached to it again.
    carried: Vec<PathBuf>,
}

impl CellRoot {
    /// Returns the root of a template's cell; `None` if it is read-only.
    ///
    /// # Errors
    /// If the template shows a writable directory of the host: the filter of such cells permits every mode.
    pub(crate) fn of(template: &Template) -> Result<Option<Self>, StepError> {
        let Some(root) = &template.writable_root else {
            return Ok(None);
        };
        if template.binds.iter().any(|bind| bind.writable) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL)).step(PREPARE);
        }
        let layers = match root.image {
            Some(_) => [BASE, IMAGE].map(CStr::to_bytes).join(&b':'),
            None => BASE.to_bytes().to_vec(),
        };
        Ok(Some(Self {
            lower: CString::new(layers).map_err(io::Error::other).step(PREPARE)?,
            carried: carried(template),
        }))
    }

    /// Makes the overlay the root of the calling process's mount namespace. `files` is the cell's own file system, at `/cell`.
    /// Returns its upper directory, read-only and at no path.
    pub(crate) fn enter(&self, files: &OwnedFd) -> Result<OwnedFd, StepError> {
        let mounts = self.copy_mounts().step("copy the mounts of a cell")?;
        let overlay = self.mount(files).step("mount a writable root")?;
        let changes = open_changes(files).step("open the changes of a writable root")?;
        for (path, mount) in &mounts {
            attach_at(overlay.as_fd(), path, mount).step("attach the mounts of a cell")?;
        }
        pivot().step("enter a writable root")?;
        Ok(changes)
    }

    fn copy_mounts(&self) -> io::Result<Vec<(&Path, OwnedFd)>> {
        let own = OWN_MOUNTS.iter().chain(WRITABLE_DIRS).map(Path::new);
        let all = self.carried.iter().map(PathBuf::as_path).chain(own);
        all.map(|path| Ok((path, sys::open_tree(&c_path(path)?)?)))
            .collect()
    }

    fn mount(&self, files: &OwnedFd) -> io::Result<OwnedFd> {
        for name in [c"upper", c"work", c"root"] {
            sys::mkdir_at(files.as_fd(), name, 0o755)?;
        }
        let options: &[(&CStr, &CStr)] = &[
            (c"lowerdir", &self.lower),
            (c"upperdir", c"/cell/upper"),
            (c"workdir", c"/cell/work"),
            // Attributes that a user namespace may set.
            (c"userxattr", c""),
        ];
        let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        let overlay = sys::new_filesystem(c"overlay", options, attributes)?;
        sys::move_mount(overlay.as_fd(), NEW_ROOT)?;
        Ok(overlay)
    }
}

/// Opens the upper directory. Nothing may write there while the overlay is mounted, since the result would be
/// undefined.
fn open_changes(files: &OwnedFd) -> io::Result<OwnedFd> {
    let changes = sys::open_tree_below(files.as_fd(), c"upper")?;
    let read_only = sys::MountAttributes {
        set: libc::MOUNT_ATTR_RDONLY,
        id_map: None,
    };
    sys::set_mount_attributes(changes.as_fd(), &read_only)?;
    Ok(changes)
}

fn pivot() -> io::Result<()> {
    std::env::set_current_dir(os_path(NEW_ROOT))?;
    sys::pivot_root_to_working_directory()?;
    std::env::set_current_dir("/")
}

/// Returns the mount points of a template that lie in no other, nor where cells mount their own.
fn carried(template: &Template) -> Vec<PathBuf> {
    let guests = || template.binds.iter().map(|bind| bind.guest.as_path());
    let is_outermost = |guest: &&Path| {
        let is_own = CELL_MOUNT_POINTS.iter().any(|place| guest.starts_with(place));
        !is_own && !guests().any(|other| *guest != other && guest.starts_with(other))
    };
    // An optional one may be missing on the host.
    let binds = guests().filter(is_outermost).filter(|guest| guest.exists());
    let devices = DEVICES.iter().map(Path::new);
    binds.chain(devices).map(Path::to_path_buf).collect()
}
