//! Errors of interpreters.

use std::path::PathBuf;

use ringfence_policy::{Remedy, Timeout, remedy};

use super::python::Version;

/// An error of finding a usable Python.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No interpreter was found.
    #[error("no python3 found in {looked}")]
    NotFound {
        /// Searched places.
        looked: String,
    },
    /// The configured path is neither a program nor a virtual environment.
    #[error("expected a Python interpreter or a virtual environment, got `{0}`")]
    Configured(PathBuf),
    /// The interpreter's version is too old.
    #[error("`{path}` is Python {}.{}.{}, and at least 3.9 is needed", version.0, version.1, version.2)]
    TooOld {
        /// Interpreter.
        path: PathBuf,
        /// Reported version.
        version: Version,
    },
    /// Probing the interpreter failed.
    #[error("`{path}` cannot be used as a Python")]
    Probe {
        /// Interpreter.
        path: PathBuf,
        #[source]
        source: ProbeError,
    },
    /// Earlier runs used more interpreters than can be protected from programs.
    #[error("earlier runs used more than {most} interpreters, listed in `{file}`")]
    Many {
        most: usize,
        /// The list.
        file: PathBuf,
    },
    /// Showing the interpreter's prefix would show unrelated files.
    #[error("`{path}` is installed straight into `{prefix}`, which the fence must not show")]
    Broad {
        /// Interpreter.
        path: PathBuf,
        prefix: PathBuf,
    },
}

impl Error {
    /// Returns advice for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::Probe {
                source: ProbeError::Planted { .. },
                ..
            } => remedy::Run::AcceptFile.into(),
            Self::Many { .. } => "remove virtual environments that you do not need, or that file".into(),
            Self::NotFound { .. }
            | Self::Configured(_)
            | Self::TooOld { .. }
            | Self::Probe { .. }
            | Self::Broad { .. } => remedy::Run::NamePython.into(),
        }
    }
}

/// An error of probing an interpreter.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The fence could not be set up, or the interpreter could not be started in it.
    #[error("it cannot be started in a fence: {0}")]
    Fence(String),
    /// The interpreter exceeded the time limit and was killed.
    #[error("it did not answer within {0}")]
    TimedOut(Timeout),
    /// The interpreter printed more than an answer can have.
    #[error("its answer is longer than {0} bytes")]
    TooLong(u64),
    /// The interpreter exited without an answer.
    #[error("it gave no answer: {0}")]
    NoAnswer(String),
    /// The answer is malformed.
    #[error("its answer is malformed")]
    Malformed(#[source] serde_json::Error),
    /// The interpreter's links lead to a file that is not a program.
    #[error("it leads to `{0}`, which is not a program")]
    NoProgram(PathBuf),
    /// The interpreter claims files that its own configuration does not name.
    #[error("it claims `{0}` as its own, but neither its links nor its `pyvenv.cfg` lead there")]
    Beyond(PathBuf),
    /// A program may have written one of its `.pth` files, which adds a directory from elsewhere.
    #[error(
        "its `{}` adds {}, and programs could write in {}",
        file.display(), added.display(), tree.display()
    )]
    Planted {
        /// `.pth` file.
        file: PathBuf,
        added: PathBuf,
        /// Directory that programs could write.
        tree: PathBuf,
    },
    /// The record of accepted files cannot be read.
    #[error("cannot read the list of its files that a program may have written")]
    Unknown(#[source] std::io::Error),
}
