//! Deno and Pyodide, installed by the product itself, and the wheels that test programs import there.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{VENV, is_there, stamp};
use crate::process::{program, ringfence};
use crate::report;

const WHEELS: &str = "target/pyodide-wheels";
const LIST: &str = "xtask/pyodide-wheels.txt";

/// Installs missing parts.
pub(super) fn setup(root: &Path) -> Result<()> {
    let target = |name: &str| root.join("target").join(name).to_string_lossy().into_owned();
    ringfence(root, &["setup", "deno"])?
        // Keeps the test set-up out of the user's own state.
        .env("XDG_STATE_HOME", &target("setup-state"))
        .env("RINGFENCE_SKILLS_SANDBOX_DIRECTORY", &target("pyodide"))
        .run()?;
    wheels(root).context("fetch wheels for Pyodide")
}

/// Downloads wheels for Pyodide's platform, verified by digest. They are not installed here.
fn wheels(root: &Path) -> Result<()> {
    let wanted = fs::read_to_string(root.join(LIST)).with_context(|| format!("read {LIST}"))?;
    if is_there(root, WHEELS, &wanted) {
        report::line("wheels for Pyodide: there");
        return Ok(());
    }
    report::line("wheels for Pyodide: fetching");
    let python = root.join(VENV).join("bin/python");
    let mut arguments = vec!["-m", "pip", "download", "--quiet", "--disable-pip-version-check"];
    arguments.extend(["--dest", WHEELS, "--no-deps", "--only-binary=:all:"]);
    arguments.extend([
        "--implementation=cp",
        "--python-version=3.14",
        "--abi=cp314",
        "--abi=none",
    ]);
    arguments.extend([
        "--platform=pyemscripten_2026_0_wasm32",
        "--require-hashes",
        "--requirement",
        LIST,
    ]);
    program(root, &python.to_string_lossy(), &arguments).run()?;
    stamp(root, WHEELS, &wanted)
}
