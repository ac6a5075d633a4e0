//! Errors of installations and of the store.

use std::io;
use std::path::{Path, PathBuf};

use ringfence_exec::backend::{self, Reason};
use ringfence_policy::hints::closed_address;
use ringfence_policy::{Bytes, EgressAttempt, Mount, Timeout};
use tokio::task::JoinError;

use crate::ecosystem::Ecosystem;
use crate::tree::TreeError;

/// An environment could not be provided.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The fence could not run the installer.
    #[error("cannot install the packages: {0}")]
    Backend(#[from] backend::Error),
    #[error("cannot install packages: this machine has no usable {}", .0.facts().interpreter)]
    NoInterpreter(Ecosystem),
    #[error("`{mount}` lies where the packages are: {place}")]
    Hidden { mount: Box<Mount>, place: &'static str },
    #[error("the task that installs packages panicked")]
    Panicked,
}

impl Error {
    /// Returns advice.
    pub fn hint(&self) -> String {
        match self {
            Self::Install(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Backend(error) => error.hint.clone().person().into_owned(),
            Self::NoInterpreter(_) => "`ringfence doctor` says what is missing".to_owned(),
            Self::Hidden { .. } => "give the mount another path inside".to_owned(),
            Self::Panicked => "this is a fault of Ringfence; please report it".to_owned(),
        }
    }

    /// Converts the error into the refusal of a run.
    pub fn into_refusal(self) -> backend::Error {
        let reason = match &self {
            Self::Hidden { .. } => Reason::Invalid,
            Self::Install(_)
            | Self::Store(_)
            | Self::Backend(_)
            | Self::NoInterpreter(_)
            | Self::Panicked => Reason::Unavailable,
        };
        backend::Error {
            reason,
            message: self.to_string(),
            hint: self.hint().into(),
        }
    }
}

/// The store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the packages were removed while they were installed")]
    Gone,
    #[error("the packages were installed for another interpreter ({})", .0.facts().interpreter)]
    Interpreter(Ecosystem),
    #[error("a task that writes packages panicked")]
    Panicked(#[source] JoinError),
}

impl StoreError {
    /// Returns a function that adds the path to an error.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn hint(&self) -> String {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => FREE_DISK,
            Self::Io { .. } => {
                "make the state directory yours and writable, or set XDG_STATE_HOME to another one"
            }
            Self::Gone => "run it again",
            Self::Panicked(_) => "this is a fault of Ringfence; please report it",
            Self::Interpreter(ecosystem) => {
                return format!(
                    "start the server with the same {}, or name it in `{}`",
                    ecosystem.facts().interpreter,
                    ecosystem.messages().interpreter_key
                );
            }
        }
        .to_owned()
    }
}

const FREE_DISK: &str =
    "free some disk; `ringfence packages ls` lists kept packages, and `ringfence packages rm` removes them";

/// Packages were not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("cannot install packages: the interpreter has no {}", .0.messages().installer)]
    NoInstaller(Ecosystem),
    #[error("cannot install packages: they need {}, and the interpreter is another", .0.facts().interpreter)]
    NotNode(Ecosystem),
    #[error("the {} has no package `{name}`, or no {}{detail}", .ecosystem.messages().index, .ecosystem.messages().missing_part)]
    NotFound {
        ecosystem: Ecosystem,
        name: String,
        detail: String,
    },
    #[error("the packages have conflicting dependencies{0}")]
    Conflict(String),
    #[error("a file from the {} does not match the hash that is given for it; nothing was installed", .0.messages().index)]
    Digest(Ecosystem),
    #[error("a package brings the metadata of another, as if that were installed; nothing was installed")]
    ForeignMetadata,
    #[error("the {} could not be reached: {attempt}", .ecosystem.messages().index)]
    Unreachable {
        ecosystem: Ecosystem,
        attempt: EgressAttempt,
    },
    #[error("the packages do not fit into {0}")]
    Disk(Bytes),
    #[error("installing the packages needs more than {0} of memory")]
    Memory(Bytes),
    #[error("installing the packages took longer than {0}")]
    TimedOut(Timeout),
    #[error("installing the packages was cancelled")]
    Cancelled,
    #[error("the installed files cannot be kept: {0}")]
    Tree(#[from] TreeError),
    #[error("{} failed{detail}", .ecosystem.messages().installer)]
    Failed { ecosystem: Ecosystem, detail: String },
}

impl InstallError {
    pub(crate) fn hint(&self) -> String {
        let hint = match self {
            Self::Unreachable { ecosystem, attempt } => return reach(*ecosystem, attempt),
            Self::NoInstaller(ecosystem) | Self::NotNode(ecosystem) => ecosystem.messages().without_installer,
            Self::NotFound { ecosystem, .. } => ecosystem.messages().not_found,
            Self::Conflict(_) => "ask for other versions, or leave versions out",
            Self::Digest(_) => "try again later; if it stays, tell whoever serves the file",
            Self::Disk(_) | Self::Memory(_) => {
                "ask for fewer packages, or use an image or, for Python, a virtual environment (`--python`)"
            }
            Self::TimedOut(_) => "try again, or ask for fewer packages",
            Self::Cancelled => "run it again",
            Self::Tree(TreeError::Write { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                FREE_DISK
            }
            Self::Tree(TreeError::Write { .. }) => "make the state directory yours and writable",
            Self::Tree(_) | Self::ForeignMetadata => "ask for other packages",
            Self::Failed { .. } => {
                "the program that installs is a run: `ringfence audit tail` has its record"
            }
        };
        hint.to_owned()
    }
}

/// Returns advice on reaching a host that an installation could not reach.
fn reach(ecosystem: Ecosystem, attempt: &EgressAttempt) -> String {
    let (url, hosts) = ecosystem.keys();
    match closed_address(attempt) {
        Some(remedy) => remedy,
        None if attempt.verdict == "refused" => format!(
            "the {} links to this host; if you trust it, add it to `{hosts}` in your own configuration",
            ecosystem.messages().index
        ),
        None => format!("check the connection and `{url}`"),
    }
}
