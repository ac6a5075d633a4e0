//! Runners for the tool `shell`: each runs a program with arguments, never a shell command line.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use ringfence_container::Containers;
use ringfence_exec::local::Fence;
use ringfence_policy::{EngineKind, EnvName, ExecutionResult, Isolation, Language, Outcome, Request};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Debug, Clone)]
pub enum ShellRunner {
    /// The fence, as for code.
    Fenced,
    /// The host itself, with the user's rights, by explicit configuration.
    Host(Host),
    /// A container of its own.
    Container(Contained),
}

/// The container runner's configuration.
#[derive(Debug, Clone)]
pub struct Contained {
    pub containers: Arc<Containers>,
    /// Container engine to use.
    pub engine: EngineKind,
    /// Runner to use if the container engine is unavailable. `None`: commands fail then.
    pub fallback: Option<Box<ShellRunner>>,
}

/// Environment and directory of commands on the host.
#[derive(Debug, Clone)]
pub struct Host {
    pub variables: Vec<(EnvName, String)>,
    /// Working directory if there is no workspace; absolute.
    pub directory: PathBuf,
}

impl ShellRunner {
    /// Returns the name used in configuration and results.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Host(_) => "host",
            Self::Container(_) => "container",
        }
    }

    /// Returns the fence for commands, given the `fence` for code.
    pub(crate) const fn fence(&self, fence: Fence) -> Fence {
        match self {
            Self::Fenced | Self::Container(_) => fence,
            Self::Host(_) => Fence::Host,
        }
    }

    /// Returns the runner to use if there is no container engine.
    pub(crate) fn fallback(&self) -> Option<&Self> {
        match self {
            Self::Container(contained) => contained.fallback.as_deref(),
            Self::Fenced | Self::Host(_) => None,
        }
    }

    /// Sets the working directory and environment of a command on the host.
    pub(crate) fn equip(&self, request: &mut Request) {
        if let Self::Host(host) = self {
            request.env.extend(host.variables.iter().cloned());
            request.workspace.get_or_insert_with(|| host.directory.clone());
        }
    }
}

impl fmt::Display for ShellRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Parses a directory below the workspace: relative, or absolute below `/workspace`.
///
/// Returns `None` if it leads elsewhere.
pub(crate) fn working_directory(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let below = path.strip_prefix("/workspace").unwrap_or(path);
    let plain = |component| matches!(component, Component::Normal(_) | Component::CurDir);
    (!text.contains('\0') && below.components().all(plain)).then(|| below.to_path_buf())
}

/// A program with its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Name or path.
    pub(crate) name: String,
    pub(crate) args: Vec<String>,
}

/// Fills the program into `request`; only its working directory is left to set.
pub(crate) fn request(mut request: Request, program: Program) -> Request {
    debug_assert_eq!(request.language, Language::Command);
    request.name.clone_from(&program.name);
    request.args = std::iter::once(program.name).chain(program.args).collect();
    request
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ShellOutput {
    /// Exit status; negative for a signal. `None` if the command was killed.
    pub exit_code: Option<i32>,
    /// Captured standard output.
    pub stdout: String,
    /// Captured standard error, with notices about the end of the command.
    pub stderr: String,
    /// Set if it was killed at its timeout.
    pub timed_out: bool,
    /// Set if stdout or stderr was truncated.
    pub truncated: bool,
    /// Name of the runner: `fenced`, `container` or `host`.
    pub runner: String,
    /// Classification of its end.
    pub outcome: Outcome,
    /// Wall-clock time in seconds.
    pub duration: f64,
    /// Applied isolation layers.
    pub isolation: Isolation,
    /// Warnings for the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl ShellOutput {
    pub(crate) fn of(result: ExecutionResult, runner: &ShellRunner) -> Self {
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
            // No command runs on another machine.
            isolation: meta.isolation.unwrap_or(Isolation::NONE),
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
