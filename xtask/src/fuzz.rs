//! Runs the fuzz targets, a plain program with its own mutation loop, so that stable Rust suffices.

use std::path::Path;

use anyhow::Result;

use crate::process::{built, cargo};

/// Long enough to catch a careless parser, short enough for every push.
const SECONDS_IN_CI: u64 = 5;

/// Seconds for each target where none are named.
pub(crate) const SECONDS: u64 = 20;

/// Runs every target briefly in the dev build, which is there already.
pub(crate) fn brief(root: &Path) -> Result<()> {
    built(root, "ringfence-fuzz", &["--seconds", &SECONDS_IN_CI.to_string()])?.run()
}

/// Runs every target for `seconds` in an optimized build.
pub(crate) fn run(root: &Path, seconds: u64) -> Result<()> {
    let seconds = seconds.to_string();
    let arguments = [
        "run",
        "--profile",
        "fuzz",
        "--package",
        "ringfence-fuzz",
        "--",
        "--seconds",
        &seconds,
    ];
    cargo(root, &arguments).run()
}
