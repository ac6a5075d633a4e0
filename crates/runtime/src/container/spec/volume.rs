//! File systems in memory, of a size.

use std::collections::HashMap;
use std::path::PathBuf;

use ringfence_policy::Bytes;

use super::Name;

/// Bytes of room for each file, as in the cells of the local runtime.
const BYTES_FOR_A_FILE: u64 = 4096;

/// A file system in memory, of a size: what is too much for it fails as it is written.
///
/// The engine mounts it, and takes it away with the last container that sees it. A `tmpfs` of the container's own would
/// be simpler, but Podman lets nobody bound its number of files, gVisor heeds no such bound, and it lies at one place only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: Name,
    /// Where the container sees it.
    pub places: Vec<PathBuf>,
    /// How much it holds.
    pub size: Bytes,
}

impl Volume {
    /// What the engine is told of it.
    pub(in crate::container) fn options(&self) -> HashMap<String, String> {
        let page = rustix::param::page_size() as u64;
        // None at all would mean that there is no bound. Podman takes `size` for a quota of the disk's, which it lacks.
        let blocks = self.size.0.div_ceil(page).max(1);
        let files = (self.size.0 / BYTES_FOR_A_FILE).clamp(64, 65_536);
        // Whoever the program is, nobody else is there. Where nobody owns it, Podman gives it to whom the image would.
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
