//! Denies bind mounts of host directories that would give a container control of the host.

use std::path::Path;

use ringfence_exec::mount_guard::{DeniedPath, DeniedPaths, overlaps};

/// Paths to an engine's socket or storage, and others whose exposure hands over the host.
const ENGINES: &[&str] = &[
    "/run",
    "/var/run",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/etc",
    "/boot",
];

/// Checks that mounting this path gives no control of the host.
///
/// # Errors
/// If it does, with the reason.
pub(super) fn check(path: &Path) -> Result<(), DeniedPath> {
    let engines = ENGINES.iter().find(|engine| overlaps(path, Path::new(engine)));
    if let Some(engine) = engines {
        return Err(DeniedPath::new(format!(
            "{engine} is none of a container's business"
        )));
    }
    DeniedPaths::default().check(path)
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
}
