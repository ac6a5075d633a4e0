//! A request to run code.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{Image, Limits, Mount, Network, Trusted};

/// The error of an unknown or malformed name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{name}`; known are {known}")]
pub struct UnknownName {
    /// Kind of name.
    pub what: &'static str,
    /// The given name.
    pub name: String,
    /// Accepted names.
    pub known: Cow<'static, str>,
}

/// A programming language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// CPython.
    Python,
    /// GNU bash.
    Bash,
    /// Node.js or Deno.
    Javascript,
    /// None: the arguments are the command line of a program, started without a shell.
    Command,
}

impl Language {
    /// Returns the name used in every interface.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Bash => "bash",
            Self::Javascript => "javascript",
            Self::Command => "command",
        }
    }

    /// Returns the language of a file extension.
    pub fn from_extension(extension: &str) -> Option<Self> {
        match extension {
            "py" => Some(Self::Python),
            "sh" | "bash" => Some(Self::Bash),
            "js" | "mjs" | "cjs" => Some(Self::Javascript),
            _ => None,
        }
    }
}

impl FromStr for Language {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" => Ok(Self::Python),
            "bash" | "sh" | "shell" => Ok(Self::Bash),
            "javascript" | "js" | "node" => Ok(Self::Javascript),
            _ => Err(UnknownName {
                what: "language",
                name: name.to_owned(),
                known: "python, bash and javascript".into(),
            }),
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error returned when parsing the id of a user or session from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{id}` cannot be a {what}; use 1 to 64 letters, digits, `.`, `_` and `-`, not starting with `.`")]
pub struct ParseIdError {
    what: &'static str,
    id: String,
}

/// The owner of a request: runs of different scopes share no warm process.
///
/// 1–64 characters of `A-Z a-z 0-9 . _ -`, not starting with a dot, so that it can be a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Scope(String);

impl Scope {
    /// Returns the scope of this machine's user.
    pub fn local() -> Self {
        Self("local".to_owned())
    }
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Scope {
    type Err = ParseIdError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        file_name("user id", name).map(Self)
    }
}

/// Accepts names that are valid file names: no path separators, not hidden.
fn file_name(what: &'static str, name: &str) -> Result<String, ParseIdError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(plain) {
        return Err(ParseIdError {
            what,
            id: name.chars().take(80).collect(),
        });
    }
    Ok(name.to_owned())
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// The name of a stateful interpreter within a scope. Same syntax as [`Scope`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionId {
    type Err = ParseIdError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        file_name("session id", name).map(Self)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for SessionId {
    fn schema_name() -> Cow<'static, str> {
        "SessionId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"})
    }

    fn inline_schema() -> bool {
        true
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// The name of an environment variable: not empty, without `=` and NUL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct EnvName(String);

/// An error returned when parsing the name of an environment variable from text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid name of an environment variable; write it like `NAME=value`")]
pub struct ParseEnvNameError(String);

impl EnvName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EnvName {
    type Err = ParseEnvNameError;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(ParseEnvNameError(name.to_owned()));
        }
        Ok(Self(name.to_owned()))
    }
}

/// A request to run code on a backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Source code.
    pub code: String,
    /// Program name in its own error messages, such as `report.py`.
    pub name: String,
    /// Language of the code.
    pub language: Language,
    /// Program arguments.
    pub args: Vec<String>,
    /// Environment variables added to the fence's own small environment.
    pub env: Vec<(EnvName, String)>,
    /// Resource limits.
    pub limits: Limits,
    /// Network access.
    pub network: Network,
    /// Bind mounts.
    pub mounts: Vec<Mount>,
    /// Absolute host directory mounted as `/workspace`. `None`: a private one, removed with the run.
    pub workspace: Option<PathBuf>,
    /// Working directory of a command: a path below the workspace, without `..`. `None`: the workspace
    /// itself.
    pub working_directory: Option<PathBuf>,
    /// Host paths that it must not modify.
    pub trusted: Trusted,
    /// The request's scope.
    pub scope: Scope,
    /// The stateful interpreter to run in. `None`: a fresh one.
    pub session: Option<SessionId>,
    /// Image that replaces this machine's files. `None`: the read-only view of this machine.
    pub image: Option<Image>,
}

impl Request {
    /// Returns a request to run a program with the default limits, without a network, mounts, a workspace or
    /// a session, for the local user.
    pub fn new(language: Language, code: &str) -> Self {
        Self {
            code: code.to_owned(),
            name: "<string>".to_owned(),
            language,
            args: Vec::new(),
            env: Vec::new(),
            limits: Limits::DEFAULT,
            network: Network::None,
            mounts: Vec::new(),
            workspace: None,
            working_directory: None,
            trusted: Trusted::none(),
            scope: Scope::local(),
            session: None,
            image: None,
        }
    }
}
