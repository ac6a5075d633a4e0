//! Probes a Python in a fence, without trusting its answer.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_policy::EnvName;
use serde::Deserialize;

use super::error::{Error, ProbeError};
use super::path::{Link, follow, in_resolved_directory, is_broad, is_elf, visible};
use super::python::{OLDEST, Python, Version};
use super::view::{View, installation, lies_in};
use crate::trust::Accepted;

/// Prefix that distinguishes the answer from output of a `sitecustomize`.
const MARK: &str = "ringfence-probe:";

/// Probe script. It runs on every Python 3, so that an outdated one can report its version.
const PROBE: &str = r#"
import json, os, sys
try:
    import site
    sites = site.getsitepackages()
except Exception:
    sites = []
def names(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []
sys.stdout.write("\nringfence-probe:" + json.dumps({
    "version": list(sys.version_info[:3]),
    "executable": sys.executable,
    "prefix": sys.prefix,
    "base_prefix": sys.base_prefix,
    "exec_prefix": sys.exec_prefix,
    "stdlib": os.path.dirname(os.__file__),
    "search_path": [p for p in sys.path if p and os.path.exists(p)],
    "real": [os.path.realpath(p) for p in (sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix)],
    "sites": [s for s in sites if os.path.isdir(s)],
    "has_pth": any(n.endswith(".pth") for s in sites for n in names(s)),
}) + "\n")
"#;

/// Variables that a shim needs to find its Python.
const KEPT_VARIABLES: &[&str] = &["HOME", "PYENV_ROOT", "PYENV_VERSION"];

/// A command to run in a fence, and the files shown to it.
#[derive(Debug)]
pub struct Question<'a> {
    pub program: &'a Path,
    pub arguments: &'a [&'a str],
    /// Environment variables besides those of every fence.
    pub environment: Vec<(EnvName, String)>,
    /// Standard input.
    pub input: &'a [u8],
    /// Host files and directories mounted read-only, besides the system's.
    pub shown: &'a [PathBuf],
    /// Host links to recreate.
    pub links: &'a [Link],
}

/// The output of a command.
#[derive(Debug)]
pub struct ProbeOutput {
    pub stdout: String,
    pub stderr: String,
    /// Set if the exit status is 0.
    pub succeeded: bool,
}

/// A function that runs an untrusted program in a fence to completion.
pub type Ask<'a> = dyn Fn(&Question<'_>) -> Result<ProbeOutput, ProbeError> + 'a;

/// The part of the answer that even an outdated Python can print.
#[derive(Deserialize)]
struct VersionAnswer {
    version: Version,
}

#[derive(Deserialize)]
struct Answer {
    executable: PathBuf,
    prefix: PathBuf,
    base_prefix: PathBuf,
    exec_prefix: PathBuf,
    stdlib: PathBuf,
    search_path: Vec<PathBuf>,
    real: Vec<PathBuf>,
    sites: Vec<PathBuf>,
    has_pth: bool,
}

/// Probes `candidate`. Of `.pth` files that programs could write, those that lead elsewhere must be accepted.
pub(super) fn python(
    candidate: &Path,
    path_var: Option<&OsStr>,
    accepted: &Accepted,
    ask: &Ask<'_>,
) -> Result<Python, Error> {
    let failed = |source| Error::Probe {
        path: candidate.to_owned(),
        source,
    };
    let ask_program = |path: &Path, view: &View| {
        let answer = answer(path, view, path_var, ask).map_err(failed)?;
        let malformed = |error| failed(ProbeError::Malformed(error));
        let version = serde_json::from_str::<VersionAnswer>(&answer)
            .map_err(malformed)?
            .version;
        if version < OLDEST {
            return Err(Error::TooOld {
                path: candidate.to_owned(),
                version,
            });
        }
        let answer: Answer = serde_json::from_str(&answer).map_err(malformed)?;
        Ok((version, answer))
    };
    let mut program = in_resolved_directory(candidate);
    let mut view = View::of(&program)?;
    let (mut version, mut answer) = ask_program(&program, &view)?;
    // Not `candidate`: that may be a stand-in, be it a script or a program such as those of rye.
    let executable = in_resolved_directory(&answer.executable);
    if !view.shows(&executable) && executable != program {
        return Err(failed(ProbeError::Beyond(executable)));
    }
    if !is_elf(&executable) {
        return Err(failed(ProbeError::NoProgram(executable)));
    }
    if executable != program || executable != answer.executable {
        // A stand-in leads to it, perhaps by a path with linked directories, in which case all reported paths
        // would have them, too.
        program = executable;
        view = View::of(&program)?;
        (version, answer) = ask_program(&program, &view)?;
    }
    let added = view.added(&answer.sites, accepted).map_err(failed)?;
    if !added.is_empty() {
        view = view.with(added);
        (version, answer) = ask_program(&program, &view)?;
    }
    describe(program, &view, version, answer)
}

fn describe(executable: PathBuf, view: &View, version: Version, answer: Answer) -> Result<Python, Error> {
    let beyond = |path: &Path| Error::Probe {
        path: executable.clone(),
        source: ProbeError::Beyond(path.to_owned()),
    };
    let mut dirs = vec![
        answer.prefix.clone(),
        answer.base_prefix.clone(),
        answer.exec_prefix.clone(),
    ];
    let (program, prefixes) = answer
        .real
        .split_first()
        .map_or((None, &[][..]), |(first, rest)| (Some(first), rest));
    dirs.extend(program.and_then(|program| installation(program)));
    dirs.extend(prefixes.iter().cloned());
    if let Some(prefix) = dirs.iter().find(|dir| is_broad(dir)) {
        return Err(Error::Broad {
            path: executable,
            prefix: prefix.clone(),
        });
    }
    dirs.push(answer.stdlib.clone());
    if let Some(path) = dirs.iter().find(|dir| !view.shows(dir)) {
        return Err(beyond(path));
    }
    let search_path: Vec<PathBuf> = answer
        .search_path
        .into_iter()
        .filter(|path| view.shows(path))
        .collect();
    dirs.extend(search_path.iter().cloned());
    let library_dirs = visible(dirs);
    let links = follow(&executable)
        .0
        .into_iter()
        .filter(|link| !lies_in(&link.path, &library_dirs))
        .collect();
    Ok(Python {
        executable,
        version,
        prefix: answer.prefix,
        base_prefix: answer.base_prefix,
        exec_prefix: answer.exec_prefix,
        stdlib: answer.stdlib,
        search_path,
        links,
        library_dirs,
        has_pth: answer.has_pth,
    })
}

/// Returns the answer line, without its prefix.
fn answer(
    program: &Path,
    view: &View,
    path_var: Option<&OsStr>,
    ask: &Ask<'_>,
) -> Result<String, ProbeError> {
    let said = ask(&Question {
        program,
        arguments: &["-I", "-c", PROBE],
        environment: environment(path_var),
        input: &[],
        shown: &view.shown,
        links: &view.links,
    })?;
    let answer = said.stdout.lines().find_map(|line| line.strip_prefix(MARK));
    answer
        .filter(|_| said.succeeded)
        .map(str::to_owned)
        .ok_or_else(|| ProbeError::NoAnswer(last_line(&said.stderr)))
}

/// Returns the variables by which a shim finds its program: PATH and its own.
fn environment(path_var: Option<&OsStr>) -> Vec<(EnvName, String)> {
    let kept = std::env::vars_os().filter(|(name, _)| KEPT_VARIABLES.iter().any(|kept| name == kept));
    let path = path_var.map(|path| ("PATH".into(), path.to_owned()));
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.to_str()?.parse().ok()?, value.into_string().ok()?))
    };
    kept.chain(path).filter_map(text).collect()
}

fn last_line(text: &str) -> String {
    let line = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it printed nothing");
    line.chars().take(200).collect()
}
