//! Paths of programs: links, system directories, and those that the fence must show.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::open_flags::O_NONBLOCK;

/// A symbolic link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub path: PathBuf,
    pub target: PathBuf,
}

/// Trees whose programs use libraries of their neighbours: shown whole or not at all.
const SHARED_TREES: &[&str] = &["/nix/store", "/gnu/store", "/home/linuxbrew/.linuxbrew"];

/// System directories, which the fence shows; symbolic links on a merged-/usr system.
pub(super) const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32"];

/// Directories that hold more than an interpreter, and which the fence must not show.
const BROAD: &[&str] = &[
    "/", "/root", "/home", "/var", "/etc", "/tmp", "/run", "/opt", "/mnt", "/srv", "/proc", "/dev",
];

/// Maximum number of links followed; the kernel's own limit.
const MAX_LINKS: usize = 40;

pub(super) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

pub(super) fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    opened(path).is_some_and(|mut file| file.read_exact(&mut magic).is_ok()) && magic == *b"\x7fELF"
}

/// Opens a regular file without blocking: a FIFO without a writer may be in its place.
pub(super) fn opened(path: &Path) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)
        .ok()?;
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

/// Returns the links from `path` to its target, and the target. Each link lies in a resolved directory; where
/// one leads through linked directories, a direct link is synthesized.
pub(super) fn follow(path: &Path) -> (Vec<Link>, PathBuf) {
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
pub(super) fn in_resolved_directory(path: &Path) -> PathBuf {
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
pub(super) fn visible(dirs: Vec<PathBuf>) -> Vec<PathBuf> {
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
pub(super) fn is_broad(dir: &Path) -> bool {
    BROAD.iter().any(|broad| dir == Path::new(broad))
        || dir.parent() == Some(Path::new("/home"))
        || dir.file_name() == Some(OsStr::new(".local"))
}
