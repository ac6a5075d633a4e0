//! E2B's own tests of its Python clients, run against `ringfence serve` in a network namespace without a way out.
//!
//! A test that passes without a server shows nothing about one: the rest, the live tests, are counted.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::{build_ringfence, program};
use crate::{report, setup};

const VENV: &str = "target/e2b-suites/venv";
/// The Python of the sandboxes, with packages that E2B's template has.
const INSIDE: &str = "target/e2b-suites/inside";

/// A suite in a checkout of E2B's.
struct Suite {
    name: &'static str,
    /// Its directory in the checkout.
    place: &'static str,
    paths: &'static [&'static str],
}

const SUITES: &[Suite] = &[
    Suite {
        name: "e2b",
        place: "packages/python-sdk",
        paths: &[
            "tests/sync/api_sync",
            "tests/sync/sandbox_sync",
            "tests/async/api_async",
            "tests/async/sandbox_async",
            "tests/shared/git",
        ],
    },
    Suite {
        name: "e2b-code-interpreter",
        place: "python",
        paths: &["tests/sync", "tests/async", "tests/charts", "tests/images"],
    },
];

/// Runs the suites of checkouts, and prints their counts and failures.
pub(crate) fn run(root: &Path, checkouts: &[String]) -> Result<()> {
    if checkouts.is_empty() {
        bail!("name checkouts of E2B's repositories `E2B` and `code-interpreter`");
    }
    fs::create_dir_all(root.join("target/e2b-suites"))?;
    setup::environment(root, "E2B's tests", VENV, "xtask/e2b/requirements.txt")?;
    setup::environment(
        root,
        "packages of the sandboxes",
        INSIDE,
        "xtask/e2b/packages.txt",
    )?;
    build_ringfence(root)?;
    for checkout in checkouts.iter().map(Path::new) {
        let is_there = |suite: &&Suite| checkout.join(suite.place).join(suite.paths[0]).is_dir();
        let suite = SUITES.iter().find(is_there);
        let suite = suite.with_context(|| format!("{} has no suite that is known", checkout.display()))?;
        measure(root, checkout, suite)?;
    }
    Ok(())
}

fn measure(root: &Path, checkout: &Path, suite: &Suite) -> Result<()> {
    let offline = passed(&tests(root, checkout, suite, None)?);
    let server = root.join("target/debug/ringfence");
    let output = tests(root, checkout, suite, Some(&server))?;
    let live = passed(&output).difference(&offline).count();
    let failed: Vec<&str> = output.lines().filter(|line| is_failure(line)).collect();
    for line in &failed {
        report::line(line);
    }
    report::line(&format!(
        "{}: {} of {} live tests pass; {} more need no server",
        suite.name,
        live,
        live + failed.len(),
        offline.len()
    ));
    Ok(())
}

/// Runs the tests of a suite and returns pytest's output.
fn tests(root: &Path, checkout: &Path, suite: &Suite, server: Option<&Path>) -> Result<String> {
    let state = root.join("target/e2b-suites/state");
    let _ = fs::remove_dir_all(&state);
    let script = root.join("xtask/e2b/suite.sh");
    let venv = root.join(VENV);
    let server = server.unwrap_or(Path::new(""));
    let inside = root.join(INSIDE).join("bin/python");
    let fixed = [Path::new("--net"), &script, &venv, server, &state, &inside];
    let fixed: Vec<_> = fixed.iter().map(|path| path.to_string_lossy()).collect();
    let mut arguments: Vec<&str> = fixed.iter().map(AsRef::as_ref).collect();
    arguments.extend(suite.paths);
    program(&checkout.join(suite.place), "unshare", &arguments).stdout()
}

/// Returns the tests that have passed.
fn passed(output: &str) -> BTreeSet<String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("PASSED "));
    lines.map(str::to_owned).collect()
}

fn is_failure(line: &str) -> bool {
    line.starts_with("FAILED ") || line.starts_with("ERROR ")
}
