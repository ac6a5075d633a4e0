//! A Python interpreter and its parts.

use std::path::PathBuf;

use ringfence_policy::Trusted;
use serde::{Deserialize, Serialize};

use super::path::Link;

/// Oldest Python that runs our side of the protocol.
pub(super) const OLDEST: Version = (3, 9, 0);

/// Major, minor and patch number.
pub type Version = (u32, u32, u32);

/// A Python interpreter and its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// Path to execute. It may be a link, because Python finds a virtual environment by the name it is called
    /// by, but its directory is resolved, so that no link on the way to it is needed.
    pub executable: PathBuf,
    pub version: Version,
    /// `sys.prefix`: the virtual environment, or the installation.
    pub prefix: PathBuf,
    /// `sys.base_prefix`: the installation.
    pub base_prefix: PathBuf,
    /// `sys.exec_prefix`.
    pub exec_prefix: PathBuf,
    /// Directory of the standard library.
    pub stdlib: PathBuf,
    /// Existing entries of `sys.path` after `site` ran.
    pub search_path: Vec<PathBuf>,
    /// Directories that the fence must show besides `/usr`, none within another.
    pub library_dirs: Vec<PathBuf>,
    /// Links between `executable` and the program that lie outside the system's directories and
    /// `library_dirs`, in order. Their directories are resolved, too, for which some links are synthesized.
    pub links: Vec<Link>,
    /// Set if a site directory contains `.pth` files.
    pub has_pth: bool,
}

impl Python {
    /// Returns the files that it executes and loads, which no guest may write.
    pub fn trusted(&self) -> Trusted {
        let prefixes = [&self.prefix, &self.base_prefix, &self.exec_prefix];
        Trusted {
            paths: std::iter::once(&self.executable)
                .chain(self.links.iter().map(|link| &link.path))
                .cloned()
                .collect(),
            installations: prefixes.map(Clone::clone).into(),
            lookups: vec![self.stdlib.clone()],
            ..Trusted::none()
        }
    }
}
