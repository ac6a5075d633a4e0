//! The test browser's driver, at exact versions. The browser itself is a Debian package.

use std::path::Path;

use anyhow::Result;

/// Installs the driver, without the browsers that it could download.
pub(super) fn setup(root: &Path) -> Result<()> {
    super::environment(
        root,
        "driver of the browser",
        "target/browser-venv",
        "xtask/browser/requirements.txt",
    )
}
