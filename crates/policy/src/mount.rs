//! Bind mounts of host directories and files.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Access of the guest to a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read only.
    ReadOnly,
    /// Read and write.
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

/// The error of a text that is not a mount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseMountError {
    /// Not of the form `HOST:GUEST[:ro|rw]`.
    #[error("`{0}` is not a mount; write it like `./data:/data:ro`")]
    Malformed(String),
    /// The guest path cannot be mounted on.
    #[error("`{0}` cannot be mounted on; use an absolute path below `/` such as `/data`")]
    GuestPath(String),
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
        let reserved = RESERVED.iter().any(|dir| path.starts_with(dir));
        if !path.is_absolute() || !plain || path.parent().is_none() || reserved || guest.contains('\0') {
            return Err(ParseMountError::GuestPath(guest.to_owned()));
        }
        Ok(Self {
            host,
            guest: path.components().collect(),
            access,
        })
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
