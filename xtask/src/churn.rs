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
    let server = root.join("target/release/ringfence");
    cargo(root, &["build", "--release", "--locked", "--bin", "ringfence"]).run()?;
    let commit = program(root, "git", &["rev-parse", "--short", "HEAD"]).stdout()?;
    let path = root.join(REPORT);
    let head = format!("`cargo xtask churn {seconds}` on commit {}\n\n", commit.trim());
    fs::write(&path, head).with_context(|| format!("write {REPORT}"))?;
    let (script, server, seconds) = (root.join("xtask/churn.py"), server, seconds.to_string());
    let [script, server, path] = [&script, &server, &path].map(|path| path.to_string_lossy());
    let arguments: [&str; 5] = [&script, &server, &seconds, SANDBOXES, &path];
    let done = program(root, PYTHON, &arguments).run();
    report::line(&format!("{REPORT}: written"));
    done
}
