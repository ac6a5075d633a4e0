//! The gate: every step in order, named and timed, stopping at the first failure.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::cargo;
use crate::{docs, fuzz, report, setup, size, tidy};

struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<()>,
}

const fn step(name: &'static str, run: fn(&Path) -> Result<()>) -> Step {
    Step { name, run }
}

/// The gate of a working change. Cheap and often failing first, so that bad news comes early.
const CHANGE: &[Step] = &[
    step("prerequisites", setup::setup),
    step("format", format),
    step("clippy", clippy),
    step("tidy", tidy::tidy),
    step("tests of a change", tests_of_a_change),
    step("documentation tests", documentation_tests),
    step("generated references", docs::check),
];

/// The whole gate, which has every test.
const WHOLE: &[Step] = &[
    step("prerequisites", setup::setup),
    step("format", format),
    step("clippy", clippy),
    step("tidy", tidy::tidy),
    step("build", build),
    step("tests", tests),
    step("documentation tests", documentation_tests),
    step("licences, bans, sources", deny),
    step("generated references", docs::check),
    step("fuzz", fuzz::brief),
];

/// Runs the gate of a working change.
pub(crate) fn check(root: &Path) -> Result<()> {
    run(root, CHANGE)
}

/// Runs the whole gate, as CI does.
pub(crate) fn ci(root: &Path) -> Result<()> {
    run(root, WHOLE)
}

fn run(root: &Path, steps: &[Step]) -> Result<()> {
    let mut done: Vec<(&str, Duration)> = Vec::new();
    let mut failure = None;
    for step in steps {
        report::step(step.name);
        let started = Instant::now();
        let result = (step.run)(root);
        done.push((step.name, started.elapsed()));
        if let Err(error) = result {
            report::problem(&format!("{error:#}"));
            failure = Some(step.name);
            break;
        }
    }
    report::step("summary");
    for (name, took) in &done {
        report::summary(if failure == Some(name) { "FAILED" } else { "ok" }, name, *took);
    }
    for step in steps.iter().skip(done.len()) {
        report::line(&format!("  -      {} (not reached)", step.name));
    }
    match failure {
        None => Ok(()),
        Some(name) => bail!("the gate is closed: {name}"),
    }
}

fn format(root: &Path) -> Result<()> {
    cargo(root, &["fmt", "--all", "--check"]).run()
}

fn clippy(root: &Path) -> Result<()> {
    cargo(
        root,
        &[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
    )
    .run()
}

/// Builds the release binary, and compares its size with the budget. The end-to-end tests drive the dev build of the
/// same sources, with overflow checks and debug assertions; this step proves that the release profile builds, too.
fn build(root: &Path) -> Result<()> {
    cargo(root, &["build", "--release"]).run()?;
    size::check(root)
}

fn tests(root: &Path) -> Result<()> {
    nextest(root, "ci")
}

/// Runs the tests but for those of endurance, of figures and of foreign clients.
fn tests_of_a_change(root: &Path) -> Result<()> {
    nextest(root, "check")
}

fn nextest(root: &Path, profile: &str) -> Result<()> {
    cargo(root, &["nextest", "run", "--workspace", "--profile", profile]).run()
}

fn documentation_tests(root: &Path) -> Result<()> {
    cargo(root, &["test", "--workspace", "--doc"]).run()
}

/// Checks licenses, bans and sources. Not advisories: their database is a git repository, and the gate needs
/// no network once it is set up.
fn deny(root: &Path) -> Result<()> {
    cargo(root, &["deny", "check", "licenses", "bans", "sources"]).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_gate_has_every_step_of_a_change() {
        let whole: Vec<&str> = WHOLE.iter().map(|step| step.name).collect();
        for step in CHANGE {
            let name = step.name.strip_suffix(" of a change").unwrap_or(step.name);
            assert!(whole.contains(&name), "{name}");
        }
    }

    #[test]
    fn ci_runs_the_test_command_of_the_readme() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
        let readme = read("README.md");
        let (_, test_it) = readme.split_once("## Test it\n\n```\n").unwrap();
        let command = test_it.lines().next().unwrap();
        assert_eq!(command, "cargo xtask ci");
        let last = read(".ci/run").lines().last().unwrap().to_owned();
        assert_eq!(last, format!("exec {command} </dev/null"));
    }

    #[test]
    fn only_the_profile_of_a_change_leaves_tests_out() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let settings = std::fs::read_to_string(root.join(".config/nextest.toml")).unwrap();
        let (_, change) = settings.split_once("[profile.check]").unwrap();
        let change = change.split("\n[").next().unwrap();
        assert_eq!(settings.matches("default-filter").count(), 1);
        assert!(change.contains("default-filter"), "{change}");
        // Whatever denies is in these.
        for kept in [
            "security",
            "proofs",
            "containers",
            "pyodide",
            "network",
            "sandbox_exec",
        ] {
            assert!(!change.contains(kept), "{kept}");
        }
    }
}
