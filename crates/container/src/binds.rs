//! Denies bind mounts of host directories that would give a container control of the host.

use std::path::{Component, Path, PathBuf};

use ringfence_exec::mount_guard::{DeniedPath, DeniedPaths, overlaps};
use ringfence_exec::trust;

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

/// Names of the sockets of engines, which some have in a home directory.
const SOCKETS: &[&str] = &[
    "docker.sock",
    "podman.sock",
    "containerd.sock",
    "crio.sock",
    "buildkitd.sock",
];

/// Returns a path that may not exist yet, with its links followed as far as they do: an engine that starts later would
/// bring its socket there.
///
/// # Errors
/// If mounting it would give control of the host, with the reason.
pub(super) fn check_missing(path: &Path) -> Result<PathBuf, DeniedPath> {
    // The kernel finds nothing either behind `..` of a missing directory.
    let path = trust::resolve(path).map_or_else(|_| normalized(path), |found| found.path);
    if let Some(name) = SOCKETS.iter().find(|name| path.ends_with(name)) {
        return Err(DeniedPath::new(format!(
            "`{name}` is a container engine's socket"
        )));
    }
    check(&path)?;
    Ok(path)
}

/// Applies `..` by name alone.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normalized.pop()),
            part => normalized.push(part),
        }
    }
    normalized
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
    fn a_socket_that_does_not_exist_yet_is_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().canonicalize().unwrap();
        fs::create_dir(data.join("sub")).unwrap();
        symlink("/run/none-yet", data.join("sub/dangling")).unwrap();
        symlink("sub", data.join("near")).unwrap();
        symlink("loop", data.join("loop")).unwrap();
        let up = "../".repeat(data.components().count());
        for path in [
            "/run/docker.sock".to_owned(),
            "/run/none/docker.sock".to_owned(),
            "/var/run/podman/podman.sock".to_owned(),
            "/run/containerd/none.sock".to_owned(),
            "/run/crio".to_owned(),
            "//var//run/./none".to_owned(),
            "/var/none/../run/none.sock".to_owned(),
            format!("{}/{up}run/none", data.display()),
            format!("{}/sub/dangling", data.display()),
            format!("{}/near/../near/dangling/docker.sock", data.display()),
            format!("{}/none/.docker/run/docker.sock", data.display()),
            "/var/lib/docker/none".to_owned(),
        ] {
            assert!(check_missing(Path::new(&path)).is_err(), "{path}");
        }
        for (path, end) in [
            ("none", "none"),
            ("near/none", "sub/none"),
            ("run/none.sock", "run/none.sock"),
            ("loop/x", "loop/x"),
        ] {
            assert_eq!(check_missing(&data.join(path)), Ok(data.join(end)), "{path}");
        }
    }

    #[test]
    fn only_what_lies_below_is_held() {
        assert!(is_attached(&Path::new(MOUNTS).join("a/b")));
        for other in [MOUNTS, "/run", "/run/docker.sock", "/run/ringfence/mounts2/a"] {
            assert!(!is_attached(Path::new(other)), "{other}");
        }
    }
}
