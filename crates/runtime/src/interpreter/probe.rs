//! Asks a Python about itself, in a fence, without trusting what it answers.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_policy::{EnvName, Timeout};
use serde::Deserialize;

use super::view::{View, installation, lies_in};
use super::{Error, Link, OLDEST, Python, Version, follow, in_resolved_directory, is_broad, is_elf, visible};

/// Tells the answer from what a `sitecustomize` may print.
const MARK: &str = "ringfence-probe:";

/// Runs on every Python 3, so that one that is too old can say so.
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

/// Why an interpreter did not tell about itself.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The fence that it is asked in could not be put up, or it could not be started there.
    #[error("it cannot be asked in a fence: {0}")]
    Fence(String),
    /// It took too long and was killed.
    #[error("it did not answer within {0}")]
    TimedOut(Timeout),
    /// It printed more than an answer.
    #[error("it printed more than the {0} bytes that an answer may have")]
    TooLong(u64),
    /// It ended without an answer.
    #[error("it gave no answer: {0}")]
    NoAnswer(String),
    /// The answer makes no sense.
    #[error("its answer makes no sense")]
    Malformed(#[source] serde_json::Error),
    /// It stands for what is no program.
    #[error("it leads to `{0}`, which is not a program")]
    NoProgram(PathBuf),
    /// It claims files that its own configuration does not lead to.
    #[error("it says that `{0}` is a part of it, which neither its links nor its `pyvenv.cfg` lead to")]
    Beyond(PathBuf),
}

/// What an interpreter is asked, and what it sees meanwhile.
#[derive(Debug)]
pub struct Question<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// Variables beside those of every fence.
    pub environment: Vec<(EnvName, String)>,
    /// Standard input.
    pub input: &'a [u8],
    /// Files and directories of the host, read-only, beside the system's.
    pub shown: &'a [PathBuf],
    /// Links of the host, made anew.
    pub links: &'a [Link],
}

/// The answer of a program.
#[derive(Debug)]
pub struct Said {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// It ended with the status 0.
    pub succeeded: bool,
}

/// Runs a program that nobody has vouched for, in a fence, to its end.
pub type Ask<'a> = dyn Fn(&Question<'_>) -> Result<Said, ProbeError> + 'a;

/// The part of the answer that even an old Python gives.
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

/// What `candidate` says about itself.
pub(super) fn python(candidate: &Path, path_var: Option<&OsStr>, ask: &Ask<'_>) -> Result<Python, Error> {
    let failed = |source| Error::Probe {
        path: candidate.to_owned(),
        source,
    };
    let tell = |path: &Path, view: &View| {
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
    let (mut version, mut answer) = tell(&program, &view)?;
    // Not `candidate`: that may be a stand-in, be it a script or a program such as those of rye.
    let executable = in_resolved_directory(&answer.executable);
    if !view.shows(&executable) && executable != program {
        return Err(failed(ProbeError::Beyond(executable)));
    }
    if !is_elf(&executable) {
        return Err(failed(ProbeError::NoProgram(executable)));
    }
    if executable != program || executable != answer.executable {
        // A stand-in leads to it, perhaps by a name with linked directories, and so would all its paths.
        program = executable;
        view = View::of(&program)?;
        (version, answer) = tell(&program, &view)?;
    }
    let added = view.added(&answer.sites);
    if !added.is_empty() {
        view = view.with(added);
        (version, answer) = tell(&program, &view)?;
    }
    describe(program, &view, (version, answer))
}

fn describe(executable: PathBuf, view: &View, (version, answer): (Version, Answer)) -> Result<Python, Error> {
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

/// The line of the answer, without its mark.
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

/// A shim finds what it stands for by the PATH and by its own variables.
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
