//! Finds the program of a command.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringfence_policy::Request;

use super::error::Error;

/// Returns the program of a command, searched for on the guest's PATH, and its arguments.
///
/// The system's directories are the same inside and outside; a program that is hidden inside fails to start.
pub(super) fn command(
    request: &Request,
    environment: &[(String, String)],
) -> Result<(PathBuf, Vec<String>), Error> {
    let (name, arguments) = request.args.split_first().ok_or_else(|| Error::Program {
        program: "an empty command".to_owned(),
        errno: 2,
    })?;
    if name.contains('/') {
        return Ok((PathBuf::from(name), arguments.to_vec()));
    }
    let path = environment.iter().find(|(variable, _)| variable == "PATH");
    let directories = path.map(|(_, value)| std::env::split_paths(value));
    let found = directories
        .into_iter()
        .flatten()
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|candidate| is_executable(candidate));
    let missing = || Error::Program {
        program: name.clone(),
        errno: 2,
    };
    Ok((found.ok_or_else(missing)?, arguments.to_vec()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
