//! Deno and Pyodide, installed by the product itself.

use std::path::Path;

use anyhow::Result;

use crate::process::cargo;

/// Installs what is missing.
pub(super) fn setup(root: &Path) -> Result<()> {
    let arguments = ["run", "--quiet", "--package", "ringfence", "--", "setup", "deno"];
    let target = |name: &str| root.join("target").join(name).to_string_lossy().into_owned();
    cargo(root, &arguments)
        // What is set up for the tests is none of the person's own state.
        .env("XDG_STATE_HOME", &target("setup-state"))
        .env("RINGFENCE_SKILLS_SANDBOX_DIRECTORY", &target("pyodide"))
        .run()
}
