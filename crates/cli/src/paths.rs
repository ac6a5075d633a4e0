//! Where state, sockets and configuration live.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::env::Environment;
use crate::exit::Failure;

/// The directories of this user.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// Artifacts, and what the engine must remember.
    pub(crate) state: PathBuf,
    /// Sockets, and what vanishes with the session.
    pub(crate) runtime: PathBuf,
    /// The user's configuration, where a home is known.
    pub(crate) config: Option<PathBuf>,
    uid: u32,
}

impl Paths {
    /// The directories that the environment names, else the customary ones.
    pub(crate) fn new(environment: &Environment) -> Self {
        let uid = own_uid();
        let home = environment.directory("HOME");
        let below_home = |variable: &str, customary: &str| {
            let named = environment.directory(variable);
            named
                .or_else(|| home.as_ref().map(|home| home.join(customary)))
                .map(|dir| dir.join("ringfence"))
        };
        let runtime = runtime_dir(environment, uid);
        Self {
            // Without a home (a service, `env -i`) state goes where the sockets go.
            state: below_home("XDG_STATE_HOME", ".local/state").unwrap_or_else(|| runtime.join("state")),
            config: below_home("XDG_CONFIG_HOME", ".config"),
            runtime,
            uid,
        }
    }

    /// The engine's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.runtime.join("engine.sock")
    }

    /// Where connections without a directory get one.
    pub(crate) fn workspaces(&self) -> PathBuf {
        self.state.join("workspaces")
    }

    /// The engine's socket, if it lies in a directory that only we could have made.
    pub(crate) fn socket_if_ours(&self) -> Option<PathBuf> {
        check_private(&self.runtime, self.uid)
            .ok()
            .map(|()| self.socket())
    }

    /// The engine's socket for gateways.
    pub(crate) fn gateway_socket(&self) -> PathBuf {
        self.runtime.join("gateway.sock")
    }

    /// Makes the runtime directory, for us alone.
    ///
    /// # Errors
    /// If it cannot be made, or somebody else made it first.
    pub(crate) fn make_runtime(&self) -> Result<&Path, Failure> {
        make_private(&self.runtime, self.uid)?;
        Ok(&self.runtime)
    }

    /// Makes the state directory, for us alone.
    ///
    /// # Errors
    /// If it cannot be made, or somebody else made it first.
    pub(crate) fn make_state(&self) -> Result<&Path, Failure> {
        make_private(&self.state, self.uid)?;
        Ok(&self.state)
    }
}

/// The user we are. `/proc/self` belongs to it, which spares the binary a system call by hand.
fn own_uid() -> u32 {
    fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid())
}

fn runtime_dir(environment: &Environment, uid: u32) -> PathBuf {
    let customary = PathBuf::from(format!("/run/user/{uid}"));
    let ours = || {
        customary
            .metadata()
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
    };
    match environment.directory("XDG_RUNTIME_DIR") {
        Some(dir) => dir.join("ringfence"),
        None if ours() => customary.join("ringfence"),
        // Anybody may write to /tmp: `make_private` and `check_private` refuse a directory made by others.
        None => PathBuf::from(format!("/tmp/ringfence-{uid}")),
    }
}

fn make_private(dir: &Path, uid: u32) -> Result<(), Failure> {
    let refused = |why: String| {
        Failure::refused(
            format!("cannot use the directory {}: {why}", dir.display()),
            "remove it, or set XDG_RUNTIME_DIR and XDG_STATE_HOME to directories of your own",
        )
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| refused(error.to_string()))?;
    check_private(dir, uid).map_err(refused)
}

/// That `dir` is a directory, not a link, ours, and closed to others.
fn check_private(dir: &Path, uid: u32) -> Result<(), String> {
    let meta = dir.symlink_metadata().map_err(|error| error.to_string())?;
    if !meta.is_dir() {
        return Err("it is not a directory".to_owned());
    }
    if meta.uid() != uid {
        return Err(format!("it belongs to user {}", meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(format!("others may enter it (mode {:o})", meta.mode() & 0o777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_environment_decides() {
        let paths = Paths::new(&Environment::from([
            ("XDG_STATE_HOME", "/s"),
            ("XDG_RUNTIME_DIR", "/r"),
            ("XDG_CONFIG_HOME", "relative"),
            ("HOME", "/home/ann"),
        ]));
        assert_eq!(paths.state, Path::new("/s/ringfence"));
        assert_eq!(paths.socket(), Path::new("/r/ringfence/engine.sock"));
        assert_eq!(
            paths.config.as_deref(),
            Some(Path::new("/home/ann/.config/ringfence"))
        );
    }

    #[test]
    fn without_a_home_there_is_still_a_state_directory() {
        let paths = Paths::new(&Environment::default());
        assert_eq!(paths.state, paths.runtime.join("state"));
        assert_eq!(paths.config, None);
    }

    #[test]
    fn a_directory_open_to_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("a");
        make_private(&ours, own_uid()).unwrap();
        assert_eq!(ours.metadata().unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(
            make_private(&ours, own_uid())
                .unwrap_err()
                .to_string()
                .contains("others may enter")
        );
    }

    #[test]
    fn a_directory_of_somebody_else_or_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(
            check_private(dir.path(), own_uid() + 1)
                .unwrap_err()
                .contains("belongs to")
        );
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(
            check_private(&link, own_uid())
                .unwrap_err()
                .contains("not a directory")
        );
    }
}
