//! Runs the fuzz targets, a plain program with its own mutation loop, so that stable Rust suffices.

use std::path::Path;

use anyhow::Result;

use crate::process::cargo;

/// Long enough to catch a careless parser, short enough for every push.
pub(crate) const SECONDS_IN_CI: u64 = 5;

/// Returns the target directory of the fuzz crate, which is outside the workspace.
pub(crate) fn target_directory(root: &Path) -> String {
    root.join("target/fuzz").to_string_lossy().into_owned()
}

/// Runs every target for `seconds`.
pub(crate) fn run(root: &Path, seconds: u64) -> Result<()> {
    let seconds = seconds.to_string();
    cargo(
        &root.join("fuzz"),
        &["run", "--release", "--quiet", "--", "--seconds", &seconds],
    )
    .env("CARGO_TARGET_DIR", &target_directory(root))
    .run()
}
