//! Reads system settings that may prevent isolation.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Facts that determine the right fix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) uid: u32,
    /// Set if our user ids are the host's, so that root is the host's root.
    pub(super) host_ids: bool,
    /// Set inside a container.
    pub(super) container: bool,
    /// Set if a seccomp filter applies to this process.
    pub(super) filtered: bool,
    /// The AppArmor profile of this process.
    pub(super) apparmor_profile: Option<String>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, specific to Ubuntu.
    pub(super) apparmor_restricts: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, specific to Debian.
    pub(super) unprivileged_clone: Option<u64>,
    pub(super) max_user_namespaces: Option<u64>,
    /// Active Linux security modules.
    pub(super) security_modules: Option<String>,
    pub(super) kernel: String,
    pub(super) memfd_noexec: Option<u64>,
    pub(super) systemd: bool,
    pub(super) executable: PathBuf,
}

/// The host's initial namespaces: inode numbers fixed by the kernel (`enum init_ns_ino` in `linux/nsfs.h`).
const HOST_NAMESPACES: [(&str, &str); 2] = [
    ("/proc/self/ns/pid", "pid:[4026531836]"),
    ("/proc/self/ns/uts", "uts:[4026531838]"),
];

/// Returns `true` inside a container. Marker files alone prove little, since virtual machines are built from
/// container images, too.
fn in_container() -> bool {
    let marked = ["/.dockerenv", "/run/.containerenv"]
        .iter()
        .any(|path| Path::new(path).exists());
    let apart = |(path, host): &(&str, &str)| fs::read_link(path).is_ok_and(|own| own != Path::new(host));
    marked && HOST_NAMESPACES.iter().any(apart)
}

impl Machine {
    pub(super) fn read() -> Self {
        let text = |path: &str| {
            fs::read_to_string(path)
                .ok()
                .map(|text| text.trim_end_matches(['\n', '\0']).to_owned())
        };
        let number = |path: &str| text(path).and_then(|text| text.parse().ok());
        let map = text("/proc/self/uid_map").unwrap_or_default();
        let status = text("/proc/self/status").unwrap_or_default();
        Self {
            uid: fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid()),
            host_ids: map.split_whitespace().eq(["0", "0", "4294967295"]),
            container: in_container(),
            filtered: status.lines().any(|line| line == "Seccomp:\t2"),
            apparmor_profile: text("/proc/self/attr/apparmor/current")
                .or_else(|| text("/proc/self/attr/current"))
                .filter(|profile| !profile.is_empty() && !profile.starts_with("unconfined")),
            apparmor_restricts: number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
            unprivileged_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            security_modules: text("/sys/kernel/security/lsm").filter(|list| !list.is_empty()),
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            memfd_noexec: number("/proc/sys/vm/memfd_noexec"),
            systemd: Path::new("/run/systemd/system").is_dir(),
            executable: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/bin/ringfence")),
        }
    }

    pub(super) fn is_root(&self) -> bool {
        self.uid == 0
    }
}
