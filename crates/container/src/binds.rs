//! Denies bind mounts of host directories that would give a container control of the host.

use std::path::Path;

use ringfence_exec::mount_guard::{DeniedPath, DeniedPaths, overlaps};

/// Paths to an engine's socket or storage, and others whose exposure gives control of the host.
const ENGINES: &[&str] = &[
    "/run",
    "/var/run",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/etc",
    "/boot",
];

/// Directory of the mounts, in a tmpfs. It must never be emptied recursively: below each mount lie the user's
/// files.
pub(super) const MOUNTS: &str = "/run/ringfence/mounts";

/// Checks that mounting this path gives no control of the host.
///
/// # Errors
/// If it does, with the reason.
pub(super) fn check(path: &Path) -> Result<(), DeniedPath> {
    let engines = ENGINES.iter().find(|engine| overlaps(path, Path::new(engine)));
    if let Some(engine) = engines {
        return Err(DeniedPath::new(format!(
            "{engine} gives control of the container engine"
        )));
    }
    DeniedPaths::default().check(path)
}

/// Returns `true` for a path below one of the attached mounts.
pub(super) fn is_attached(path: &Path) -> bool {
    path != Path::new(MOUNTS) && path.starts_with(MOUNTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_leads_to_the_host_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().canonicalize().unwrap();
        let _listener = UnixListener::bind(data.join("s.sock")).unwrap();
        for path in [
            "/",
            "/run",
            "/run/docker.sock",
            "/var/run/docker.sock",
            "/var",
            "/var/lib",
            "/var/lib/docker/volumes",
            "/proc",
            "/sys",
            "/dev",
            "/etc",
            "/etc/ssl",
        ] {
            assert!(check(Path::new(path)).is_err(), "{path}");
        }
        assert!(check(&data.join("s.sock")).is_err());
        fs::create_dir(data.join("work")).unwrap();
        assert_eq!(check(&data.join("work")), Ok(()));
        // Resolved through symbolic links, not by name alone.
        symlink("/run", data.join("link")).unwrap();
        assert!(check(&data.join("link")).is_err());
    }

    #[test]
    fn only_what_lies_below_is_held() {
        assert!(is_attached(&Path::new(MOUNTS).join("a/b")));
        for other in [MOUNTS, "/run", "/run/docker.sock", "/run/ringfence/mounts2/a"] {
            assert!(!is_attached(Path::new(other)), "{other}");
        }
    }
}
