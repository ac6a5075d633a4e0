//! Proof of the price of a runtime: a patch adds one to a copy of the tree, where it passes the suite of scenarios.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::process::{cargo, program};

/// The patch, with one line of context, so that only changes beside its own lines outdate it.
const PATCH: &str = "crates/cli/tests/it/conformance/new_runtime.patch";

/// Most files that a new runtime may touch.
const MOST: usize = 3;

/// Arguments of `git` that apply the patch.
const APPLY: &[&str] = &["apply", "-C1", "--recount"];

/// Reports a patch that touches too many files, or that the tree has outgrown.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let patch = fs::read_to_string(root.join(PATCH)).with_context(|| format!("read {PATCH}"))?;
    let mut breaches = Vec::new();
    let touched = touched(&patch);
    if touched.len() > MOST {
        let files: Vec<&str> = touched.into_iter().collect();
        let files = files.join(", ");
        breaches.push(format!(
            "a runtime may touch {MOST} files, and {PATCH} touches {files}"
        ));
    }
    let applies = program(root, "git", &[APPLY, &["--check", PATCH]].concat()).output()?;
    if !applies.status.success() {
        let said = String::from_utf8_lossy(&applies.stderr);
        breaches.push(format!(
            "{PATCH} does not apply, write it anew with `git diff -U1`: {}",
            said.trim()
        ));
    }
    Ok(breaches)
}

/// Returns the files that a patch touches.
fn touched(patch: &str) -> BTreeSet<&str> {
    let names = patch.lines().filter_map(|line| {
        let name = line.strip_prefix("--- a/");
        name.or_else(|| line.strip_prefix("+++ b/"))
    });
    names.collect()
}

/// Adds the runtime to a copy of the tree, and runs the suite on it.
pub(crate) fn run(root: &Path) -> Result<()> {
    let breaches = check(root)?;
    ensure!(breaches.is_empty(), breaches.join("\n"));
    let place = root.join("target/new_runtime");
    let tree = place.join("tree");
    copy(root, &tree)?;
    // Otherwise git takes the copy for a part of the repository, whose files the patch does not name.
    let above = place.to_string_lossy();
    let apply = program(&tree, "git", &[APPLY, &[PATCH]].concat());
    apply.env("GIT_CEILING_DIRECTORIES", &above).run()?;
    // The suite, and the programs that it starts: a program is built for a test of its package.
    let built = ["--locked", "--workspace", "--test", "it", "--test", "start"];
    let only = ["-E", "test(/^conformance::.*::sample$/)"];
    cargo(&tree, &[&["nextest", "run"], &built[..], &only].concat())
        .env("CARGO_TARGET_DIR", &place.join("built").to_string_lossy())
        // What does not belong to the workspace is compiled already.
        .env("CARGO_BUILD_BUILD_DIR", &root.join("target").to_string_lossy())
        .env("CARGO_INCREMENTAL", "0")
        .run()
}

/// Makes a directory a copy of the tree, with a link to what set-up installed.
fn copy(root: &Path, tree: &Path) -> Result<()> {
    if tree.exists() {
        fs::remove_dir_all(tree).with_context(|| format!("remove {}", tree.display()))?;
    }
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = program(root, "git", &list).stdout()?;
    // One that is listed may have been removed since.
    let files = listed
        .split_terminator('\0')
        .filter(|name| root.join(name).exists());
    for name in files {
        let to = tree.join(name);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(root.join(name), to).with_context(|| format!("copy {name}"))?;
    }
    Ok(symlink(root.join("target"), tree.join("target"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "diff --git a/a.rs b/a.rs\n--- a/a.rs\n+++ b/a.rs\n@@ -1 +1,2 @@\n first\n+second\n";

    #[test]
    fn new_files_and_old_ones_are_counted_once() {
        let new =
            "diff --git a/b.rs b/b.rs\nnew file mode 100644\n--- /dev/null\n+++ b/b.rs\n@@ -0,0 +1 @@\n+x\n";
        let patch = [ONE, new].concat();
        assert_eq!(touched(&patch), BTreeSet::from(["a.rs", "b.rs"]));
    }

    #[test]
    fn a_patch_of_many_files_and_an_outdated_one_are_breaches() {
        let check = |tree: &str, patch: &str| {
            let root = tempfile::tempdir().unwrap();
            let place = root.path().join(PATCH);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, patch).unwrap();
            for name in ["a.rs", "b.rs", "c.rs", "d.rs"] {
                fs::write(root.path().join(name), tree).unwrap();
            }
            check(root.path()).unwrap()
        };
        let of = |name: &str| ONE.replace("a.rs", name);
        let three = ["a.rs", "b.rs", "c.rs"].map(of).concat();
        assert_eq!(check("first\n", &three), [""; 0]);
        let outdated = check("other\n", &three);
        assert!(
            outdated.len() == 1 && outdated[0].contains("does not apply"),
            "{outdated:?}"
        );
        let four = check("first\n", &(three + &of("d.rs")));
        assert!(
            four.len() == 1 && four[0].contains("touches a.rs, b.rs, c.rs, d.rs"),
            "{four:?}"
        );
    }
}
