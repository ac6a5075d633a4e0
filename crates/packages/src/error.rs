//! Errors of installations and of the store.

use std::io;
use std::path::{Path, PathBuf};

use ringfence_exec::backend;
use ringfence_policy::{Bytes, ExecutionResult, Timeout};

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
}

impl StoreError {
    /// Returns a function that adds the path to an error.
    pub(crate) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }

    fn hint(&self) -> String {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some disk; `ringfence packages ls` lists kept packages, and `rm` removes them"
            }
            Self::Io { .. } => {
                "make the state directory yours and writable, or set XDG_STATE_HOME to another one"
            }
            Self::Gone => "run it again",
            Self::Interpreter => "start the server with the same Python, or name it in `sandbox.python`",
        }
        .to_owned()
    }
}

/// Packages were not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("cannot install packages: the interpreter has no pip")]
    NoInstaller,
    #[error("the index has no package `{name}`, or no wheel of it for this Python and machine{detail}")]
    NotFound { name: String, detail: String },
    #[error("the packages exclude each other{0}")]
    Conflict(String),
    /// A file is not the one that the index names.
    #[error("the index delivered a file with another digest than its page says; nothing was installed")]
    Digest,
    #[error("the index could not be reached: {0}")]
    Unreachable(String),
    #[error("the packages do not fit into {0}")]
    Disk(Bytes),
    #[error("installing the packages needs more than {0} of memory")]
    Memory(Bytes),
    #[error("installing the packages took longer than {0}")]
    TimedOut(Timeout),
    #[error("installing the packages was cancelled")]
    Cancelled,
    #[error("refusing what was installed: {0}")]
    Tree(#[from] TreeError),
    #[error("pip failed{0}")]
    Failed(String),
}

impl InstallError {
    /// Classifies the failure of pip, which the network's record and its own messages tell.
    pub(crate) fn of(result: &ExecutionResult, disk: Bytes) -> Self {
        let errors = result.stderr.as_str();
        let attempts = result.meta.egress.iter().flat_map(|facts| &facts.attempts);
        let failed = attempts.rev().find(|attempt| attempt.verdict != "connected");
        if errors.contains("No space left on device") {
            Self::Disk(disk)
        } else if errors.contains("DO NOT MATCH THE HASHES") {
            Self::Digest
        } else if let Some(attempt) = failed {
            Self::Unreachable(attempt.to_string())
        } else if let Some((_, rest)) = errors.rsplit_once("No matching distribution found for ") {
            let name = rest.split_whitespace().next().unwrap_or_default();
            let name = name
                .chars()
                .take(80)
                .collect::<String>()
                .escape_debug()
                .to_string();
            Self::NotFound {
                name,
                detail: offered(errors),
            }
        } else if errors.contains("ResolutionImpossible") {
            Self::Conflict(excerpt(errors))
        } else {
            Self::Failed(excerpt(errors))
        }
    }

    fn hint(&self) -> String {
        match self {
            Self::NoInstaller => "install pip for it (Debian: `apt install python3-pip`), or name another interpreter with `--python`",
            Self::NotFound { .. } => {
                "check the spelling and the version; packages are installed from wheels alone, never built from source"
            }
            Self::Conflict(_) => "ask for other versions, or leave versions out",
            Self::Digest => "try again later; if it stays, tell whoever runs the index",
            Self::Unreachable(_) => {
                "check the connection and `packages.index`; a host that the index links to belongs into `packages.hosts`"
            }
            Self::Disk(_) | Self::Memory(_) => "ask for fewer packages, or use an image or a virtual environment (`--python`)",
            Self::TimedOut(_) => "try again, or ask for fewer packages",
            Self::Cancelled => "run it again",
            Self::Tree(_) => "ask for other packages; this one cannot be kept",
            Self::Failed(_) => "the program that installs is a run: `ringfence audit show` has its record",
        }
        .to_owned()
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
    use ringfence_policy::{EgressAttempt, EgressFacts, Language, Limits, Meta, Outcome, RuntimeKind};

    fn failed(stderr: &str, verdict: &str) -> String {
        let mut meta = Meta::of(
            RuntimeKind::Local,
            Language::Python,
            Limits::DEFAULT,
            Outcome::Exited,
        );
        meta.egress = Some(EgressFacts {
            attempts: vec![EgressAttempt {
                target: "index.test:443".to_owned(),
                verdict: verdict.to_owned(),
                reason: None,
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
        InstallError::of(&result, Bytes::mib(2)).to_string()
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
                "another digest",
            ),
            (
                "ERROR: ResolutionImpossible: for help",
                "connected",
                "exclude each other: ResolutionImpossible",
            ),
            (
                "noise\nERROR: odd \u{1b}[31m",
                "connected",
                "pip failed: odd \\u{1b}[31m",
            ),
            ("", "connected", "pip failed"),
        ] {
            let found = failed(stderr, verdict);
            assert!(found.contains(expected), "{stderr}: {found}");
        }
        assert!(failed(&"ERROR: x".repeat(1000), "connected").len() < 700);
    }
}
