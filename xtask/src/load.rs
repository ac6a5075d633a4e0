//! Clients at one server over TCP, each with a connection of its own, that run programs for ten minutes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::{cargo, program};
use crate::report;
use crate::setup::PYTHON;

/// Seconds, unless others are asked for.
pub(crate) const SECONDS: u64 = 600;
const CLIENTS: &str = "128";
const REPORT: &str = "docs/reports/load.txt";

/// Runs it for some seconds, and keeps what it prints. Fails if an answer is wrong or lost, or something is left behind.
pub(crate) fn run(root: &Path, seconds: u64) -> Result<()> {
    cargo(root, &["build", "--release", "--locked", "--bin", "ringfence"]).run()?;
    let commit = program(root, "git", &["rev-parse", "--short", "HEAD"]).stdout()?;
    let head = format!("`cargo xtask load {seconds}` on commit {}\n\n", commit.trim());
    fs::write(root.join(REPORT), head).with_context(|| format!("write {REPORT}"))?;
    let seconds = seconds.to_string();
    let arguments = [
        "xtask/load.py",
        "target/release/ringfence",
        &seconds,
        CLIENTS,
        REPORT,
    ];
    let done = program(root, PYTHON, &arguments).run();
    report::line(&format!("{REPORT}: written"));
    done
}
