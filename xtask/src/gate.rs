//! The gate: every step in order, named and timed, stopping at the first failure.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::cargo;
use crate::{docs, fuzz, report, setup, tidy};

struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<()>,
}

/// Cheap and often failing first, so that bad news comes early.
const STEPS: &[Step] = &[
    Step {
        name: "prerequisites",
        run: setup::setup,
    },
    Step {
        name: "format",
        run: format,
    },
    Step {
        name: "clippy",
        run: clippy,
    },
    Step {
        name: "tidy",
        run: tidy::tidy,
    },
    Step {
        name: "build",
        run: build,
    },
    Step {
        name: "tests",
        run: tests,
    },
    Step {
        name: "documentation tests",
        run: documentation_tests,
    },
    Step {
        name: "licences, bans, sources",
        run: deny,
    },
    Step {
        name: "generated references",
        run: docs::check,
    },
    Step {
        name: "fuzz",
        run: fuzz::brief,
    },
];

/// Runs the whole gate.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut done: Vec<(&str, Duration)> = Vec::new();
    let mut failure = None;
    for step in STEPS {
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
    for step in STEPS.iter().skip(done.len()) {
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

/// Builds the release binary. The end-to-end tests drive the dev build of the same sources, with overflow
/// checks and debug assertions; this step proves that the release profile builds, too.
fn build(root: &Path) -> Result<()> {
    cargo(root, &["build", "--release"]).run()
}

fn tests(root: &Path) -> Result<()> {
    cargo(root, &["nextest", "run", "--workspace", "--profile", "ci"]).run()
}

fn documentation_tests(root: &Path) -> Result<()> {
    cargo(root, &["test", "--workspace", "--doc"]).run()
}

/// Checks licenses, bans and sources. Not advisories: their database is a git repository, and the gate needs
/// no network once it is set up.
fn deny(root: &Path) -> Result<()> {
    cargo(root, &["deny", "check", "licenses", "bans", "sources"]).run()
}
