//! The sandbox image, built by the product itself from this machine's packages.

use std::path::Path;

use anyhow::Result;

use super::answers;
use super::ledger::{self, Made};
use crate::process::ringfence;
use crate::report;

/// The configuration's default name.
const IMAGE: &str = "ringfence-sandbox:latest";

/// Builds the image in each engine that lacks it.
pub(super) fn setup(root: &Path) -> Result<()> {
    for engine in ["docker", "podman"] {
        if answers(root, engine, &["image", "inspect", IMAGE]) {
            report::line(&format!("{IMAGE} in {engine}: there"));
            continue;
        }
        report::line(&format!("{IMAGE} in {engine}: making it"));
        let arguments = ["setup", "image", "--from", "host", "--engine", engine];
        ledger::record(Made::Image {
            engine: engine.to_owned(),
            name: IMAGE.to_owned(),
        })?;
        // Keeps the test set-up out of the user's own state.
        let state = root.join("target/setup-state");
        ringfence(root, &arguments)?
            .env("XDG_STATE_HOME", &state.to_string_lossy())
            .run()?;
    }
    Ok(())
}
