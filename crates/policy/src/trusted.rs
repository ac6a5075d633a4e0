//! Host paths that a program must leave as they are.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Host paths that a program must leave as they are, wherever its workspace and mounts show them: Ringfence executes,
/// loads or believes what lies there. All are absolute and without links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trusted {
    /// Files, and directories with all below. A request that lets its program write around one is refused.
    pub paths: Vec<PathBuf>,
    /// Prefixes of interpreters: kept whole, or by their parts where the program may write around them.
    pub installations: Vec<PathBuf>,
    /// Directories in which programs are looked up. One that lies around what the program may write is no matter.
    pub lookups: Vec<PathBuf>,
}

impl Trusted {
    /// Nothing.
    pub const fn none() -> Self {
        Self {
            paths: Vec::new(),
            installations: Vec::new(),
            lookups: Vec::new(),
        }
    }

    /// Adds what another set holds.
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
