//! What drives the browser of the tests, at exact versions. The browser itself is a Debian package.

use std::path::Path;

use anyhow::Result;

/// Installs it. It would download browsers of its own if it were asked to, and it is not.
pub(super) fn setup(root: &Path) -> Result<()> {
    super::environment(
        root,
        "driver of the browser",
        "target/browser-venv",
        "xtask/browser/requirements.txt",
    )
}
