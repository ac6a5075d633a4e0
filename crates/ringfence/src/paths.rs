//! Paths of state, sockets and configuration.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::env::Environment;
use crate::failure::Failure;
use crate::state_lock::StateLock;

/// Name of the program that asks people in chats, which lies beside `ringfence`.
pub const GATEWAY_PROGRAM: &str = "ringfence-gateway";

/// The directories of this user.
#[derive(Debug, Clone)]
pub struct Paths {
    /// Artifacts, and the persistent state of the server.
    pub state: PathBuf,
    /// Sockets, and files that vanish with the login session.
    pub runtime: PathBuf,
    /// The user's configuration; `None` without a home directory.
    pub config: Option<PathBuf>,
    uid: u32,
}

impl Paths {
    /// Returns the directories that the environment names, else the default ones.
    pub fn new(environment: &Environment) -> Self {
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
            // Without a home (a service, `env -i`) state lies in the runtime directory.
            state: below_home("XDG_STATE_HOME", ".local/state").unwrap_or_else(|| runtime.join("state")),
            config: below_home("XDG_CONFIG_HOME", ".config"),
            runtime,
            uid,
        }
    }

    /// Returns the server's socket.
    pub fn socket(&self) -> PathBuf {
        self.runtime.join("engine.sock")
    }

    /// Like [`Self::socket_if_ours`], for a process that must not read its whole environment yet.
    pub fn socket_early() -> Option<PathBuf> {
        Self::new(&Environment::only(&["XDG_RUNTIME_DIR"])).socket_if_ours()
    }

    /// Returns the parent of private workspaces, for connections without a directory.
    pub fn workspaces(&self) -> PathBuf {
        self.state.join("workspaces")
    }

    /// Returns the directory of the audit log; absolute if a working directory exists.
    pub fn audit(&self, configured: Option<&Path>) -> PathBuf {
        match configured {
            Some(directory) => std::path::absolute(directory).unwrap_or_else(|_| directory.to_path_buf()),
            None => self.state.join("audit"),
        }
    }

    /// Returns the server's socket, if its directory is one that only we could have created.
    pub fn socket_if_ours(&self) -> Option<PathBuf> {
        check_private(&self.runtime, self.uid)
            .ok()
            .map(|()| self.socket())
    }

    /// Returns the state directory, if it exists and only we could have created it.
    pub fn state_if_ours(&self) -> Option<&Path> {
        check_private(&self.state, self.uid)
            .ok()
            .map(|()| self.state.as_path())
    }

    /// Returns the server's socket for gateways.
    pub fn gateway_socket(&self) -> PathBuf {
        self.runtime.join("gateway.sock")
    }

    /// Creates the runtime directory, accessible to us alone.
    ///
    /// # Errors
    /// If it cannot be created, or another user created it first.
    pub fn make_runtime(&self) -> Result<&Path, Failure> {
        make_private(&self.runtime, self.uid)?;
        Ok(&self.runtime)
    }

    /// Creates the state directory, accessible to us alone.
    ///
    /// # Errors
    /// If it cannot be created, or another user created it first.
    pub fn make_state(&self) -> Result<&Path, Failure> {
        make_private(&self.state, self.uid)?;
        Ok(&self.state)
    }

    /// Locks the state directory, which has one server only. If a server ends there, calls `waiting` and waits up to
    /// 60 s for it.
    ///
    /// # Errors
    /// If another server has locked it, or it cannot be used.
    pub fn lock_state(&self, waiting: impl FnOnce()) -> Result<StateLock, Failure> {
        StateLock::of(self.make_state()?, waiting)
    }
}

/// Returns our uid, from the owner of `/proc/self`: this spares the binary a raw system call. A lookup there takes
/// longer than elsewhere, so each process does one.
fn own_uid() -> u32 {
    static OWN: OnceLock<u32> = OnceLock::new();
    *OWN.get_or_init(|| fs::metadata("/proc/self").map_or(u32::MAX, |meta| meta.uid()))
}

/// Returns the working directory.
///
/// # Errors
/// If it was removed, or lies in a directory that cannot be read.
pub fn working_directory() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::refused(
            format!("cannot find the working directory: {error}"),
            "start again in a directory that exists",
        )
    })
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
        // Anybody may write to /tmp: `make_private` and `check_private` reject a directory that another user
        // created.
        None => PathBuf::from(format!("/tmp/ringfence-{uid}")),
    }
}

fn make_private(dir: &Path, uid: u32) -> Result<(), Failure> {
    let refused = |why: String, hint: &str| {
        Failure::refused(format!("cannot use the directory {}: {why}", dir.display()), hint)
    };
    if check_private(dir, uid).is_ok() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| {
            let hint = "make its parent writable, or set XDG_RUNTIME_DIR and XDG_STATE_HOME to directories of your own";
            refused(error.to_string(), hint)
        })?;
    check_private(dir, uid).map_err(|why| {
        let hint = "make it yours alone (mode 700), or set XDG_RUNTIME_DIR and XDG_STATE_HOME to directories of your own";
        refused(why, hint)
    })
}

/// Checks that `dir` is a directory and not a link, belongs to this user, and is closed to others.
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
