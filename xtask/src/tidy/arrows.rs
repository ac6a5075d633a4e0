//! Compares the dependency table in ARCHITECTURE.md with cargo's metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::cargo;

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Crates that must never be linked into another, with the reason.
const NEVER_LINKED: &[(&str, &str, &str)] = &[
    (
        "ringfence-jail",
        "tokio",
        "the jail forks: it must have one thread and no reactor",
    ),
    ("ringfence-policy", "tokio", "policy is pure"),
    ("ringfence-policy", "libc", "policy knows no operating system"),
    ("ringfence", "clap", "the library knows no command line"),
    (
        "ringfence-cli",
        "ringfence-gateways",
        "chat services are `ringfence-gateway`'s",
    ),
    (
        "ringfence-gateways",
        "ringfence-server",
        "a gateway speaks its protocol, and knows no server",
    ),
];

/// Reports every difference, and every forbidden link.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let metadata = cargo(root, &["metadata", "--format-version=1", "--no-deps"]).stdout()?;
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).context("read ARCHITECTURE.md")?;
    let mut breaches = differences(&documented(&page), &real(&serde_json::from_str(&metadata)?));
    for (package, dependency, reason) in NEVER_LINKED {
        if links(root, package, dependency)? {
            breaches.push(format!("{package} links {dependency}; {reason}"));
        }
    }
    Ok(breaches)
}

fn differences(documented: &Arrows, real: &Arrows) -> Vec<String> {
    let mut breaches = Vec::new();
    for name in documented.keys().chain(real.keys()).collect::<BTreeSet<_>>() {
        match (documented.get(name), real.get(name)) {
            (Some(written), Some(found)) if written == found => {}
            (Some(written), Some(found)) => breaches.push(format!(
                "{name} depends on {found:?}; the table in ARCHITECTURE.md says {written:?}"
            )),
            (None, _) => breaches.push(format!(
                "{name} is missing from the crate table of ARCHITECTURE.md"
            )),
            (_, None) => breaches.push(format!(
                "ARCHITECTURE.md has a row for {name}, which is not a crate of this workspace"
            )),
        }
    }
    breaches
}

/// Parses the table whose header starts with `| crate |`: name in the first column, arrows in the third.
fn documented(page: &str) -> Arrows {
    let rows = page
        .lines()
        .skip_while(|line| !line.starts_with("| crate |"))
        .skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let mut cells = row.split('|').skip(1);
        let name = quoted(cells.next()?).into_iter().next()?;
        Some((name, quoted(cells.nth(1)?)))
    })
    .collect()
}

fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the workspace's packages and the arrows between them, without development dependencies.
fn real(metadata: &Value) -> Arrows {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let arrows = packages.iter().filter_map(|package| {
        let dependencies = package["dependencies"].as_array()?;
        let ours = dependencies
            .iter()
            .filter(|dependency| dependency["kind"].as_str() != Some("dev") && !dependency["path"].is_null())
            .filter_map(|dependency| dependency["name"].as_str().map(short));
        Some((short(package["name"].as_str()?), ours.collect()))
    });
    arrows.collect()
}

fn short(package: &str) -> String {
    match package.strip_prefix("ringfence-") {
        Some(name) => name.to_owned(),
        None => package.to_owned(),
    }
}

/// Returns `true` if the package links the dependency. `cargo tree -i` fails if it is not in the tree, so
/// only its output counts.
fn links(root: &Path, package: &str, dependency: &str) -> Result<bool> {
    let arguments = [
        "tree",
        "--offline",
        "-e",
        "normal,build",
        "--prefix",
        "none",
        "-p",
        package,
    ];
    let tree = cargo(root, &arguments).stdout()?;
    Ok(tree
        .lines()
        .any(|line| line.split(' ').next() == Some(dependency)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# Crates
| crate | sentence | may depend on | must never know |
|---|---|---|---|
| `policy` | Values. | nothing | `tokio` |
| `cli` | The binary. | `server`, `policy` | `x` |

| crate | other |
";

    fn arrows(rows: &[(&str, &[&str])]) -> Arrows {
        rows.iter()
            .map(|(name, to)| ((*name).to_owned(), to.iter().map(|to| (*to).to_owned()).collect()))
            .collect()
    }

    #[test]
    fn the_table_is_read() {
        assert_eq!(
            documented(PAGE),
            arrows(&[("policy", &[]), ("cli", &["policy", "server"])])
        );
    }

    #[test]
    fn development_and_foreign_dependencies_are_no_arrows() {
        let metadata = serde_json::json!({"packages": [{"name": "ringfence-cli", "dependencies": [
            {"name": "ringfence-server", "kind": null, "path": "/a"},
            {"name": "ringfence-jail", "kind": "dev", "path": "/b"},
            {"name": "serde", "kind": null},
        ]}]});
        assert_eq!(real(&metadata), arrows(&[("cli", &["server"])]));
    }

    #[test]
    fn every_kind_of_difference_is_a_breach() {
        let written = arrows(&[("a", &["b"]), ("b", &[]), ("gone", &[])]);
        let found = arrows(&[("a", &["b", "c"]), ("b", &[]), ("new", &[])]);
        assert_eq!(differences(&written, &found).len(), 3);
        assert_eq!(differences(&written, &written), Vec::<String>::new());
    }
}
