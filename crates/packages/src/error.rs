//! Errors of installations and of the store.

use std::io;
use std::path::{Path, PathBuf};

use ringfence_exec::backend;
use ringfence_policy::hints::closed_address;
use ringfence_policy::{Bytes, EgressAttempt, ExecutionResult, Timeout};
use tokio::task::JoinError;

use crate::requirement::shown;
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
    #[error("cannot install packages: this machine has no usable Python")]
    NoPython,
}

impl Error {
    /// Returns advice.
    pub fn hint(&self) -> String {
        match self {
            Self::Install(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Backend(error) => error.hint.clone().person().into_owned(),
            Self::NoPython => "`ringfence doctor` says what is missing".to_owned(),
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
    #[error("the packages were installed for another Python")]
    Interpreter,
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
            Self::Interpreter => "start the server with the same Python, or name it in `sandbox.python`",
        }
        .to_owned()
    }
}

const FREE_DISK: &str =
    "free some disk; `ringfence packages ls` lists kept packages, and `ringfence packages rm` removes them";

/// Packages were not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("cannot install packages: the interpreter has no pip")]
    NoInstaller,
    #[error("the index has no package `{name}`, or no wheel of it for this Python and machine{detail}")]
    NotFound { name: String, detail: String },
    #[error("the packages have conflicting dependencies{0}")]
    Conflict(String),
    #[error("a file from the index does not match the hash on its page; nothing was installed")]
    Digest,
    #[error("a package brings the metadata of another, as if that were installed; nothing was installed")]
    ForeignMetadata,
    #[error("the index could not be reached: {0}")]
    Unreachable(EgressAttempt),
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
    #[error("pip failed{0}")]
    Failed(String),
}

impl InstallError {
    /// Classifies a failure of pip by the attempts to reach hosts and by pip's messages.
    pub(crate) fn of(result: &ExecutionResult, disk: Bytes) -> Self {
        let errors = result.stderr.as_str();
        let attempts = result.meta.egress.iter().flat_map(|facts| &facts.attempts);
        let failed = attempts.rev().find(|attempt| attempt.verdict != "connected");
        if errors.contains("No space left on device") {
            Self::Disk(disk)
        } else if errors.contains("DO NOT MATCH THE HASHES") {
            Self::Digest
        } else if let Some(attempt) = failed {
            Self::Unreachable(attempt.clone())
        } else if let Some((_, rest)) = errors.rsplit_once("No matching distribution found for ") {
            Self::NotFound {
                name: shown(rest.split_whitespace().next().unwrap_or_default()),
                detail: offered(errors),
            }
        } else if errors.contains("ResolutionImpossible") {
            Self::Conflict(excerpt(errors))
        } else {
            Self::Failed(excerpt(errors))
        }
    }

    fn hint(&self) -> String {
        let hint = match self {
            Self::Unreachable(attempt) => return reach(attempt),
            Self::NoInstaller => {
                "install pip for it (Debian: `apt install python3-pip`), or name another interpreter with `--python`"
            }
            Self::NotFound { .. } => {
                "check the spelling and the version; packages are installed from wheels alone, never built from source"
            }
            Self::Conflict(_) => "ask for other versions, or leave versions out",
            Self::Digest => "try again later; if it stays, tell whoever runs the index",
            Self::Disk(_) | Self::Memory(_) => {
                "ask for fewer packages, or use an image or a virtual environment (`--python`)"
            }
            Self::TimedOut(_) => "try again, or ask for fewer packages",
            Self::Cancelled => "run it again",
            Self::Tree(TreeError::Write { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                FREE_DISK
            }
            Self::Tree(TreeError::Write { .. }) => "make the state directory yours and writable",
            Self::Tree(_) | Self::ForeignMetadata => "ask for other packages",
            Self::Failed(_) => "the program that installs is a run: `ringfence audit show` has its record",
        };
        hint.to_owned()
    }
}

/// Returns advice on reaching a host that an installation could not reach.
fn reach(attempt: &EgressAttempt) -> String {
    match closed_address(attempt) {
        Some(remedy) => remedy,
        None if attempt.verdict == "refused" => {
            "the index links to this host; if you trust it, add it to `packages.hosts` in your own configuration"
                .to_owned()
        }
        None => "check the connection and `packages.index`".to_owned(),
    }
}

/// Maximum length of an excerpt, and maximum number of its lines.
const MAX_EXCERPT: usize = 600;
const MAX_LINES: usize = 6;

/// Returns the versions that the index offers, as pip names them.
fn offered(errors: &str) -> String {
    let found = errors
        .rsplit_once("(from versions: ")
        .and_then(|(_, rest)| rest.split_once(')'));
    match found {
        Some((versions, _)) if versions != "none" => {
            let all: Vec<&str> = versions.split(", ").collect();
            let last = all[all.len().saturating_sub(5)..].join(", ");
            let short: String = last.chars().take(100).collect();
            format!("; the latest are {}", short.escape_debug())
        }
        _ => String::new(),
    }
}

/// Returns the last errors in the output of pip, bounded and without control characters.
fn excerpt(errors: &str) -> String {
    let lines: Vec<&str> = errors
        .lines()
        .filter(|line| line.starts_with("ERROR: "))
        .collect();
    let last = &lines[lines.len().saturating_sub(MAX_LINES)..];
    let text = last
        .iter()
        .map(|line| line.trim_start_matches("ERROR: ").escape_debug().to_string())
        .collect::<Vec<_>>()
        .join("; ");
    match text.chars().take(MAX_EXCERPT).collect::<String>() {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{EgressFacts, EgressPolicy, Language, Limits, Meta, Outcome, RuntimeKind};

    fn failed(stderr: &str, verdict: &str, reason: Option<String>) -> InstallError {
        let mut meta = Meta::of(
            RuntimeKind::Local,
            Language::Python,
            Limits::DEFAULT,
            Outcome::Exited,
        );
        meta.egress = Some(EgressFacts {
            bytes: 0,
            attempts: vec![EgressAttempt {
                target: "index.test:443".to_owned(),
                verdict: verdict.to_owned(),
                reason,
            }],
            left_off: 0,
        });
        let result = ExecutionResult {
            stdout: String::new(),
            stderr: stderr.to_owned(),
            exit_code: 4,
            duration: 0.0,
            meta,
        };
        InstallError::of(&result, Bytes::mib(2))
    }

    #[test]
    fn failures_of_pip_are_told_apart() {
        let missing = "ERROR: Could not find a version that satisfies the requirement nope==3 (from versions: 1.0, 2.0)\nERROR: No matching distribution found for nope==3\n";
        for (stderr, verdict, expected) in [
            (
                missing,
                "connected",
                "`nope==3`, or no wheel of it for this Python and machine; the latest are 1.0, 2.0",
            ),
            (missing, "refused", "could not be reached: index.test:443 refused"),
            (
                "OSError: [Errno 28] No space left on device",
                "connected",
                "do not fit into 2MiB",
            ),
            (
                "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM",
                "connected",
                "does not match the hash",
            ),
            (
                "ERROR: ResolutionImpossible: for help",
                "connected",
                "conflicting dependencies: ResolutionImpossible",
            ),
            (
                "noise\nERROR: odd \u{1b}[31m",
                "connected",
                "pip failed: odd \\u{1b}[31m",
            ),
            ("", "connected", "pip failed"),
        ] {
            let found = failed(stderr, verdict, None).to_string();
            assert!(found.contains(expected), "{stderr}: {found}");
        }
        let long = failed(&"ERROR: x".repeat(1000), "connected", None);
        assert!(long.to_string().len() < 700);
    }

    #[test]
    fn a_host_that_was_not_reached_has_its_remedy() {
        let host = "index.test".parse().unwrap();
        let policy = EgressPolicy::default();
        let closed = policy.check_address(&host, "10.0.0.1".parse().unwrap());
        let unlisted = policy.check_host(&host, 443);
        for (verdict, reason, expected) in [
            (
                "refused",
                closed.err().map(|refusal| refusal.to_string()),
                "`egress.private_networks`",
            ),
            (
                "refused",
                unlisted.err().map(|refusal| refusal.to_string()),
                "`packages.hosts`",
            ),
            ("unreachable", None, "`packages.index`"),
        ] {
            let hint = failed("", verdict, reason).hint();
            assert!(hint.contains(expected), "{verdict}: {hint}");
        }
    }
}
