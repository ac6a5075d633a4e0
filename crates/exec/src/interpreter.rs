//! Discovery of the machine's interpreters and of the files that the fence must show them.

mod cache;
mod error;
mod path;
mod probe;
mod python;
mod view;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringfence_policy::Trusted;

pub use error::{Error, ProbeError};
pub use path::Link;
use path::{follow, in_resolved_directory, is_elf, is_executable, visible};
pub use probe::{Ask, ProbeOutput, Question};
pub use python::{Python, Version};

/// Fallback paths for Python, after the search path.
const USUAL_PYTHONS: &[&str] = &["/usr/bin/python3", "/usr/local/bin/python3"];

/// Returns the files that cached interpreters execute and load.
pub fn known(cache_dir: &Path) -> Trusted {
    let mut all = Trusted::none();
    for python in cache::pythons(cache_dir) {
        all.extend(&python.trusted());
    }
    all
}

/// Returns the files that a configured interpreter would execute and load, as far as known without running
/// it: of a program, or of the directory of a virtual environment.
pub fn named(configured: &Path, path_var: Option<&OsStr>) -> Trusted {
    let Some(program) = configured_python(configured, path_var) else {
        return Trusted::none();
    };
    let program = in_resolved_directory(&program);
    let (links, end) = follow(&program);
    let links = links.into_iter().map(|link| link.path);
    Trusted {
        paths: std::iter::once(program.clone())
            .chain(links)
            .chain([end])
            .collect(),
        installations: view::View::of(&program)
            .map(|view| view.shown)
            .unwrap_or_default(),
        ..Trusted::none()
    }
}

/// Returns the `.pth` files of a configured interpreter, as far as known without running it.
pub fn path_files(configured: &Path, path_var: Option<&OsStr>) -> Vec<PathBuf> {
    let program = configured_python(configured, path_var);
    let view = program.and_then(|program| view::View::of(&in_resolved_directory(&program)).ok());
    view.map(|view| view.path_files()).unwrap_or_default()
}

/// Returns the `.pth` files of cached interpreters; those of the system do not belong to a program.
pub fn known_path_files(cache_dir: &Path) -> Vec<PathBuf> {
    let prefixes = cache::pythons(cache_dir).map(|python| python.prefix);
    let prefixes = prefixes.filter(|prefix| !view::lies_in(prefix, &[]));
    prefixes.flat_map(|prefix| view::path_files_of(&prefix)).collect()
}

/// A JavaScript engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Javascript {
    /// Path to execute; links are resolved.
    pub executable: PathBuf,
    pub kind: JavascriptKind,
    /// Directories that the fence must show besides `/usr`.
    pub prefix_dirs: Vec<PathBuf>,
}

/// The supported JavaScript engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JavascriptKind {
    Node,
    Deno,
}

/// Finds the Python to run code with.
///
/// `configured` is a program, a program's name on the path, or the directory of a virtual environment.
/// Without it, programs on `path_var` come first, then scripts there (such as the shims of pyenv, which know
/// where the program is), then the fallback paths. Each is probed by `ask`, in a fence; the answer is cached
/// in `cache_dir` until one of its files changes.
///
/// # Errors
/// If no usable one is found; the error is that of the first one found.
pub fn find_python(
    configured: Option<&Path>,
    path_var: Option<&OsStr>,
    cache_dir: Option<&Path>,
    ask: &Ask<'_>,
) -> Result<Python, Error> {
    let probe = |candidate: &Path| cache::python(candidate, path_var, cache_dir, ask);
    if let Some(configured) = configured {
        let missing = || Error::Configured(configured.to_owned());
        return probe(&configured_python(configured, path_var).ok_or_else(missing)?);
    }
    let on_path = || programs("python3", path_var);
    let (binaries, scripts) = (
        on_path().filter(|path| is_elf(path)),
        on_path().filter(|path| !is_elf(path)),
    );
    let usual = USUAL_PYTHONS
        .iter()
        .map(PathBuf::from)
        .filter(|path| is_executable(path));
    let mut first_error = None;
    let mut probed: Vec<PathBuf> = Vec::new();
    // Lazily: most often the first one is it, and the rest of the path needs no look.
    for candidate in binaries.chain(scripts).chain(usual) {
        if probed.contains(&candidate) {
            continue;
        }
        match probe(&candidate) {
            Ok(python) => return Ok(python),
            Err(error) => first_error = first_error.or(Some(error)),
        }
        probed.push(candidate);
    }
    Err(first_error.unwrap_or_else(|| Error::NotFound {
        looked: looked(path_var),
    }))
}

/// Finds a JavaScript engine: that of this path or name, else Node.js before Deno.
///
/// Scripts and other stand-ins, such as those of nvm and Volta, are skipped: inside the fence they would not
/// find the program that they stand for.
pub fn find_javascript(named: Option<&Path>, path_var: Option<&OsStr>) -> Option<Javascript> {
    if let Some(named) = named {
        return named_javascript(named, path_var);
    }
    let node = [
        ("node", JavascriptKind::Node),
        ("nodejs", JavascriptKind::Node),
        ("deno", JavascriptKind::Deno),
    ];
    node.into_iter().find_map(|(name, kind)| {
        let usual = ["/usr/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join(name));
        let all = programs(name, path_var).chain(usual);
        all.filter(|path| is_executable(path) && is_elf(path))
            .find_map(|path| javascript(&path, kind))
    })
}

/// Finds the JavaScript engine of an absolute path, or of a name on the PATH. Its file name says which one it is.
fn named_javascript(named: &Path, path_var: Option<&OsStr>) -> Option<Javascript> {
    let on_path = named
        .to_str()
        .into_iter()
        .flat_map(|name| programs(name, path_var));
    let all = named
        .is_absolute()
        .then(|| named.to_path_buf())
        .into_iter()
        .chain(on_path.filter(|_| !named.is_absolute()));
    let mut genuine = all.filter(|path| is_executable(path) && is_elf(path));
    genuine.find_map(|path| {
        javascript(&path, JavascriptKind::Node).or_else(|| javascript(&path, JavascriptKind::Deno))
    })
}

pub fn find_bash() -> Option<PathBuf> {
    let usual = ["/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash"];
    usual
        .into_iter()
        .map(PathBuf::from)
        .find(|path| is_executable(path))
}

fn javascript(path: &Path, kind: JavascriptKind) -> Option<Javascript> {
    let executable = follow(path).1;
    let name = executable.file_name()?.to_str()?;
    let genuine = match kind {
        JavascriptKind::Node => name.starts_with("node"),
        JavascriptKind::Deno => name.starts_with("deno"),
    };
    let dir = executable.parent()?.to_owned();
    // npm lies beside the directory of the program, not in it.
    let npm = dir.parent().map(|prefix| prefix.join("lib/node_modules/npm"));
    let shown = std::iter::once(dir).chain(npm.filter(|npm| npm.is_dir()));
    genuine.then(|| Javascript {
        prefix_dirs: visible(shown.collect()),
        executable,
        kind,
    })
}

fn configured_python(configured: &Path, path_var: Option<&OsStr>) -> Option<PathBuf> {
    if configured.is_dir() {
        let dir = std::path::absolute(configured).ok()?;
        return ["bin/python3", "bin/python"]
            .iter()
            .map(|name| dir.join(name))
            .find(|path| is_executable(path));
    }
    if is_executable(configured) {
        return std::path::absolute(configured).ok();
    }
    let name = configured.to_str().filter(|name| !name.contains('/'))?;
    programs(name, path_var).next()
}

/// Returns every executable file called `name` on the search path, looked up lazily. Relative entries are skipped:
/// they depend on the working directory.
fn programs(name: &str, path_var: Option<&OsStr>) -> impl Iterator<Item = PathBuf> {
    let dirs = path_var
        .map(std::env::split_paths)
        .into_iter()
        .flatten()
        .filter(|dir| dir.is_absolute());
    dirs.map(move |dir| dir.join(name))
        .filter(|path| is_executable(path))
}

fn looked(path_var: Option<&OsStr>) -> String {
    let on_path = match path_var {
        Some(path) if !path.is_empty() => format!("PATH ({})", path.to_string_lossy()),
        _ => "PATH (which is empty)".to_owned(),
    };
    format!("{on_path} and {}", USUAL_PYTHONS.join(" and "))
}

#[cfg(test)]
mod tests;
