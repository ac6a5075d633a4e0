//! The mistakes found so far, each with the position of its key.

use std::fmt::Display;
use std::str::FromStr;

use ringfence_exec::mount_guard::DeniedPaths;
use ringfence_exec::trust::NamedPaths;

use crate::config::{Config, Loaded, Problem, Problems};
use crate::env::Environment;
use crate::failure::Failure;
use crate::mount_guard;
use crate::paths::Paths;

/// The hint of messages that state the correct form.
pub(super) const CORRECT: &str = "correct it; `ringfence config schema` describes it";

/// A mistake in the value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The key, such as `sandbox.python`; text after a space names the element in question.
    pub key: String,
    /// The expected and the actual value.
    pub message: String,
    pub hint: String,
}

impl Wrong {
    pub(super) fn new(key: impl Into<String>, message: impl Display, hint: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.to_string(),
            hint: hint.into(),
        }
    }
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Self {
        let Wrong { key, message, hint } = wrong;
        Self::usage(format!("`{key}`: {message}"), hint)
    }
}

/// A configuration under validation.
pub(super) struct Checks<'a> {
    loaded: &'a Loaded,
    pub(super) environment: &'a Environment,
    pub(super) paths: &'a Paths,
    named: NamedPaths,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl<'a> Checks<'a> {
    pub(super) fn new(
        loaded: &'a Loaded,
        environment: &'a Environment,
        paths: &'a Paths,
        named: NamedPaths,
    ) -> Self {
        Self {
            loaded,
            environment,
            paths,
            named,
            problems: loaded.problems.clone(),
            warnings: Vec::new(),
        }
    }

    pub(super) fn config(&self) -> &'a Config {
        &self.loaded.config
    }

    /// Returns the rules by which named paths are resolved and opened.
    pub(super) fn named_paths(&self) -> NamedPaths {
        self.named.clone()
    }

    /// Returns our own directories, which no program may see.
    pub(super) fn hidden(&self) -> DeniedPaths {
        mount_guard::hidden(self.paths, &self.paths.audit(self.config().audit.dir.as_deref()))
    }

    /// Returns the warnings of a valid configuration, or all mistakes.
    pub(super) fn finish(self) -> Result<Vec<String>, Problems> {
        match self.problems.is_empty() {
            true => Ok(self.warnings),
            false => Err(Problems::by_line(self.problems)),
        }
    }

    /// Records a mistake.
    pub(super) fn wrong(&mut self, wrong: Wrong) {
        let Wrong { key, message, hint } = wrong;
        let at = self.place(&key);
        self.problems
            .push(Problem::new(format!("{at}`{key}`: {message}"), hint));
    }

    /// Records a warning.
    pub(super) fn warn(&mut self, key: &str, message: impl Display) {
        let at = self.place(key);
        self.warnings.push(format!("{at}`{key}`: {message}"));
    }

    /// Returns the value, or records its mistake and returns `None`.
    pub(super) fn keep<T>(&mut self, result: Result<T, Wrong>) -> Option<T> {
        result.map_err(|wrong| self.wrong(wrong)).ok()
    }

    /// Parses a value, or records why it cannot be parsed.
    pub(super) fn parse<T: FromStr<Err: Display>>(&mut self, key: &str, text: &str) -> Option<T> {
        let parsed = text.parse().map_err(|error| Wrong::new(key, error, CORRECT));
        self.keep(parsed)
    }

    /// Parses every element of a list, and records each that cannot be parsed.
    pub(super) fn parse_all<T: FromStr<Err: Display>>(
        &mut self,
        key: &str,
        texts: &[String],
    ) -> Option<Vec<T>> {
        let parsed: Vec<_> = texts.iter().map(|text| self.parse(key, text)).collect();
        parsed.into_iter().collect()
    }

    /// Returns the position of a key, as a message prefix.
    fn place(&self, key: &str) -> String {
        let path = key.split(' ').next().unwrap_or(key);
        self.loaded
            .origin(path)
            .map_or_else(String::new, |origin| format!("{origin}: "))
    }
}
