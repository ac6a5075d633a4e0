//! Containers as an engine describes them.

use std::collections::HashMap;
use std::fmt;

use super::spec::Name;

/// The id or name of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(String);

impl Id {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Accepts an id from an engine if it cannot change the meaning of a URL path.
    pub(super) fn new(text: &str) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let usable =
            !text.is_empty() && text.len() <= 128 && !text.starts_with('.') && text.chars().all(plain);
        usable.then(|| Self(text.to_owned()))
    }
}

impl From<&Name> for Id {
    fn from(name: &Name) -> Self {
        Self(name.as_str().to_owned())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The status of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Created, not started.
    Created,
    Running,
    Paused,
    Exited,
    Removing,
}

/// The engine's description of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    pub id: Id,
    pub status: Status,
    /// Exit status of its first process, if it has ended.
    pub exit_code: Option<i64>,
    /// Set if the OOM killer killed one of its processes.
    pub oom_killed: bool,
    /// Process id of its first process, as the engine sees it.
    pub pid: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub engine: String,
    pub api: String,
}

/// A container or volume in an engine's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub labels: HashMap<String, String>,
    /// Status in the engine's words; empty for a volume.
    pub state: String,
    /// Creation time in seconds since 1970; 0 if unknown.
    pub created: i64,
}
