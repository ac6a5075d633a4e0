//! Requires a verdict, in the record of trusted paths, for each file that starts programs or loads code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::source::{Source, has_word};

/// The record with the table.
const RECORD: &str = "docs/decisions/048-what-is-executed.md";

/// Start of the table's header.
const HEADER: &str = "| file |";

/// Names that start a program, load code, or run a program unfenced.
const STARTS: &[&str] = &[
    "Command::new",
    "process::Command",
    "execve",
    "execvp",
    "fexecve",
    "posix_spawn",
    "dlopen",
    "Fence::Host",
];

/// Reports each file that starts something without a verdict, and each verdict without such a file.
pub(crate) fn check(root: &Path, sources: &[Source]) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(RECORD)).with_context(|| format!("read {RECORD}"))?;
    Ok(compare(&judged(&text), sources))
}

fn compare(judged: &BTreeSet<String>, sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut starting = BTreeSet::new();
    for source in sources {
        let mut lines = source.lines();
        let Some((number, _, _)) = lines.find(|(_, line, test)| !test && starts(line)) else {
            continue;
        };
        starting.insert(source.path.clone());
        if !judged.contains(&source.path) {
            breaches.push(format!(
                "{}:{number}: it starts a program; say in {RECORD} who may have written that, and what holds",
                source.path
            ));
        }
    }
    let idle = judged.difference(&starting);
    breaches.extend(idle.map(|path| format!("{RECORD} has a verdict for {path}, which starts nothing")));
    breaches
}

fn starts(line: &str) -> bool {
    STARTS.iter().any(|start| has_word(line, start))
}

/// Returns the table's files, in backticks in the first column.
fn judged(text: &str) -> BTreeSet<String> {
    let table = text.lines().skip_while(|line| !line.starts_with(HEADER)).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| Some(row.split('`').nth(1)?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "| file | runs |\n| --- | --- |\n| `a.rs` | `true` |\n| `gone.rs` | x |\n\n| `other.rs` | y |\n";

    fn source(path: &str, text: &str) -> Source {
        Source::new(path, text.to_owned())
    }

    #[test]
    fn a_start_without_a_verdict_is_a_breach() {
        let sources = [
            source("a.rs", "fn a() { Command::new(\"true\"); }\n"),
            source(
                "b.rs",
                "fn a() {}\nfn b() { std::process::Command::new(\"x\"); }\n",
            ),
            source("c.rs", "fn c() { let fence = Fence::Host; }\n"),
            // Comments, literals, longer words and tests do not count.
            source(
                "d.rs",
                "// Command::new\nfn d() { say(\"Command::new\"); MyCommand::new(); execvery(); }\n",
            ),
            source("crates/x/tests/e.rs", "fn e() { Command::new(\"true\"); }\n"),
        ];
        let breaches = compare(&judged(TEXT), &sources);
        let expected = ["b.rs:2: it starts", "c.rs:1: it starts", "a verdict for gone.rs"];
        assert_eq!(breaches.len(), expected.len(), "{breaches:?}");
        for (breach, expected) in breaches.iter().zip(expected) {
            assert!(breach.contains(expected), "{breach}");
        }
    }
}
