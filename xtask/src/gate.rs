//! The gate: every step in order, named and timed, stopping at the first failure.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{cargo, program};
use crate::{docs, fuzz, new_runtime, report, setup, size, tidy};

struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<()>,
}

const fn step(name: &'static str, run: fn(&Path) -> Result<()>) -> Step {
    Step { name, run }
}

/// The gate of a working change. Cheap and often failing steps are first.
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

/// Tests too long for CI: run now and then, by hand. Their report is kept.
const LONG: &[Step] = &[
    step("prerequisites", setup::setup),
    step("a new runtime", new_runtime::run),
    step("fuzz, a minute a target", |root| fuzz::run(root, 60)),
    step("endurance, five times", endurance),
];

const LONG_REPORT: &str = "docs/reports/long.txt";

/// Runs the tests that take too long for CI, and writes their report.
pub(crate) fn long(root: &Path) -> Result<()> {
    let outcome = perform(root, LONG);
    let commit = program(root, "git", &["rev-parse", "--short", "HEAD"]).stdout()?;
    let report = format!(
        "`cargo xtask long` on commit {}\n\n{}\n",
        commit.trim(),
        outcome.lines().join("\n")
    );
    fs::write(root.join(LONG_REPORT), report).with_context(|| format!("write {LONG_REPORT}"))?;
    report::line(&format!("{LONG_REPORT}: written"));
    outcome.verdict()
}

/// Runs the tests of endurance and of faults, each five times: a defect that shows now and then should show.
fn endurance(root: &Path) -> Result<()> {
    let only = [
        "-E",
        "test(/(^|::)(chaos|soak|soak_tools)::/)",
        "--stress-count",
        "5",
    ];
    cargo(
        root,
        &[&["nextest", "run", "--workspace", "--profile", "ci"], &only[..]].concat(),
    )
    .run()
}

/// Runs the gate of a working change.
pub(crate) fn check(root: &Path) -> Result<()> {
    run(root, CHANGE)
}

/// Runs the whole gate, as CI does.
pub(crate) fn ci(root: &Path) -> Result<()> {
    run(root, WHOLE)
}

fn run(root: &Path, steps: &[Step]) -> Result<()> {
    let outcome = perform(root, steps);
    report::step("summary");
    outcome.lines().iter().for_each(|line| report::line(line));
    outcome.verdict()
}

/// The result of a sequence of steps.
struct Outcome {
    done: Vec<(&'static str, Duration)>,
    /// The step that failed, which is the last one done.
    failed: Option<&'static str>,
    skipped: Vec<&'static str>,
}

/// Runs steps in order, up to the first that fails.
fn perform(root: &Path, steps: &[Step]) -> Outcome {
    let mut outcome = Outcome {
        done: Vec::new(),
        failed: None,
        skipped: Vec::new(),
    };
    for step in steps {
        if outcome.failed.is_some() {
            outcome.skipped.push(step.name);
            continue;
        }
        report::step(step.name);
        let started = Instant::now();
        if let Err(error) = (step.run)(root) {
            report::problem(&format!("{error:#}"));
            outcome.failed = Some(step.name);
        }
        outcome.done.push((step.name, started.elapsed()));
    }
    outcome
}

impl Outcome {
    /// Renders a line for each step.
    fn lines(&self) -> Vec<String> {
        let done = self.done.iter().map(|(name, took)| {
            let verdict = if self.failed == Some(name) { "FAILED" } else { "ok" };
            report::row(verdict, name, *took)
        });
        let skipped = self
            .skipped
            .iter()
            .map(|name| format!("  -      {name} (not reached)"));
        done.chain(skipped).collect()
    }

    fn verdict(&self) -> Result<()> {
        match self.failed {
            None => Ok(()),
            Some(name) => bail!("failed: {name}"),
        }
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
