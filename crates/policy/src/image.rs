//! The description of an image that a run needs.

use std::path::PathBuf;

use crate::EnvName;

/// An unpacked image that is the root of a run, instead of this machine's read-only view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Reference in full, or digest, by which the caller named it.
    pub reference: String,
    /// Digest of the image's configuration.
    pub digest: String,
    /// Directory of the host with its files, all of one owner.
    pub root: PathBuf,
    /// Entries of the image's root that the run sees.
    pub entries: Vec<RootEntry>,
    /// Environment variables of its configuration.
    pub env: Vec<(EnvName, String)>,
    /// Working directory, if its configuration names one that it has.
    pub working_directory: Option<PathBuf>,
    /// Path of the language's interpreter in the image, if it has one.
    pub interpreter: Option<PathBuf>,
}

/// An entry of an image's root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootEntry {
    /// Absolute path in the guest.
    pub guest: PathBuf,
    pub source: EntrySource,
}

/// The origin of an entry of an image's root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntrySource {
    /// A file or directory of the host, to mount read-only.
    Host(PathBuf),
    /// The target of a symbolic link.
    Link(PathBuf),
}

impl Image {
    /// Names at the root that the fence provides itself, in place of the image's.
    pub const RESERVED: &[&str] = &[
        "cell",
        "code",
        "dev",
        "output",
        "proc",
        "run",
        "sys",
        "tmp",
        "workspace",
    ];

    /// `PATH` of images that set none.
    pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}
