//! Resolution of paths that a person or a trusted file names, with the error messages.

use std::path::{Path, PathBuf};

use ringfence_exec::trust::{self, Accepted, Digest, Ledger, NamedPathError, NamedPaths, Resolved};

use crate::env::Environment;
use crate::failure::Failure;
use crate::paths::Paths;

/// Directories so broad that a link in them is not suspicious, such as the working directory of a service.
const BROAD: &[&str] = &["/", "/root", "/home", "/tmp", "/var", "/opt", "/srv"];

/// Resolves a path, following any link.
///
/// # Errors
/// If the path cannot be read.
pub fn find(path: &Path) -> Result<Resolved, Failure> {
    trust::resolve(path).map_err(|error| failure(path, error.into()))
}

/// Converts the error of a named path.
pub fn failure(path: &Path, error: NamedPathError) -> Failure {
    match error {
        NamedPathError::Unusable(error) => Failure::usage(
            format!("cannot use {}: {error}", path.display()),
            "name a host path that exists and that you may read",
        ),
        NamedPathError::Unknown(error) => unknown_trees(error),
        NamedPathError::Planted { ref target, .. } => Failure::refused(
            error.to_string(),
            format!("if you trust it, name what it leads to: {}", target.display()),
        ),
    }
}

/// Returns the working directory, if a program may have made links in it.
pub(crate) fn working_directory(environment: &Environment) -> Option<PathBuf> {
    let here = std::env::current_dir().ok();
    here.filter(|here| !is_broad(here, environment))
}

/// Returns the rules by which named paths are resolved: programs may have made links in the working
/// directory, and in each directory that was ever writable for one.
pub(crate) fn named_paths(here: Option<PathBuf>, paths: &Paths) -> NamedPaths {
    // Without a state directory no program was ever noted.
    let ledger = paths.state_if_ours().map_or_else(Ledger::default, Ledger::at);
    NamedPaths::new(ledger, here)
}

/// Returns `true` for a directory around much else, such as a home directory.
pub(crate) fn is_broad(directory: &Path, environment: &Environment) -> bool {
    let is_home =
        |home: PathBuf| directory == home || trust::resolve(&home).is_ok_and(|found| directory == found.path);
    BROAD.iter().any(|broad| directory == Path::new(broad))
        || environment.directory("HOME").is_some_and(is_home)
}

/// Returns the files that this user accepted.
pub fn accepted(paths: &Paths) -> Accepted {
    paths
        .make_state()
        .map_or_else(|_| Accepted::default(), Accepted::at)
}

/// Rejects a file that a program may have written since the user accepted it.
///
/// # Errors
/// If one may have.
pub(crate) fn check_accepted(file: &Path, content: &Digest, paths: &Paths) -> Result<(), Failure> {
    match accepted(paths).written(file, content).map_err(unknown_trees)? {
        None => Ok(()),
        Some(tree) => Err(Failure::refused(
            format!(
                "refusing to use {}: programs could write in {}, and the file differs from what you last accepted",
                file.display(),
                tree.display()
            ),
            format!(
                "look at it, and if you trust it run `ringfence accept {}`",
                file.display()
            ),
        )),
    }
}

/// Converts the error of the record of directories that programs could write to.
pub(crate) fn unknown_trees(error: std::io::Error) -> Failure {
    Failure::refused(
        format!("cannot read the record of where programs could write: {error}"),
        "make the state directory yours and readable (`ringfence doctor`), or remove its `opened.json`",
    )
}
