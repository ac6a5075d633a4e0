//! Interpreters, and the modules that are preloaded or rejected.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::checks::{Checks, Wrong};

/// The interpreters of Python and JavaScript; `None` means the first one on the PATH.
#[derive(Debug, Clone, Default)]
pub struct Interpreters {
    pub python: Option<PathBuf>,
    pub javascript: Option<PathBuf>,
}

pub(super) fn interpreters(checks: &mut Checks<'_>) -> Option<Interpreters> {
    let sandbox = &checks.config().sandbox;
    let skills = &checks.config().skills.sandbox;
    for (key, modules) in [
        ("sandbox.preload", &sandbox.preload),
        ("sandbox.blocked_imports", &sandbox.blocked_imports),
        ("skills.sandbox.blocked_imports", &skills.blocked_imports),
    ] {
        for module in modules.iter().filter(|module| !is_module(module)) {
            checks.wrong(Wrong::new(
                key,
                format!("expected the name of a Python module such as `numpy`, found `{module}`"),
                "write what stands behind `import`",
            ));
        }
    }
    checks.keep(interpreter("skills.sandbox.deno_path", &skills.deno_path))?;
    let mut optional = |key, path: &Option<PathBuf>| match path {
        Some(path) => checks.keep(interpreter(key, path)).map(Some),
        None => Some(None),
    };
    let python = optional("sandbox.python", &sandbox.python);
    let javascript = optional("sandbox.javascript", &sandbox.javascript);
    Some(Interpreters {
        python: python?,
        javascript: javascript?,
    })
}

/// Checks an interpreter, given by its absolute path or its bare name on the PATH. A relative path in a
/// configuration would mean another program in every directory, so it is rejected.
pub fn interpreter(key: &str, path: &Path) -> Result<PathBuf, Wrong> {
    let none = |why: &str| {
        let message = format!(
            "expected a program; there is no interpreter at {}{why}",
            path.display()
        );
        let hint = "name an existing interpreter, such as /usr/bin/python3 or a venv's bin/python";
        Err(Wrong::new(key, message, hint))
    };
    if is_bare(path) {
        return Ok(path.to_path_buf());
    }
    if !path.is_absolute() {
        let message = format!(
            "expected an absolute path or the bare name of a program, found the relative path `{}`",
            path.display()
        );
        let hint = "write an absolute path, or the bare name of a program on the PATH";
        return Err(Wrong::new(key, message, hint));
    }
    match path.metadata() {
        Ok(meta) if !meta.is_file() => none(": it is not a file"),
        Ok(meta) if meta.permissions().mode() & 0o111 == 0 => none(": it is not executable"),
        Ok(_) => Ok(path.to_path_buf()),
        Err(_) => none(""),
    }
}

/// Returns `true` if a path is a name without a directory.
pub fn is_bare(path: &Path) -> bool {
    path.components().count() == 1 && path.file_name().is_some_and(|name| name == path.as_os_str())
}

fn is_module(name: &str) -> bool {
    let starts = |c: char| c.is_alphabetic() || c == '_';
    let part = |part: &str| part.starts_with(starts) && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    name.split('.').all(part)
}
