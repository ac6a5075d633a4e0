//! Five hundred sandboxes at one server that are used and replaced for an hour.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::{cargo, program};
use crate::report;
use crate::setup::PYTHON;

/// Seconds, unless others are asked for.
pub(crate) const SECONDS: u64 = 3600;
const SANDBOXES: &str = "500";
const REPORT: &str = "docs/reports/churn.txt";

/// Runs it for some seconds, and keeps what it prints. Fails if something is left behind or a use fails.
pub(crate) fn run(root: &Path, seconds: u64) -> Result<()> {
    cargo(root, &["build", "--release", "--locked", "--bin", "ringfence"]).run()?;
    let commit = program(root, "git", &["rev-parse", "--short", "HEAD"]).stdout()?;
    let head = format!("`cargo xtask churn {seconds}` on commit {}\n\n", commit.trim());
    fs::write(root.join(REPORT), head).with_context(|| format!("write {REPORT}"))?;
    let seconds = seconds.to_string();
    let arguments = [
        "xtask/churn.py",
        "target/release/ringfence",
        &seconds,
        SANDBOXES,
        REPORT,
    ];
    let done = program(root, PYTHON, &arguments).run();
    report::line(&format!("{REPORT}: written"));
    done
}
