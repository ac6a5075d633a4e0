//! Host paths that a program must not modify.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Host paths that a program must not modify, wherever its workspace and mounts expose them: Ringfence
/// executes, loads or trusts the files there. All are absolute and without symbolic links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trusted {
    /// Files, and whole directory trees. A request whose program may write to a directory around one is
    /// refused.
    pub paths: Vec<PathBuf>,
    /// Prefixes of interpreters: protected whole, or part by part where the program may write around them.
    pub installations: Vec<PathBuf>,
    /// Directories in which programs are looked up. One that contains the writable tree is ignored.
    pub lookups: Vec<PathBuf>,
    /// Directories that MCP servers in a fence import code from: protected as a whole. A request whose program
    /// may write in one is refused.
    pub imports: Vec<Imports>,
    /// MCP servers that run without a fence. A request whose program may write to their code is refused.
    pub servers: Vec<HostServer>,
}

/// A directory that an MCP server in a fence imports code from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Imports {
    /// Name of the server in the configuration.
    pub server: String,
    pub directory: PathBuf,
    /// Directories in it that the server itself may write.
    pub data: Vec<PathBuf>,
}

/// An MCP server that runs without a fence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostServer {
    /// Name of the server in the configuration.
    pub name: String,
    /// Files and directories of the server, existing or not, each by its path with and without resolved
    /// links. No program may write to them, above them or below them.
    pub code: Vec<PathBuf>,
    /// Paths that no program may write to or above, such as links. Writing below them does no harm.
    pub entries: Vec<PathBuf>,
    /// Directories and files that the user declared to be data.
    pub data: Vec<PathBuf>,
    /// A directory or file that could not be searched for paths that its code leads to. They may lie anywhere.
    pub unsearched: Option<PathBuf>,
}

impl Trusted {
    /// Returns the empty set.
    pub const fn none() -> Self {
        Self {
            paths: Vec::new(),
            installations: Vec::new(),
            lookups: Vec::new(),
            imports: Vec::new(),
            servers: Vec::new(),
        }
    }

    /// Adds the paths of another set.
    pub fn extend(&mut self, other: &Self) {
        let pairs = [
            (&mut self.paths, &other.paths),
            (&mut self.installations, &other.installations),
            (&mut self.lookups, &other.lookups),
        ];
        for (all, more) in pairs {
            all.extend_from_slice(more);
            all.sort();
            all.dedup();
        }
        self.imports.extend_from_slice(&other.imports);
        self.imports.sort();
        self.imports.dedup();
        self.servers.extend_from_slice(&other.servers);
        self.servers.sort();
        self.servers.dedup();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_joined_without_order() {
        let set = |paths: &[&str]| Trusted {
            paths: paths.iter().map(PathBuf::from).collect(),
            ..Trusted::none()
        };
        let joined = |one: &[&str], other: &[&str]| {
            let mut joined = set(one);
            joined.extend(&set(other));
            joined
        };
        assert_eq!(joined(&["/b"], &["/a", "/b"]), joined(&["/a"], &["/b"]));
    }
}
