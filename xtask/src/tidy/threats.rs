//! Requires that each promise of SECURITY.md's threat model names an existing test, module or decision.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Directory of the end-to-end tests, whose modules are named relative to it.
const TESTS: &str = "crates/cli/tests/it";

/// The section whose tables are checked.
const SECTION: &str = "## Threat model";

/// Start of the header of a table of promises.
const HEADER: &str = "| asset |";

/// Reports each row without a proof, and each proof that does not exist.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(root.join("SECURITY.md")).context("read SECURITY.md")?;
    let mut breaches: Vec<String> = Vec::new();
    let mut rows = 0;
    for row in promises(&text) {
        rows += 1;
        let proofs = quoted(row.rsplit('|').nth(1).unwrap_or_default());
        if proofs.is_empty() {
            breaches.push(format!("SECURITY.md promises without a proof: {row}"));
        }
        let missing = proofs.into_iter().filter(|proof| !exists(root, proof));
        breaches
            .extend(missing.map(|proof| format!("SECURITY.md names the proof {proof}, which is not there")));
    }
    breaches.extend(doubled(&text));
    if rows == 0 {
        breaches.push(format!("SECURITY.md has no table of promises below `{SECTION}`"));
    }
    Ok(breaches)
}

/// Returns the rows of the tables whose first column is an asset.
fn promises(text: &str) -> Vec<&str> {
    let section = text.lines().skip_while(|line| *line != SECTION).skip(1);
    let mut promised = false;
    let mut rows = Vec::new();
    for line in section.take_while(|line| !line.starts_with("## ")) {
        if !line.starts_with('|') {
            promised = false;
        } else if line.starts_with(HEADER) {
            promised = true;
        } else if promised && !line.starts_with("| ---") {
            rows.push(line);
        }
    }
    rows
}

/// Length of the beginning by which two rows count as versions of one.
const ALIKE: usize = 60;

/// Reports rows below one heading that begin alike, as a merge of two versions of a row leaves them.
fn doubled(text: &str) -> Vec<String> {
    let mut seen: Vec<&str> = Vec::new();
    let mut breaches = Vec::new();
    for line in text.lines() {
        if line.starts_with('#') {
            seen.clear();
        }
        let start = line.get(..line.floor_char_boundary(ALIKE)).unwrap_or(line);
        if line.starts_with("| ") && line.len() > ALIKE {
            match seen.contains(&start) {
                true => breaches.push(format!("SECURITY.md has two versions of a row: {start}…")),
                false => seen.push(start),
            }
        }
    }
    breaches
}

/// Returns the words in backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Returns `true` if a file, a module of end-to-end tests, or a test in one has this name.
fn exists(root: &Path, proof: &str) -> bool {
    if proof.contains('/') {
        return root.join(proof).exists();
    }
    let tests = root.join(TESTS);
    let module = |path: &str| {
        let file = tests.join(path.replace("::", "/"));
        [file.with_extension("rs"), file.join("mod.rs")]
            .into_iter()
            .find(|file| file.is_file())
    };
    if module(proof).is_some() {
        return true;
    }
    let Some((module, test)) = proof
        .rsplit_once("::")
        .and_then(|(path, test)| Some((module(path)?, test)))
    else {
        return false;
    };
    fs::read_to_string(module).is_ok_and(|text| text.contains(&format!("fn {test}(")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_promises_are_told_from_others() {
        let text = "| asset | x |\n| no | `a` |\n## Threat model\n| attacker | y |\n| no | z |\n\n| asset | what |\n| --- | --- |\n\
                    | files | held | `a::b`, `c/d.rs` |\n\nwords\n## Next\n| asset | x |\n| no | `a` |\n";
        let rows = promises(text);
        assert_eq!(rows, ["| files | held | `a::b`, `c/d.rs` |"]);
        assert_eq!(quoted(rows[0]), ["a::b", "c/d.rs"]);
    }

    #[test]
    fn two_versions_of_a_row_are_refused() {
        let row = format!("| files | {} |", "held ".repeat(20));
        let other = format!("{row} and more |");
        assert_eq!(
            doubled(&format!("## A\n{row}\n## B\n{other}\n")),
            Vec::<String>::new()
        );
        assert_eq!(doubled(&format!("## A\n{row}\n{other}\n")).len(), 1);
    }

    #[test]
    fn a_proof_is_a_file_a_module_or_a_test() {
        let root = tempfile::tempdir().unwrap();
        let tests = root.path().join(TESTS);
        fs::create_dir_all(tests.join("security")).unwrap();
        fs::write(tests.join("security/mod.rs"), "fn all() {}").unwrap();
        fs::write(tests.join("security/mounts.rs"), "fn links() {}").unwrap();
        for (proof, expected) in [
            ("security", true),
            ("security::mounts", true),
            ("security::mounts::links", true),
            ("security::all", true),
            ("security::mounts::link", false),
            ("security::gone", false),
            ("gone", false),
            ("gone::links", false),
            ("crates/cli/tests", true),
            ("crates/cli/gone.rs", false),
        ] {
            assert_eq!(exists(root.path(), proof), expected, "{proof}");
        }
    }
}
