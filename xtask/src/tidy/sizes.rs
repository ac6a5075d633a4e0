//! Bounds the size of each crate.

use std::collections::BTreeMap;

use crate::source::Source;

/// Maximum number of lines below a crate's `src`, tests among them.
const MAX: usize = 20_000;

/// Reports each crate that is too large.
pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let mut lines = BTreeMap::<&str, usize>::new();
    for source in sources {
        if let Some((name, _)) = source.path.split_once("/src/") {
            *lines.entry(name).or_default() += source.text.lines().count();
        }
    }
    let large = lines.into_iter().filter(|(_, count)| *count > MAX);
    large
        .map(|(name, count)| {
            format!("{name} has {count} lines; a crate has at most {MAX}: move a part that others need alone")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_the_sum_of_its_sources() {
        let source = |path: &str, count: usize| Source::new(path, "x\n".repeat(count));
        let sources = [
            source("crates/a/src/lib.rs", MAX),
            source("crates/a/tests/it.rs", MAX),
            source("crates/b/src/lib.rs", MAX / 2),
            source("crates/b/src/c.rs", MAX / 2 + 1),
        ];
        let found = check(&sources);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/b has 20001 lines"), "{found:?}");
    }
}
