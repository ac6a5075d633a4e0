//! Bind mounts of host directories and files.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Path of the packages that were installed for a run. Python guests search the directory that is mounted here for modules.
pub const PACKAGES: &str = "/opt/ringfence/site-packages";

/// Path of the packages of npm that were installed for a run. Node.js looks for modules in the directories of this name beside
/// a file and above it, at last in this one: nearer ones come first.
pub const NODE_MODULES: &str = "/node_modules";

/// Access of the guest to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    ReadOnly,
    ReadWrite,
    /// Read and write a path created for this request alone: a backend that cannot mount it may copy it
    /// instead.
    Copy,
}

/// A bind mount, `HOST:GUEST[:ro|rw]`; read-only by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Path on the host, as written; resolved by the surface that parsed it.
    pub host: PathBuf,
    /// Absolute path in the guest, without `.` or `..`.
    guest: PathBuf,
    /// Access of the guest.
    pub access: Access,
}

/// An error returned when parsing a mount from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseMountError {
    /// Not of the form `HOST:GUEST[:ro|rw]`.
    #[error("`{0}` is not a mount; write it like `./data:/data:ro`")]
    Malformed(String),
    /// The access is neither `ro` nor `rw`.
    #[error("`{found}` is not a mount access; write `ro` or `rw`, as in `{mount}:ro`")]
    Access {
        /// The text before it.
        mount: String,
        found: String,
    },
    /// The guest path is relative, the root, or contains `..`.
    #[error("`{0}` cannot be mounted on; use an absolute path below `/` such as `/data`")]
    GuestPath(String),
    /// The guest path lies in a directory of the fence.
    #[error("`{0}` cannot be mounted on: the fence has its own {1}; use another path such as `/data`")]
    Reserved(String, &'static str),
}

/// Directories of the fence's own layout; a mount there would replace a part of the fence.
const RESERVED: &[&str] = &[
    "/proc", "/dev", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/run", "/code", "/cell",
];

impl Mount {
    /// Returns a mount of `host` at `guest`.
    ///
    /// # Errors
    /// If `guest` is relative, contains `..`, or lies in a directory of the fence.
    pub fn new(host: PathBuf, guest: &str, access: Access) -> Result<Self, ParseMountError> {
        let path = Path::new(guest);
        let plain = path
            .components()
            .all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if !path.is_absolute() || !plain || path.parent().is_none() || guest.contains('\0') {
            return Err(ParseMountError::GuestPath(guest.to_owned()));
        }
        if let Some(dir) = RESERVED.iter().find(|dir| path.starts_with(dir)) {
            return Err(ParseMountError::Reserved(guest.to_owned(), dir));
        }
        Ok(Self {
            host,
            guest: path.components().collect(),
            access,
        })
    }

    /// Returns the read-only mount of the packages in `host` at their place, such as [`PACKAGES`].
    pub fn packages(host: PathBuf, place: &'static str) -> Self {
        Self {
            host,
            guest: PathBuf::from(place),
            access: Access::ReadOnly,
        }
    }

    /// Returns the path in the guest.
    pub fn guest(&self) -> &Path {
        &self.guest
    }
}

impl FromStr for Mount {
    type Err = ParseMountError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || ParseMountError::Malformed(text.to_owned());
        let (paths, access) = match text.rsplit_once(':') {
            Some((paths, "ro")) => (paths, Access::ReadOnly),
            Some((paths, "rw")) => (paths, Access::ReadWrite),
            _ => (text, Access::ReadOnly),
        };
        let (host, guest) = paths.rsplit_once(':').ok_or_else(malformed)?;
        if host.is_empty() || guest.is_empty() {
            return Err(malformed());
        }
        // A third part that is not a path was meant as the access.
        if paths == text && !guest.contains('/') && host.contains(':') {
            return Err(ParseMountError::Access {
                mount: host.to_owned(),
                found: guest.to_owned(),
            });
        }
        Self::new(PathBuf::from(host), guest, access)
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = match self.access {
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
            Access::Copy => "copy",
        };
        write!(f, "{}:{}:{access}", self.host.display(), self.guest.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_three_forms() {
        for (text, access) in [
            ("./d:/data", Access::ReadOnly),
            ("./d:/data:ro", Access::ReadOnly),
            ("./d:/data:rw", Access::ReadWrite),
        ] {
            let mount: Mount = text.parse().unwrap();
            assert_eq!(
                (mount.host.as_path(), mount.guest(), mount.access),
                (Path::new("./d"), Path::new("/data"), access)
            );
        }
    }

    #[test]
    fn packages_have_a_place_of_the_usual_form() {
        let host = PathBuf::from("/kept");
        let usual = Mount::new(host.clone(), PACKAGES, Access::ReadOnly);
        assert_eq!(usual, Ok(Mount::packages(host, PACKAGES)));
    }

    #[test]
    fn errors_name_the_wrong_part() {
        for (text, words) in [
            (
                "d:/data:rx",
                "`rx` is not a mount access; write `ro` or `rw`, as in `d:/data:ro`",
            ),
            ("x:y:rx", "`rx` is not a mount access"),
            ("d:rel", "`rel` cannot be mounted on; use an absolute path"),
            ("d:/data/../x", "use an absolute path"),
            (
                "d:/usr/lib",
                "`/usr/lib` cannot be mounted on: the fence has its own /usr",
            ),
        ] {
            let error = text.parse::<Mount>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn refuses_what_would_replace_the_fence() {
        for text in [
            "d",
            ":/data",
            "d:",
            "d:data",
            "d:/",
            "d:/../x",
            "d:/proc",
            "d:/etc/passwd",
            "d:/usr/lib:rw",
        ] {
            assert!(text.parse::<Mount>().is_err(), "{text}");
        }
    }
}
