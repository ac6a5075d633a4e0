//! Long runs against one server, whose reports are kept.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::{cargo, program};
use crate::report;
use crate::setup::PYTHON;

/// A run of `xtask/NAME.py`, which writes `docs/reports/NAME.txt`.
pub(crate) struct Endurance {
    name: &'static str,
    /// Sandboxes or clients at a time.
    count: &'static str,
    /// Default duration, in seconds.
    pub(crate) seconds: u64,
}

/// Sandboxes that are used and replaced.
pub(crate) const CHURN: Endurance = Endurance {
    name: "churn",
    count: "500",
    seconds: 3600,
};

/// Clients over TCP, each with a connection of its own, that run programs.
pub(crate) const LOAD: Endurance = Endurance {
    name: "load",
    count: "128",
    seconds: 600,
};

impl Endurance {
    /// Runs the test for some seconds, and keeps its output. Fails if an answer is wrong or lost, or
    /// processes or files are left behind.
    pub(crate) fn run(&self, root: &Path, seconds: u64) -> Result<()> {
        let name = self.name;
        let report = format!("docs/reports/{name}.txt");
        cargo(root, &["build", "--release", "--locked", "--bin", "ringfence"]).run()?;
        let commit = program(root, "git", &["rev-parse", "--short", "HEAD"]).stdout()?;
        let head = format!("`cargo xtask {name} {seconds}` on commit {}\n\n", commit.trim());
        fs::write(root.join(&report), head).with_context(|| format!("write {report}"))?;
        let (script, seconds) = (format!("xtask/{name}.py"), seconds.to_string());
        let arguments = [&script, "target/release/ringfence", &seconds, self.count, &report];
        let done = program(root, PYTHON, &arguments).run();
        report::line(&format!("{report}: written"));
        done
    }
}
