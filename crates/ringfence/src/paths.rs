//! Paths of state, sockets and configuration.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::env::Environment;
use crate::failure::Failure;
use crate::own_directory::{self, DirectoryError, User};

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
    user: User,
}

impl Paths {
    /// Returns the directories that the environment names, else the default ones.
    pub fn new(environment: &Environment) -> Self {
        let user = own_user();
        let home = environment.directory("HOME");
        let below_home = |variable: &str, customary: &str| {
            let named = environment.directory(variable);
            named
                .or_else(|| home.as_ref().map(|home| home.join(customary)))
                .map(|dir| dir.join("ringfence"))
        };
        let runtime = runtime_dir(environment, user);
        Self {
            // Without a home (a service, `env -i`), or with one that others can replace (a container of another user's
            // image), state lies in the runtime directory. One that is named is never replaced.
            state: below_home("XDG_STATE_HOME", ".local/state")
                .filter(|state| {
                    environment.directory("XDG_STATE_HOME").is_some() || own_directory::is_safe(state, user)
                })
                .unwrap_or_else(|| runtime.join("state")),
            config: below_home("XDG_CONFIG_HOME", ".config"),
            runtime,
            user,
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
        own_directory::check(&self.runtime, self.user)
            .ok()
            .map(|()| self.socket())
    }

    /// Returns the state directory, if it exists and only we could have created it.
    pub fn state_if_ours(&self) -> Option<&Path> {
        own_directory::check(&self.state, self.user)
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
        made(&self.runtime, self.user)?;
        Ok(&self.runtime)
    }

    /// Creates the state directory, accessible to us alone.
    ///
    /// # Errors
    /// If it cannot be created, or another user created it first.
    pub fn make_state(&self) -> Result<&Path, Failure> {
        made(&self.state, self.user)?;
        Ok(&self.state)
    }

    /// Checks that nobody else can write to the state directory or replace it. One that does not exist is made where
    /// another user could make it first. Without one, nothing is kept.
    ///
    /// # Errors
    /// If somebody else can.
    pub fn check_state(&self) -> Result<(), Failure> {
        match own_directory::claim(&self.state, self.user) {
            Ok(()) | Err(DirectoryError::Io(_) | DirectoryError::Unusable(_)) => Ok(()),
            Err(error @ DirectoryError::Unsafe(_)) => Err(refused(&self.state, &error)),
        }
    }
}

/// Returns our ids, from the owner of `/proc/self`: this spares the binary raw system calls. A lookup there takes
/// longer than elsewhere, so each process does one.
pub(crate) fn own_user() -> User {
    static OWN: OnceLock<User> = OnceLock::new();
    *OWN.get_or_init(|| {
        let (uid, gid) =
            fs::metadata("/proc/self").map_or((u32::MAX, u32::MAX), |meta| (meta.uid(), meta.gid()));
        User { uid, gid }
    })
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

fn runtime_dir(environment: &Environment, user: User) -> PathBuf {
    let uid = user.uid;
    let customary = PathBuf::from(format!("/run/user/{uid}"));
    let ours = || {
        customary
            .metadata()
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == uid)
    };
    match environment.directory("XDG_RUNTIME_DIR") {
        Some(dir) => dir.join("ringfence"),
        None if ours() => customary.join("ringfence"),
        // Anybody may write there: a directory that another user made is refused. In pods /tmp may lack the sticky bit.
        None => {
            let below = |parent: &str| Path::new(parent).join(format!("ringfence-{uid}"));
            let places = ["/tmp", "/dev/shm"].map(below);
            let [first, _] = &places;
            let safe = places
                .iter()
                .find(|place| own_directory::has_safe_ancestors(place, user));
            safe.unwrap_or(first).clone()
        }
    }
}

/// Makes one of our directories.
fn made(directory: &Path, user: User) -> Result<(), Failure> {
    own_directory::make(directory, user).map_err(|error| refused(directory, &error))
}

fn refused(directory: &Path, error: &DirectoryError) -> Failure {
    let hint = match error {
        DirectoryError::Unsafe(_) | DirectoryError::Unusable(_) => {
            "if it is of another user's server, run this as that user; else make it yours alone (mode 700), or set XDG_RUNTIME_DIR and \
             XDG_STATE_HOME to directories of your own"
        }
        DirectoryError::Io(_) => {
            "make its parent writable, or set XDG_RUNTIME_DIR and XDG_STATE_HOME to directories of your own"
        }
    };
    Failure::refused(
        format!("cannot use the directory {}: {error}", directory.display()),
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
