//! Discovery of the machine's interpreters and of the files that the fence must show them.

mod cache;
mod probe;
mod view;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use ringfence_policy::Trusted;
use serde::{Deserialize, Serialize};

pub use probe::{Ask, ProbeError, Question, Said};

/// Oldest Python that runs our side of the protocol.
const OLDEST: Version = (3, 9, 0);

/// Fallback paths for Python, after the search path.
const USUAL_PYTHONS: &[&str] = &["/usr/bin/python3", "/usr/local/bin/python3"];

/// Trees whose programs use libraries of their neighbours: shown whole or not at all.
const SHARED_TREES: &[&str] = &["/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"];

/// System directories, which the fence shows; symbolic links on a merged-/usr system.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];

/// Directories that hold more than an interpreter, and which the fence must not show.
const BROAD: &[&str] = &[
    "/", "/root", "/home", "/var", "/etc", "/tmp", "/run", "/opt", "/mnt", "/srv", "/proc", "/dev",
];

/// From `fcntl.h`; the same on x86_64 and aarch64.
const O_NONBLOCK: i32 = 0o4_000;

/// Maximum number of links followed; the kernel's own limit.
const MAX_LINKS: usize = 40;

/// Major, minor and patch number.
pub type Version = (u32, u32, u32);

/// A Python interpreter and its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Python {
    /// Path to execute. It may be a link, because Python finds a virtual environment by the name it is called
    /// by, but its directory is resolved, so that no link on the way to it is needed.
    pub executable: PathBuf,
    pub version: Version,
    /// `sys.prefix`: the virtual environment, or the installation.
    pub prefix: PathBuf,
    /// `sys.base_prefix`: the installation.
    pub base_prefix: PathBuf,
    /// `sys.exec_prefix`.
    pub exec_prefix: PathBuf,
    /// Directory of the standard library.
    pub stdlib: PathBuf,
    /// Existing entries of `sys.path` after `site` ran.
    pub search_path: Vec<PathBuf>,
    /// Directories that the fence must show besides `/usr`, none within another.
    pub library_dirs: Vec<PathBuf>,
    /// Links between `executable` and the program that lie outside the system's directories and
    /// `library_dirs`, in order. Their directories are resolved, too, for which some links are synthesized.
    pub links: Vec<Link>,
    /// Set if a site directory contains `.pth` files.
    pub has_pth: bool,
}

impl Python {
    /// Returns the files that it executes and loads, which no guest may write.
    pub fn trusted(&self) -> Trusted {
        let prefixes = [&self.prefix, &self.base_prefix, &self.exec_prefix];
        Trusted {
            paths: std::iter::once(&self.executable)
                .chain(self.links.iter().map(|link| &link.path))
                .cloned()
                .collect(),
            installations: prefixes.map(Clone::clone).into(),
            lookups: vec![self.stdlib.clone()],
            ..Trusted::none()
        }
    }
}

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

/// Returns the `.pth` files of cached interpreters; those of the system are no program's.
pub fn known_path_files(cache_dir: &Path) -> Vec<PathBuf> {
    let prefixes = cache::pythons(cache_dir).map(|python| python.prefix);
    let prefixes = prefixes.filter(|prefix| !view::lies_in(prefix, &[]));
    prefixes.flat_map(|prefix| view::path_files_of(&prefix)).collect()
}

/// A symbolic link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub path: PathBuf,
    pub target: PathBuf,
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

/// The reason why no Python is usable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None was found.
    #[error("no python3 found in {looked}; install python3, or name one with `sandbox.python`")]
    NotFound {
        /// Searched places.
        looked: String,
    },
    /// The configured path is neither a program nor a virtual environment.
    #[error(
        "`sandbox.python` names `{0}`, which is neither a program nor a virtual environment; \
         set it to a python3 or to the directory of a virtual environment"
    )]
    Configured(PathBuf),
    /// Its version is too old.
    #[error(
        "`{path}` is Python {}.{}.{}, and at least 3.9 is needed; install a newer python3, or name one with \
         `sandbox.python`", version.0, version.1, version.2
    )]
    TooOld {
        /// Interpreter.
        path: PathBuf,
        /// Reported version.
        version: Version,
    },
    /// Probing it failed.
    #[error("`{path}` cannot be used as a Python; repair it, or name another with `sandbox.python`")]
    Probe {
        /// Interpreter.
        path: PathBuf,
        #[source]
        source: ProbeError,
    },
    /// Earlier runs used too many to keep them all from programs.
    #[error(
        "earlier runs used more than {most} interpreters, listed in `{file}`; remove virtual environments that you \
         do not need, or that file"
    )]
    Many {
        most: usize,
        /// The list.
        file: PathBuf,
    },
    /// Showing its prefix would show much else.
    #[error(
        "`{path}` is installed straight into `{prefix}`, which the fence must not show; \
         name a python3 from elsewhere with `sandbox.python`"
    )]
    Broad {
        /// Interpreter.
        path: PathBuf,
        prefix: PathBuf,
    },
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
    let on_path = programs("python3", path_var);
    let (binaries, scripts): (Vec<_>, Vec<_>) = on_path.into_iter().partition(|path| is_elf(path));
    let usual = USUAL_PYTHONS
        .iter()
        .map(PathBuf::from)
        .filter(|path| is_executable(path));
    let mut candidates: Vec<PathBuf> = Vec::new();
    for candidate in binaries.into_iter().chain(scripts).chain(usual) {
        if !candidates.contains(&candidate) {
            candidates.push(candidate);
        }
    }
    let mut first_error = None;
    for candidate in candidates {
        match probe(&candidate) {
            Ok(python) => return Ok(python),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or_else(|| Error::NotFound {
        looked: looked(path_var),
    }))
}

/// Finds a JavaScript engine: Node.js before Deno.
///
/// Scripts and other stand-ins, such as those of nvm and Volta, are skipped: inside the fence they would not
/// find the program that they stand for.
pub fn find_javascript(path_var: Option<&OsStr>) -> Option<Javascript> {
    let node = [
        ("node", JavascriptKind::Node),
        ("nodejs", JavascriptKind::Node),
        ("deno", JavascriptKind::Deno),
    ];
    node.into_iter().find_map(|(name, kind)| {
        let usual = ["/usr/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join(name));
        let all = programs(name, path_var).into_iter().chain(usual);
        all.filter(|path| is_executable(path) && is_elf(path))
            .find_map(|path| javascript(&path, kind))
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
    genuine.then(|| Javascript {
        prefix_dirs: visible(vec![dir]),
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
    programs(name, path_var).into_iter().next()
}

/// Returns every executable file called `name` on the search path. Relative entries are skipped: they depend
/// on the working directory.
fn programs(name: &str, path_var: Option<&OsStr>) -> Vec<PathBuf> {
    let dirs = path_var
        .map(std::env::split_paths)
        .into_iter()
        .flatten()
        .filter(|dir| dir.is_absolute());
    dirs.map(|dir| dir.join(name))
        .filter(|path| is_executable(path))
        .collect()
}

fn looked(path_var: Option<&OsStr>) -> String {
    let on_path = match path_var {
        Some(path) if !path.is_empty() => format!("PATH ({})", path.to_string_lossy()),
        _ => "PATH (which is empty)".to_owned(),
    };
    format!("{on_path} and {}", USUAL_PYTHONS.join(" and "))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    opened(path).is_some_and(|mut file| file.read_exact(&mut magic).is_ok()) && magic == *b"\x7fELF"
}

/// Opens a regular file without blocking: a FIFO without a writer may be in its place.
fn opened(path: &Path) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)
        .ok()?;
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

/// Returns the links from `path` to its target, and the target. Each link lies in a resolved directory; where
/// one leads through linked directories, a direct link is synthesized.
fn follow(path: &Path) -> (Vec<Link>, PathBuf) {
    let mut links = Vec::new();
    let mut path = in_resolved_directory(path);
    while links.len() < MAX_LINKS
        && let Ok(target) = fs::read_link(&path)
    {
        let named = without_dots(&path.parent().unwrap_or(Path::new("/")).join(&target));
        let next = in_resolved_directory(&named);
        links.push(Link { path, target });
        if named != next {
            links.push(Link {
                path: named,
                target: next.clone(),
            });
        }
        path = next;
    }
    (links, path)
}

/// Resolves the directory of `path`, but not its last component.
fn in_resolved_directory(path: &Path) -> PathBuf {
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(directory)), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

/// Removes `.` and `..` lexically.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// Returns those of `dirs` that the fence does not show anyway, none within another.
fn visible(dirs: Vec<PathBuf>) -> Vec<PathBuf> {
    let whole = |dir: PathBuf| {
        let tree = SHARED_TREES.iter().find(|tree| dir.starts_with(tree));
        tree.map(PathBuf::from).unwrap_or(dir)
    };
    let mut dirs: Vec<PathBuf> = dirs
        .into_iter()
        .map(whole)
        .filter(|dir| !dir.starts_with("/usr"))
        .collect();
    // A directory sorts before its contents.
    dirs.sort();
    let mut visible: Vec<PathBuf> = Vec::new();
    for dir in dirs {
        if !visible.iter().any(|outer| dir.starts_with(outer)) {
            visible.push(dir);
        }
    }
    visible
}

/// Returns `true` if `dir` holds more than an interpreter: a home, or a system directory.
fn is_broad(dir: &Path) -> bool {
    BROAD.iter().any(|broad| dir == Path::new(broad))
        || dir.parent() == Some(Path::new("/home"))
        || dir.file_name() == Some(OsStr::new(".local"))
}

#[cfg(test)]
mod tests;
