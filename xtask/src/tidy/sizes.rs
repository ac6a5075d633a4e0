//! Bounds the size of each crate.

use std::collections::BTreeMap;

use crate::source::Source;

/// Maximum number of lines below a crate's `src`, tests among them.
const MAX: usize = 20_000;

/// Crates with a smaller maximum: they are to hold one thing alone.
const SMALLER: &[(&str, usize, &str)] = &[(
    "crates/cli",
    7_000,
    "move what is not arguments, messages or exit status to the crate whose matter it is",
)];

/// Reports each crate that is too large.
pub(crate) fn check(sources: &[Source]) -> Vec<String> {
    let mut lines = BTreeMap::<&str, usize>::new();
    for source in sources {
        if let Some((name, _)) = source.path.split_once("/src/") {
            *lines.entry(name).or_default() += source.text.lines().count();
        }
    }
    let breach = |(name, count): (&str, usize)| {
        let (max, advice) = limit(name);
        (count > max).then(|| format!("{name} has {count} lines; it has at most {max}: {advice}"))
    };
    lines.into_iter().filter_map(breach).collect()
}

/// Returns the maximum of a crate, and the remedy.
fn limit(name: &str) -> (usize, &'static str) {
    let own = SMALLER.iter().find(|(crate_name, ..)| *crate_name == name);
    own.map_or((MAX, "move a part that others need alone"), |(_, max, advice)| {
        (*max, advice)
    })
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

    #[test]
    fn the_command_line_is_smaller() {
        let found = |count| check(&[Source::new("crates/cli/src/main.rs", "x\n".repeat(count))]);
        assert_eq!(found(7_000), Vec::<String>::new());
        let found = found(7_001);
        assert!(
            found[0]
                .starts_with("crates/cli has 7001 lines; it has at most 7000: move what is not arguments"),
            "{found:?}"
        );
    }
}
