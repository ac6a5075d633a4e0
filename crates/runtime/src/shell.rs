//! What runs the commands of the tool `shell`: a program with its arguments, never a shell's line.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ringfence_policy::{EnvName, ExecutionResult, Isolation, Language, Outcome, Request};
use schemars::JsonSchema;
use serde::Serialize;

use crate::container::{Containers, Flavor};
use crate::local::Fence;

/// What runs commands.
#[derive(Debug, Clone)]
pub enum Runner {
    /// The fence, as for code.
    Fenced,
    /// The host itself, with the person's rights: somebody chose that.
    Host(Host),
    /// A container of its own.
    Container(Contained),
}

/// What makes the containers of commands.
#[derive(Debug, Clone)]
pub struct Contained {
    /// How they are made.
    pub containers: Arc<Containers>,
    /// In which engine.
    pub flavor: Flavor,
    /// What runs commands where that is not there; `None`: nothing does.
    pub fallback: Option<Box<Runner>>,
}

/// What commands of the host start with.
#[derive(Debug, Clone)]
pub struct Host {
    /// Their environment.
    pub variables: Vec<(EnvName, String)>,
    /// Where they start, if there is no workspace; absolute.
    pub directory: PathBuf,
}

impl Runner {
    /// The name in configuration and results.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Host(_) => "host",
            Self::Container(_) => "container",
        }
    }

    /// The fence that a command runs in, where code runs in `fence`.
    pub(crate) const fn fence(&self, fence: Fence) -> Fence {
        match self {
            Self::Fenced | Self::Container(_) => fence,
            Self::Host(_) => Fence::Host,
        }
    }

    /// What runs commands in its place where there is no container engine.
    pub(crate) fn fallback(&self) -> Option<&Self> {
        match self {
            Self::Container(contained) => contained.fallback.as_deref(),
            Self::Fenced | Self::Host(_) => None,
        }
    }

    /// Says where a command starts and what it sees of its environment.
    pub(crate) fn equip(&self, request: &mut Request) {
        if let Self::Host(host) = self {
            request.env.extend(host.variables.iter().cloned());
            request.workspace.get_or_insert_with(|| host.directory.clone());
        }
    }
}

impl fmt::Display for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A directory below the workspace, as a caller writes it: relative, or absolute below `/workspace`.
///
/// `None`: it leads elsewhere.
pub(crate) fn working_directory(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let below = path.strip_prefix("/workspace").unwrap_or(path);
    let plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    (!text.contains('\0') && below.components().all(plain)).then(|| below.to_path_buf())
}

/// A command as a request; what is left to fill in is where it may run.
pub(crate) fn request(mut request: Request, command: String, args: Vec<String>) -> Request {
    debug_assert_eq!(request.language, Language::Command);
    request.name.clone_from(&command);
    request.args = std::iter::once(command).chain(args).collect();
    request
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ShellOutput {
    /// Its status; negative for a signal; none where it did not end by itself.
    pub exit_code: Option<i32>,
    /// What it wrote to standard output, as far as it was kept.
    pub stdout: String,
    /// What it wrote to standard error, and our notices about its end.
    pub stderr: String,
    /// Whether it was killed at its time limit.
    pub timed_out: bool,
    /// Whether stdout or stderr was cut.
    pub truncated: bool,
    /// What ran it: `fenced`, `container` or `host`.
    pub runner: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Seconds.
    pub duration: f64,
    /// The layers of the fence that were applied.
    pub isolation: Isolation,
    /// Things that a person should know about it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ShellOutput {
    pub(crate) fn of(result: ExecutionResult, runner: &Runner) -> Self {
        let meta = result.meta;
        Self {
            exit_code: matches!(meta.outcome, Outcome::Exited | Outcome::Signalled)
                .then_some(result.exit_code),
            stdout: result.stdout,
            stderr: result.stderr,
            timed_out: meta.timed_out,
            truncated: meta.truncated,
            runner: runner.as_str().to_owned(),
            outcome: meta.outcome,
            duration: result.duration,
            isolation: meta.isolation,
            warnings: meta.warnings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_directory_stays_below_the_workspace() {
        for (text, expected) in [
            ("", Some("")),
            (".", Some(".")),
            ("a/b", Some("a/b")),
            ("/workspace", Some("")),
            ("/workspace/a", Some("a")),
            ("/", None),
            ("/etc", None),
            ("/workspaces", None),
            ("..", None),
            ("a/../..", None),
            ("/workspace/../etc", None),
            ("a\0", None),
        ] {
            assert_eq!(
                working_directory(text).as_deref(),
                expected.map(Path::new),
                "{text:?}"
            );
        }
    }
}
