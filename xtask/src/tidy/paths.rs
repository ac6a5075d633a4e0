//! Requires that every path in ARCHITECTURE.md exists.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Directories that mark a quoted word as a path of the repository.
const ROOTS: &[&str] = &[
    "crates/",
    "xtask/",
    "docs/",
    "examples/",
    "fuzz/",
    ".ci/",
    ".config/",
];

/// Reports every missing path.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).context("read ARCHITECTURE.md")?;
    let missing = named(&text).into_iter().filter(|path| !root.join(path).exists());
    Ok(missing
        .map(|path| format!("ARCHITECTURE.md names {path}, which is not there"))
        .collect())
}

/// Returns the words in backticks that are paths.
fn named(text: &str) -> Vec<&str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    quoted
        .filter(|word| ROOTS.iter().any(|root| word.starts_with(root)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quoted_paths_are_named() {
        let text = "see `crates/jail/src/steps.rs` and crates/x, `cargo xtask`\n| `docs/a.md` | `b/c` |\n";
        assert_eq!(named(text), ["crates/jail/src/steps.rs", "docs/a.md"]);
    }
}
