//! Host paths that must never become visible inside the fence.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use crate::exit::Failure;
use crate::paths::Paths;

/// Views of the kernel and its devices: a mount of one gives back what the fence took away.
const KERNEL: &[&str] = &["/proc", "/sys", "/dev"];

/// The absolute path, without links, of a host path that exists.
///
/// The resolved path is what is mounted, so that a link changed later does not change what was checked.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| {
        Failure::usage(
            format!("cannot use {}: {error}", path.display()),
            "name a host path that exists and that you may read",
        )
    })
}

/// The absolute path, without links, of a directory that may not exist yet.
pub(super) fn resolve_new(path: &Path) -> Result<PathBuf, Failure> {
    let refuse = |why: String| {
        Err(Failure::usage(
            format!("cannot use the output directory {}: {why}", path.display()),
            "name a directory, or one that does not exist yet",
        ))
    };
    let (there, missing) = nearest(path);
    if !there.is_dir() {
        return refuse(format!("{} is not a directory", there.display()));
    }
    let plain = |component| matches!(component, Component::Normal(_));
    if !missing.components().all(plain) {
        return refuse(format!("{} does not exist", path.display()));
    }
    Ok(whole((there, missing)))
}

/// That showing `path`, which is resolved, gives away neither our own directories nor the host's controls.
pub(super) fn check(path: &Path, paths: &Paths, audit: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| {
        Err(Failure::usage(
            format!("refusing to show {} to the program: {why}", path.display()),
            "name a directory that holds only what the program needs",
        ))
    };
    let own = [
        (paths.state.as_path(), "state"),
        (&paths.runtime, "runtime"),
        (audit, "audit log"),
    ];
    for (own, what) in own {
        // By its name and by the one without links, for a directory that does not exist yet has no identity.
        if overlaps(path, own) || overlaps(path, &whole(nearest(own))) {
            return refuse(&format!(
                "it would expose Ringfence's {what} directory {}",
                own.display()
            ));
        }
    }
    if KERNEL.iter().any(|dir| path.starts_with(dir)) || path.parent().is_none() {
        return refuse("it belongs to the kernel's view of the host");
    }
    if Path::new("/run").starts_with(path) {
        return refuse("it holds the sockets of the host's services");
    }
    if path.metadata().is_ok_and(|meta| meta.file_type().is_socket()) {
        return refuse("it is a socket of a host service");
    }
    Ok(())
}

/// Whether either path lies in the other, by name or by identity: a link or a bind mount has another name.
fn overlaps(path: &Path, own: &Path) -> bool {
    let same = |a: &Path, b: &Path| identity(a).is_some_and(|id| Some(id) == identity(b));
    let by_name = path.starts_with(own) || own.starts_with(path);
    let holds = existing(own).ancestors().any(|above| same(above, path));
    let inside = path.ancestors().any(|above| same(above, own));
    by_name || holds || inside
}

/// `path` resolved, or the nearest directory above it that exists.
fn existing(path: &Path) -> PathBuf {
    nearest(path).0
}

/// The nearest that exists of `path` and what is above it, resolved, and the rest of the path.
fn nearest(path: &Path) -> (PathBuf, PathBuf) {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some((above.canonicalize().ok()?, rest.to_path_buf()))
    });
    found.unwrap_or_else(|| (path.to_path_buf(), PathBuf::new()))
}

/// The two parts as one path; joined with nothing it would end in a slash.
fn whole((there, missing): (PathBuf, PathBuf)) -> PathBuf {
    if missing.as_os_str().is_empty() {
        return there;
    }
    there.join(missing)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|meta| (meta.dev(), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Environment;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn refusal(path: &Path, paths: &Paths) -> String {
        check(&resolve(path).unwrap(), paths, Path::new("/none"))
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
        // Before the first run the directory does not exist, and a mount above it must be refused all the same.
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
                .and_then(|path| check(&path, &paths, Path::new("/none")))
                .map_or_else(|failure| failure.to_string(), |()| "allowed".to_owned())
        };
        for inside in ["real/ringfence", "link/ringfence/new/x"] {
            assert!(refusal(inside).contains("would expose"), "{inside}");
        }
        assert_eq!(refusal("real/new/x"), "allowed");
        let shown = |name: &str| resolve_new(&root.join(name)).unwrap().display().to_string();
        assert_eq!(shown("link"), root.join("real").display().to_string());
        assert!(refusal("new/../link/ringfence").contains("does not exist"));
        fs::write(root.join("file"), "").unwrap();
        assert!(refusal("file/below").contains("file is not a directory"));
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
