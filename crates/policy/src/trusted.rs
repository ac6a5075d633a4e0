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
}

impl Trusted {
    /// Returns the empty set.
    pub const fn none() -> Self {
        Self {
            paths: Vec::new(),
            installations: Vec::new(),
            lookups: Vec::new(),
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
