//! Asks a Python about itself, once, without trusting that it answers.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{
    Error, OLDEST, Python, SYSTEM, Version, follow, in_resolved_directory, is_broad, is_elf, visible,
};

/// A shim may have much to do; a Python answers in a twentieth of a second.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// An answer takes about two kilobytes.
const MAX_ANSWER: u64 = 256 * 1024;

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
    "has_pth": any(n.endswith(".pth") for s in sites for n in names(s)),
}) + "\n")
"#;

/// Variables that a shim needs to find its Python.
const KEPT_VARIABLES: &[&str] = &["HOME", "PYENV_ROOT", "PYENV_VERSION"];

/// Why an interpreter did not tell about itself.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It could not be started.
    #[error("it cannot be started")]
    Start(#[source] io::Error),
    /// It took too long and was killed.
    #[error("it did not answer within {} seconds", TIME_LIMIT.as_secs())]
    TimedOut,
    /// It ended without an answer.
    #[error("it gave no answer: {0}")]
    NoAnswer(String),
    /// The answer makes no sense.
    #[error("its answer makes no sense")]
    Malformed(#[source] serde_json::Error),
    /// It stands for what is no program.
    #[error("it leads to `{0}`, which is not a program")]
    NoProgram(PathBuf),
}

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
    has_pth: bool,
}

/// What `candidate` says about itself.
pub(super) fn python(candidate: &Path, path_var: Option<&OsStr>) -> Result<Python, Error> {
    let failed = |source| Error::Probe {
        path: candidate.to_owned(),
        source,
    };
    let tell = |path: &Path| {
        let answer = ask(path, path_var).map_err(failed)?;
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
    let (mut version, mut answer) = tell(&in_resolved_directory(candidate))?;
    // Not `candidate`: that may be a stand-in, be it a script or a program such as those of rye.
    let executable = in_resolved_directory(&answer.executable);
    if !is_elf(&executable) {
        return Err(failed(ProbeError::NoProgram(executable)));
    }
    if executable != answer.executable {
        // A stand-in called it by a name that leads through linked directories, and so would all its paths.
        (version, answer) = tell(&executable)?;
    }
    describe(executable, version, answer)
}

fn describe(executable: PathBuf, version: Version, answer: Answer) -> Result<Python, Error> {
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
    dirs.extend(answer.search_path.iter().cloned());
    let library_dirs = visible(dirs);
    let system = SYSTEM.iter().map(Path::new);
    let all: Vec<&Path> = system.chain(library_dirs.iter().map(PathBuf::as_path)).collect();
    let shown = |path: &Path| all.iter().any(|dir| path.starts_with(dir));
    let links = follow(&executable)
        .0
        .into_iter()
        .filter(|link| !shown(&link.path))
        .collect();
    Ok(Python {
        executable,
        version,
        prefix: answer.prefix,
        base_prefix: answer.base_prefix,
        exec_prefix: answer.exec_prefix,
        stdlib: answer.stdlib,
        search_path: answer.search_path,
        links,
        library_dirs,
        has_pth: answer.has_pth,
    })
}

/// The directory that a program `…/bin/python3` is installed in.
fn installation(program: &Path) -> Option<PathBuf> {
    let dir = program.parent()?;
    let root = if dir.file_name() == Some(OsStr::new("bin")) {
        dir.parent()?
    } else {
        dir
    };
    // A `/bin` that is no link to `/usr/bin` is shown like `/usr`.
    Some(if root == Path::new("/") {
        PathBuf::from("/usr")
    } else {
        root.to_owned()
    })
}

/// The line of the answer, without its mark.
fn ask(candidate: &Path, path_var: Option<&OsStr>) -> Result<String, ProbeError> {
    let mut child = start(candidate, path_var).map_err(ProbeError::Start)?;
    let deadline = Instant::now() + TIME_LIMIT;
    let stdout = child.stdout.take().map(read_aside);
    let stderr = child.stderr.take().map(read_aside);
    let outcome = stdout
        .map_or(Ok(Vec::new()), |stdout| receive(&stdout, deadline))
        .and_then(|stdout| {
            let stderr = stderr.map_or(Ok(Vec::new()), |stderr| receive(&stderr, deadline))?;
            Ok((
                String::from_utf8_lossy(&stdout).into_owned(),
                String::from_utf8_lossy(&stderr).into_owned(),
            ))
        });
    let ended = reap(&mut child, deadline, outcome.is_ok());
    let (stdout, stderr) = outcome?;
    if !ended {
        return Err(ProbeError::TimedOut);
    }
    let answer = stdout.lines().find_map(|line| line.strip_prefix(MARK));
    answer
        .map(str::to_owned)
        .ok_or_else(|| ProbeError::NoAnswer(last_line(&stderr)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the probe is the one place outside the jail that starts a process"
)]
fn start(candidate: &Path, path_var: Option<&OsStr>) -> io::Result<Child> {
    let kept = std::env::vars_os().filter(|(name, _)| KEPT_VARIABLES.iter().any(|kept| name == kept));
    // A group of its own, so that a shim and what it started can be killed together; `/`, so that no file of
    // the project decides which Python a shim means.
    let mut command = Command::new(candidate);
    command
        .args(["-I", "-c", PROBE])
        .env_clear()
        .envs(kept)
        .current_dir("/")
        .process_group(0);
    command.envs(path_var.map(|path| ("PATH", path)));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Reads on a thread of its own: a process that lives on may keep the pipe open for ever.
fn read_aside(pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = sync_channel(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is all there is.
        _ = pipe.take(MAX_ANSWER).read_to_end(&mut bytes);
        _ = sender.send(bytes);
    });
    receiver
}

fn receive(pipe: &Receiver<Vec<u8>>, deadline: Instant) -> Result<Vec<u8>, ProbeError> {
    match pipe.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(bytes) => Ok(bytes),
        Err(RecvTimeoutError::Timeout) => Err(ProbeError::TimedOut),
        Err(RecvTimeoutError::Disconnected) => Ok(Vec::new()),
    }
}

/// Waits for the end of a child that has said all it will, or kills it; whether it ended by itself.
fn reap(child: &mut Child, deadline: Instant, may_finish: bool) -> bool {
    while may_finish && Instant::now() < deadline {
        if let Ok(Some(_)) = child.try_wait() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    kill_group(child);
    // Killed, it cannot stay long.
    _ = child.kill();
    _ = child.wait();
    false
}

/// The standard library kills one process; the shell kills what a shim has started too.
#[expect(
    clippy::disallowed_methods,
    reason = "the probe is the one place outside the jail that starts a process"
)]
fn kill_group(child: &Child) {
    let group = format!("-{}", child.id());
    let shell = Command::new("/bin/sh")
        .args(["-c", "kill -s KILL -- \"$1\"", "sh", &group])
        .env_clear()
        .status();
    // Without a shell the child itself is still killed by the caller.
    _ = shell;
}

fn last_line(text: &str) -> String {
    let line = text
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it printed nothing");
    line.chars().take(200).collect()
}
