//! Errors of the Pyodide backend.

use std::io;
use std::path::PathBuf;

use ringfence_policy::{Remedy, remedy};

use crate::{backend, local};

/// An error of running a request in Pyodide.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Deno, Pyodide or the snapshot is missing.
    #[error("Deno and Pyodide are not installed: there is no {}", .0.display())]
    NotInstalled(PathBuf),
    /// The snapshot could not be created.
    #[error("cannot create Pyodide's snapshot: {0}")]
    Snapshot(String),
    /// The language is not Python.
    #[error("Pyodide runs Python, and not {0}")]
    Language(ringfence_policy::Language),
    /// Only other runtimes offer the requested feature.
    #[error("{0} is not supported in Pyodide")]
    Elsewhere(&'static str),
    /// A file cannot be copied into the worker's memory.
    #[error("cannot copy {} into Pyodide's memory: {source}", .path.display())]
    File {
        /// File or directory.
        path: PathBuf,
        source: io::Error,
    },
    /// A file that Deno is started with cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    NotWritten {
        /// File or directory.
        path: PathBuf,
        source: io::Error,
    },
    /// A package cannot be loaded.
    #[error("cannot use {} for packages: {source}", .path.display())]
    Packages {
        /// File, or the directory of packages.
        path: PathBuf,
        source: io::Error,
    },
    /// The packages leave the program too little memory.
    #[error(
        "the packages take {packages} bytes of the program's memory of {memory}, which leaves too little"
    )]
    NoRoom {
        /// Memory that the packages take.
        packages: u64,
        /// Memory limit.
        memory: u64,
    },
    /// The files exceed the limit on copied bytes.
    #[error("the files to be copied into Pyodide's memory hold more than {0} bytes")]
    TooMuch(u64),
    /// The output directory cannot be used, so the program's files would be lost.
    #[error("the output directory cannot be used: {0}")]
    OutputDirectory(io::Error),
    /// Deno could not be run.
    #[error("{}", .0.explain())]
    Local(#[from] local::Error),
    /// Deno exited, or sent an invalid message, before it was ready.
    #[error("Deno did not start: {0}")]
    NotReady(String),
}

impl RunError {
    /// Returns advice for the user.
    pub fn hint(&self) -> Remedy {
        match self {
            Self::NotInstalled(_) => remedy::Pyodide::Install.into(),
            Self::Snapshot(_) | Self::NotReady(_) => remedy::Pyodide::Reinstall.into(),
            Self::Language(_) | Self::Elsewhere(_) => remedy::Run::UseLocal.into(),
            Self::File { .. } | Self::TooMuch(_) => "mount less, or use the local runtime".into(),
            Self::Packages { .. } => remedy::Pyodide::ReplaceWheels.into(),
            Self::NoRoom { .. } => remedy::Pyodide::GiveMemory.into(),
            Self::NotWritten { .. } => remedy::Pyodide::FreeDirectory.into(),
            Self::OutputDirectory(_) => "name a directory that you may write, or one that can be made".into(),
            Self::Local(error) => error.hint(),
        }
    }
}

impl From<RunError> for backend::Error {
    fn from(error: RunError) -> Self {
        use backend::Reason as R;
        let reason = match &error {
            RunError::Local(error) => return Self::from(error),
            RunError::NotInstalled(_) => R::Unavailable,
            RunError::Language(_)
            | RunError::Elsewhere(_)
            | RunError::File { .. }
            | RunError::NoRoom { .. }
            | RunError::TooMuch(_) => R::Invalid,
            RunError::Snapshot(_)
            | RunError::NotReady(_)
            | RunError::NotWritten { .. }
            | RunError::Packages { .. }
            | RunError::OutputDirectory(_) => R::Failed,
        };
        Self {
            reason,
            hint: error.hint(),
            message: error.to_string(),
        }
    }
}
