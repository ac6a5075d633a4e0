//! A line of the report.

use serde::Serialize;

/// The strength of the isolation of a default run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Situation {
    /// Namespaces created as root of the host, with a subordinate range of user ids.
    Root,
    /// Namespaces created as an ordinary user.
    UserNamespace,
    /// Landlock, seccomp filter and resource limits, as namespaces are forbidden.
    Flat,
    /// None: runs are rejected.
    None,
}

/// An isolation layer, program or engine that runs require or can use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Layer {
    pub name: &'static str,
    pub status: Status,
    /// Finding, in words.
    pub detail: String,
    /// Suggested fix.
    pub fix: Option<String>,
}

/// The status of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A test succeeded.
    Ok,
    /// A test failed.
    Missing,
    /// Optional: runs do not depend on it.
    Info,
}

impl Layer {
    /// Creates a layer that works.
    pub fn ok(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, detail)
    }

    /// Creates a layer that does not work, with a fix.
    pub fn missing(name: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..Self::new(name, Status::Missing, detail)
        }
    }

    /// Creates an informational entry.
    pub fn info(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(name, Status::Info, detail)
    }

    fn new(name: &'static str, status: Status, detail: impl Into<String>) -> Self {
        Self {
            name,
            status,
            detail: detail.into(),
            fix: None,
        }
    }
}
