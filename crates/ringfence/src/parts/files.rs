//! Checks of directories and files in the configuration.

use std::path::{Path, PathBuf};

use super::checks::{Checks, Wrong};

pub(super) fn check(checks: &mut Checks<'_>) {
    let config = checks.config();
    for (key, directory) in [
        ("artifacts.dir", &config.artifacts.dir),
        ("audit.dir", &config.audit.dir),
        ("skills.sandbox.directory", &config.skills.sandbox.directory),
    ] {
        if let Some(directory) = directory {
            let checked = may_become_directory(key, directory);
            checks.keep(checked);
        }
    }
    if let Some(packages) = &config.skills.sandbox.packages
        && !packages.is_dir()
    {
        checks.wrong(Wrong::new(
            "skills.sandbox.packages",
            format!(
                "expected a directory of wheels, found none at {}",
                packages.display()
            ),
            "make the directory, or leave the key out",
        ));
    }
    for name in config
        .permissions
        .filesystem
        .protected
        .iter()
        .filter(|name| !is_protectable(name))
    {
        checks.wrong(Wrong::new(
            "permissions.filesystem.protected",
            format!("expected a name, or several joined by `/`, found `{name}`"),
            "write names such as `.git` or `.config/tool`: they count at any depth",
        ));
    }
}

/// Rejects a path that exists and is not a directory, or that cannot be created.
pub(super) fn may_become_directory(key: &str, path: &Path) -> Result<(), Wrong> {
    let nearest = absolute(path);
    let there = nearest.ancestors().find(|above| above.symlink_metadata().is_ok());
    match there {
        Some(there) if !there.is_dir() => Err(Wrong::new(
            key,
            format!(
                "expected a directory, or one that can be made, found {}: {} is not a directory",
                path.display(),
                there.display()
            ),
            "name a directory, or one that does not exist yet",
        )),
        _ => Ok(()),
    }
}

/// Returns the absolute path; without a working directory, returns the path unchanged.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Returns `true` if a name in `permissions.filesystem.protected` can match a file.
fn is_protectable(name: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    !name.contains('\0') && name.trim_end_matches('/').split('/').all(plain)
}
