//! Errors of assembling the image.

use std::io;
use std::path::PathBuf;

/// An error of assembling the image.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// This machine has no Debian package database.
    #[error("cannot read the list of packages {}: {error}", path.display())]
    NoPackages {
        /// Expected path of the database.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A required package is not installed.
    #[error("the package `{0}` is not installed on this machine")]
    Missing(&'static str),
    /// A file could not be read, or the engine closed the stream.
    #[error("cannot gather the files of the image")]
    Io(#[from] io::Error),
}

impl GatherError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoPackages { .. } => {
                "only a Debian-like machine can lend its packages; build from the Dockerfile instead"
            }
            Self::Missing(_) => "install it, or build from the Dockerfile instead",
            Self::Io(_) => "check that the container engine runs, and that its disk is not full",
        }
    }
}
