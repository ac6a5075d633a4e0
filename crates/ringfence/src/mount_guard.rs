//! Rejection of host paths that must never become visible inside the fence.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ringfence_exec::mount_guard::{DeniedPaths, nearest};
use ringfence_exec::trust::{Resolved, resolve as resolved};

use crate::failure::Failure;
use crate::named_paths;
use crate::paths::Paths;

/// Resolves an existing host path to its absolute path without links, and returns the links on the way.
///
/// The resolved path is what is mounted, so that a link changed later does not change what was checked.
pub fn resolve(path: &Path) -> Result<Resolved, Failure> {
    let found = named_paths::find(path)?;
    match found.exists {
        true => Ok(found),
        false => Err(Failure::usage(
            format!("cannot use {}: {}", path.display(), nothing_there()),
            "name a host path that exists and that you may read",
        )),
    }
}

/// Returns the system's error for a missing file.
fn nothing_there() -> std::io::Error {
    const ENOENT: i32 = 2;
    std::io::Error::from_raw_os_error(ENOENT)
}

/// Resolves a directory that may not exist yet to its absolute path without links, and returns the links on
/// the way.
///
/// In one pass: a program may swap a directory and a link meanwhile, so that two passes could return the
/// target of a link together with the finding that there was none.
pub fn resolve_new(path: &Path) -> Result<Resolved, Failure> {
    let refuse = |why: String| {
        Failure::usage(
            format!("cannot use the directory {}: {why}", path.display()),
            "name a directory, or one that does not exist yet",
        )
    };
    let found = resolved(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => refuse(format!("{} does not exist", path.display())),
        _ => refuse(error.to_string()),
    })?;
    if found.exists && !found.path.is_dir() {
        return Err(refuse(format!("{} is not a directory", found.path.display())));
    }
    Ok(found)
}

/// Resolves the existing part of a path.
pub fn nearest_resolved(path: &Path) -> PathBuf {
    nearest(path).whole()
}

/// Rejects a resolved path that would expose our own directories or the host's control files.
pub fn check(path: &Path, paths: &Paths, audit: &Path) -> Result<(), Failure> {
    hidden(paths, audit).check(path).map_err(|why| {
        Failure::usage(
            format!("refusing to show {} to the program: {why}", path.display()),
            "name a directory that holds only what the program needs",
        )
    })
}

/// Returns our own directories, which no program may see.
pub fn hidden(paths: &Paths, audit: &Path) -> DeniedPaths {
    DeniedPaths::new([
        (paths.state.clone(), "state"),
        (paths.runtime.clone(), "runtime"),
        (audit.to_path_buf(), "audit log"),
    ])
    .but_in(paths.workspaces())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Environment;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn refusal(path: &Path, paths: &Paths) -> String {
        check(&resolve(path).unwrap().path, paths, Path::new("/none"))
            .map_or_else(|failure| failure.to_string(), |()| "allowed".to_owned())
    }

    #[test]
    fn our_own_directories_are_never_shown_in_either_direction() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for sub in [
            "home/state/ringfence/artifacts",
            "home/run/ringfence",
            "home/data",
        ] {
            fs::create_dir_all(root.join(sub)).unwrap();
        }
        symlink(root.join("home/state"), root.join("link")).unwrap();
        let (state, run) = (root.join("home/state"), root.join("home/run"));
        let paths = Paths::new(&Environment::from([
            ("XDG_STATE_HOME", state.to_str().unwrap()),
            ("XDG_RUNTIME_DIR", run.to_str().unwrap()),
        ]));
        for exposing in [
            "home",
            "home/state",
            "home/state/ringfence",
            "home/state/ringfence/artifacts",
            "home/run",
            "link",
        ] {
            assert!(
                refusal(&root.join(exposing), &paths).contains("would expose"),
                "{exposing}"
            );
        }
        assert_eq!(refusal(&root.join("home/data"), &paths), "allowed");
    }

    #[test]
    fn a_state_directory_reached_through_a_link_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("real/ringfence")).unwrap();
        symlink(dir.path().join("real"), dir.path().join("link")).unwrap();
        let link = dir.path().join("link");
        let paths = Paths::new(&Environment::from([
            ("XDG_STATE_HOME", link.to_str().unwrap()),
            ("XDG_RUNTIME_DIR", "/none"),
        ]));
        assert!(refusal(&dir.path().join("real"), &paths).contains("would expose"));
        // Before the first run the directory does not exist, and a mount above it must be rejected
        // nevertheless.
        fs::remove_dir(dir.path().join("real/ringfence")).unwrap();
        assert!(refusal(&dir.path().join("real"), &paths).contains("would expose"));
    }

    #[test]
    fn an_output_directory_in_ours_is_refused_before_either_exists() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("real")).unwrap();
        symlink(root.join("real"), root.join("link")).unwrap();
        let paths = Paths::new(&Environment::from([
            ("XDG_STATE_HOME", root.join("link").to_str().unwrap()),
            ("XDG_RUNTIME_DIR", "/none"),
        ]));
        let refusal = |name: &str| {
            resolve_new(&root.join(name))
                .and_then(|found| check(&found.path, &paths, Path::new("/none")))
                .map_or_else(|failure| failure.to_string(), |()| "allowed".to_owned())
        };
        for inside in ["real/ringfence", "link/ringfence/new/x"] {
            assert!(refusal(inside).contains("would expose"), "{inside}");
        }
        assert_eq!(refusal("real/new/x"), "allowed");
        let shown = |name: &str| resolve_new(&root.join(name)).unwrap().path.display().to_string();
        assert_eq!(shown("link"), root.join("real").display().to_string());
        assert!(refusal("new/../link/ringfence").contains("does not exist"));
        fs::write(root.join("file"), "").unwrap();
        assert!(refusal("file").contains("file is not a directory"));
        assert!(refusal("file/below").contains("Not a directory"));
    }

    /// Number of lookups in the race that must meet the directory, and the link.
    const MEETINGS: usize = 2000;

    /// A program exchanges a destination with a link to another directory, all the time.
    #[test]
    fn a_swapped_directory_leads_nowhere_unnoticed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = |name: &str| root.join(name);
        for name in ["data", "secret"] {
            fs::create_dir(path(name)).unwrap();
        }
        symlink(path("secret"), path("link")).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let swapper = scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    for (from, to) in [
                        ("data", "aside"),
                        ("link", "data"),
                        ("data", "link"),
                        ("aside", "data"),
                    ] {
                        fs::rename(path(from), path(to)).unwrap();
                    }
                }
            });
            let (mut directories, mut links, mut astray) = (0, 0, 0);
            while (directories < MEETINGS || links < MEETINGS) && !swapper.is_finished() {
                // A link that vanishes meanwhile is an error.
                let Ok(found) = resolve_new(&path("data")) else {
                    continue;
                };
                match found.links.is_empty() {
                    true => directories += 1,
                    false => links += 1,
                }
                astray += usize::from(found.links.is_empty() && found.path != path("data"));
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(links >= MEETINGS);
            assert_eq!(astray, 0);
        });
    }

    #[test]
    fn the_kernels_view_and_service_sockets_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let paths = Paths::new(&Environment::from([
            ("XDG_STATE_HOME", "/none"),
            ("XDG_RUNTIME_DIR", "/none"),
        ]));
        let socket = dir.path().join("docker.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(refusal(&socket, &paths).contains("socket of a host service"));
        assert!(refusal(Path::new("/proc/self"), &paths).contains("kernel's view"));
        assert!(refusal(Path::new("/run"), &paths).contains("sockets of the host's services"));
        assert_ne!(refusal(Path::new("/"), &paths), "allowed");
    }
}
