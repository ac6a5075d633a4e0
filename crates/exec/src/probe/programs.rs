//! Detects the interpreters that runs would use.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringfence_policy::{Language, Remedy, remedy};

use super::layer::Layer;
use super::runs::Runs;
use crate::interpreter::{self, Python, find_bash, find_javascript};
use crate::local::{self, Settings, find_python};

/// Limit of listed alternatives.
const MAX_PASSED_OVER: usize = 8;

/// Returns an entry per language, verified by a run.
pub(super) fn languages(settings: &Settings, runs: &Runs) -> Vec<Layer> {
    vec![python(settings, runs), bash(runs), javascript(settings, runs)]
}

fn python(settings: &Settings, runs: &Runs) -> Layer {
    let found = find_python(settings, settings.python.as_deref());
    let mut detail = match &found {
        Ok(python) => format!("{} {}", describe(python), origin(settings)),
        Err(error) => explain(error),
    };
    // A configured interpreter is the only candidate.
    if settings.python.is_none() {
        for (path, why) in passed_over(settings, found.as_ref().ok()) {
            detail.push_str(&format!("; passed over {}: {why}", path.display()));
        }
    }
    match (found, runs.language(Language::Python)) {
        (Ok(_), Ok(result)) => Layer::ok("python", format!("{detail}; {}", took(result.duration))),
        (Ok(_), Err((why, hint))) => Layer::missing("python", format!("{detail}; {why}"), hint),
        (Err(error), _) => Layer::missing("python", detail, fix(&error)),
    }
}

/// Returns the fix for a Python that is missing, too old or broken.
fn fix(error: &interpreter::Error) -> Remedy {
    use interpreter::{Error, ProbeError};
    match error {
        Error::Many { .. }
        | Error::Probe {
            source: ProbeError::Planted { .. },
            ..
        } => error.hint(),
        Error::NotFound { .. }
        | Error::Configured(_)
        | Error::TooOld { .. }
        | Error::Probe { .. }
        | Error::Broad { .. } => remedy::Run::InstallPython.into(),
    }
}

fn describe(python: &Python) -> String {
    let (major, minor, patch) = python.version;
    let venv = if python.prefix == python.base_prefix {
        ""
    } else {
        ", a virtual environment"
    };
    format!(
        "{} is {major}.{minor}.{patch}{venv},",
        python.executable.display()
    )
}

fn origin(settings: &Settings) -> &'static str {
    match settings.python {
        Some(_) => "named by you",
        None => "the first usable `python3` on the PATH, programs before scripts",
    }
}

/// Lists other programs called python3, with the reason why each is not used.
fn passed_over(settings: &Settings, found: Option<&Python>) -> Vec<(PathBuf, String)> {
    let others = on_path("python3", settings.path.as_deref())
        .into_iter()
        .filter(|path| found.is_none_or(|python| python.executable != *path));
    others
        .filter_map(|path| {
            let error = find_python(settings, Some(&path)).err()?;
            Some((path, explain(&error)))
        })
        .take(MAX_PASSED_OVER)
        .collect()
}

fn explain(error: &interpreter::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

fn bash(runs: &Runs) -> Layer {
    let Some(path) = find_bash() else {
        return Layer {
            fix: Some("sudo apt install bash".to_owned()),
            ..Layer::info("bash", "none found; bash programs cannot be run")
        };
    };
    ran("bash", &path, Language::Bash, runs)
}

fn javascript(settings: &Settings, runs: &Runs) -> Layer {
    let named = settings.javascript.as_deref();
    let Some(found) = find_javascript(named, settings.path.as_deref()) else {
        if let Some(named) = named {
            let error = local::Error::NotJavascript(named.to_path_buf());
            return Layer::missing("javascript", error.to_string(), error.hint());
        }
        return Layer {
            fix: Some("sudo apt install nodejs, or install Deno so that it is on the PATH".to_owned()),
            ..Layer::info(
                "javascript",
                "neither Node nor Deno found; JavaScript programs cannot be run",
            )
        };
    };
    ran("javascript", &found.executable, Language::Javascript, runs)
}

fn ran(name: &'static str, path: &Path, language: Language, runs: &Runs) -> Layer {
    match runs.language(language) {
        Ok(result) => Layer::ok(name, format!("{}; {}", path.display(), took(result.duration))),
        Err((why, hint)) => Layer::missing(name, format!("{}: {why}", path.display()), hint),
    }
}

fn took(seconds: f64) -> String {
    format!("a program ran in {:.0} ms", seconds * 1000.0)
}

fn on_path(name: &str, path: Option<&OsStr>) -> Vec<PathBuf> {
    let folders = path.map(std::env::split_paths).into_iter().flatten();
    let files = folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name));
    let mut found = Vec::new();
    for file in files {
        let runs =
            fs::metadata(&file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        if runs && !found.contains(&file) {
            found.push(file);
        }
    }
    found
}
