//! Specifies tmpfs volumes of a limited size.

use std::collections::HashMap;
use std::path::PathBuf;

use ringfence_policy::Bytes;

use super::name::Name;

/// Bytes per inode, as in the cells of the local runtime.
const BYTES_FOR_A_FILE: u64 = 4096;

/// A tmpfs of a limited size: excess data fails at the write.
///
/// The engine mounts it, and unmounts it with the last container that uses it. A `tmpfs` mount of the
/// container would be simpler, but Podman offers no limit on its inodes, gVisor ignores such a limit, and it
/// has one mount point only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: Name,
    /// Mount points in the container.
    pub places: Vec<PathBuf>,
    pub size: Bytes,
}

impl Volume {
    /// Returns the driver options of the volume.
    pub(crate) fn options(&self) -> HashMap<String, String> {
        let page = rustix::param::page_size() as u64;
        // Zero would mean unlimited. Podman takes `size` for a disk quota, which it does not support here.
        let blocks = self.size.0.div_ceil(page).max(1);
        let files = (self.size.0 / BYTES_FOR_A_FILE).clamp(64, 65_536);
        // World-writable, as the container has a single user. Without an owner, Podman would chown it to the
        // image's.
        let options = format!("nosuid,nodev,uid=0,gid=0,mode=1777,nr_blocks={blocks},nr_inodes={files}");
        let pairs = [("type", "tmpfs"), ("device", "tmpfs"), ("o", &options)];
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_bound() {
        let check = |size: u64, expected: &str| {
            let volume = Volume {
                name: Name::unused(),
                places: Vec::new(),
                size: Bytes(size),
            };
            let options = &volume.options()["o"];
            assert!(options.ends_with(expected), "{size}: {options}");
        };
        check(0, "nr_blocks=1,nr_inodes=64");
        let pages = (64 << 20) / rustix::param::page_size();
        check(64 << 20, &format!("nr_blocks={pages},nr_inodes=16384"));
        check(1 << 40, "nr_inodes=65536");
    }
}
