//! Requires a reason, in the record of named paths, for each file that opens or resolves paths by itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::source::{Source, has_word};

/// The record with the table.
const RECORD: &str = "docs/decisions/074-named-paths.md";

/// Start of the table's header.
const HEADER: &str = "| files |";

/// Crates that receive host paths. The jail receives paths without links.
const CRATES: &[&str] = &[
    "crates/bench/src/",
    "crates/cli/src/",
    "crates/container/src/",
    "crates/exec/src/",
    "crates/gateways/src/",
    "crates/network/src/",
    "crates/records/src/",
    "crates/ringfence/src/",
    "crates/server/src/",
    "crates/assessor/src/",
    "crates/tools/src/",
    "crates/trust/src/",
];

/// Calls that follow links without asking who made them.
const OPENS: &[&str] = &[
    "canonicalize",
    "File::open",
    "File::options",
    "OpenOptions::new",
    "fs::read",
    "fs::read_to_string",
    "pem_file_iter",
];

/// Reports each file that opens paths without a reason, and each reason without such a file.
pub(crate) fn check(root: &Path, sources: &[Source]) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join(RECORD)).with_context(|| format!("read {RECORD}"))?;
    Ok(compare(&listed(&text), sources))
}

fn compare(listed: &BTreeSet<String>, sources: &[Source]) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut opening = BTreeSet::new();
    let ours = |source: &&Source| CRATES.iter().any(|path| source.path.starts_with(path));
    for source in sources.iter().filter(ours) {
        let mut lines = source.lines();
        let Some((number, _, _)) = lines.find(|(_, line, test)| !test && opens(line)) else {
            continue;
        };
        opening.insert(source.path.clone());
        if !listed.contains(&source.path) {
            breaches.push(format!(
                "{}:{number}: use `trust::NamedPaths` for a path that somebody names, or give the reason in {RECORD}",
                source.path
            ));
        }
    }
    let idle = listed.difference(&opening);
    breaches.extend(idle.map(|path| format!("{RECORD} has a reason for {path}, which opens nothing")));
    breaches
}

fn opens(line: &str) -> bool {
    OPENS.iter().any(|open| has_word(line, open))
}

/// Returns the table's files, in backticks in the first column.
fn listed(text: &str) -> BTreeSet<String> {
    let table = text.lines().skip_while(|line| !line.starts_with(HEADER)).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_without_a_reason_is_a_breach() {
        let text =
            "| files | reason |\n| --- | --- |\n| `crates/cli/src/a.rs`, `crates/cli/src/gone.rs` | `x` |\n";
        let source = |path: &str, text: &str| Source::new(path, text.to_owned());
        let sources = [
            source("crates/cli/src/a.rs", "fn a() { File::open(\"x\"); }\n"),
            source(
                "crates/cli/src/b.rs",
                "fn a() {}\nfn b() { path.canonicalize(); }\n",
            ),
            // Comments, longer words, tests and other crates do not count.
            source(
                "crates/cli/src/c.rs",
                "// File::open\nfn c() { MyFile::open(); fs::read_dir(); }\n",
            ),
            source("crates/cli/tests/d.rs", "fn d() { File::open(\"x\"); }\n"),
            source("xtask/src/e.rs", "fn e() { File::open(\"x\"); }\n"),
        ];
        let breaches = compare(&listed(text), &sources);
        let expected = [
            "crates/cli/src/b.rs:2: use",
            "a reason for crates/cli/src/gone.rs",
        ];
        assert_eq!(breaches.len(), expected.len(), "{breaches:?}");
        for (breach, expected) in breaches.iter().zip(expected) {
            assert!(breach.contains(expected), "{breach}");
        }
    }
}
