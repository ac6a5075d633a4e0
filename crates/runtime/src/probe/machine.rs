//! What the machine says about itself: which of its settings could be in the way.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Facts that decide which fix is the right one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) uid: u32,
    /// Whether our ids are the host's own, so that root is root.
    pub(super) host_ids: bool,
    /// Whether this is the inside of a container.
    pub(super) container: bool,
    /// Whether a system-call filter holds this very process.
    pub(super) filtered: bool,
    /// The AppArmor profile that holds this process.
    pub(super) apparmor_profile: Option<String>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, an invention of Ubuntu.
    pub(super) apparmor_restricts: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, an invention of Debian.
    pub(super) unprivileged_clone: Option<u64>,
    pub(super) max_user_namespaces: Option<u64>,
    /// The active security modules.
    pub(super) security_modules: Option<String>,
    pub(super) kernel: String,
    pub(super) memfd_noexec: Option<u64>,
    pub(super) systemd: bool,
    pub(super) executable: PathBuf,
}

/// The host's own namespaces: numbers that the kernel has fixed (`enum init_ns_ino` in `linux/nsfs.h`).
const HOST_NAMESPACES: [(&str, &str); 2] = [
    ("/proc/self/ns/pid", "pid:[4026531836]"),
    ("/proc/self/ns/uts", "uts:[4026531838]"),
];

/// The files alone prove little: virtual machines are made from container images too.
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
