//! The part of the file system shown to an interpreter while it is probed, determined without running it.
//!
//! An interpreter's answer decides what later guests are shown, and it may be a guest's work. So it is shown,
//! and can claim, only what its own links, its `pyvenv.cfg` and the `.pth` files of its packages lead to.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use super::error::{Error, ProbeError};
use super::path::{Link, SYSTEM, follow, in_resolved_directory, is_broad, is_elf, opened, visible};
use crate::trust::{Accepted, Digest};

/// Maximum length of a `pyvenv.cfg` or `.pth` file that is read.
const MAX_TEXT: u64 = 64 * 1024;

/// Maximum number of directories added by `.pth` files.
const MAX_ADDED: usize = 64;

/// Name prefixes of programs that come with a standard library. Others that lead to a Python are stand-ins.
const PYTHONS: &[&str] = &["python", "pypy", "graalpy"];

/// The directories and files shown, with the links by which the program is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) shown: Vec<PathBuf>,
    pub(super) links: Vec<Link>,
}

impl View {
    /// Determines the view of a program, which lies in a resolved directory.
    ///
    /// # Errors
    /// If the program is installed in a directory that holds much else.
    pub(super) fn of(program: &Path) -> Result<Self, Error> {
        let (links, end) = follow(program);
        let names = std::iter::once(program).chain(links.iter().map(|link| link.path.as_path()));
        let mut shown = Vec::new();
        for environment in names.filter_map(environment) {
            shown.push(narrow(program, environment.directory)?);
            shown.extend(environment.home);
        }
        match installation(&end).filter(|_| is_elf(&end) && is_python(&end)) {
            Some(root) => shown.push(narrow(program, root)?),
            None => shown.extend(stand_in(&end)),
        }
        Ok(Self::new(shown, links))
    }

    /// Adds directories.
    pub(super) fn with(self, more: Vec<PathBuf>) -> Self {
        Self::new([self.shown, more].concat(), self.links)
    }

    fn new(shown: Vec<PathBuf>, links: Vec<Link>) -> Self {
        let shown = visible(shown);
        let links = links
            .into_iter()
            .filter(|link| !lies_in(&link.path, &shown))
            .collect();
        Self { shown, links }
    }

    /// Returns `true` if a path is visible, and may thus be claimed as a part of the interpreter.
    pub(super) fn shows(&self, path: &Path) -> bool {
        lies_in(path, &self.shown)
    }

    /// Returns the directories that the `.pth` files of these site directories add to the search path and
    /// that are not shown yet.
    ///
    /// # Errors
    /// If a program may have written a file that adds a directory which that program could not write.
    pub(super) fn added(&self, sites: &[PathBuf], accepted: &Accepted) -> Result<Vec<PathBuf>, ProbeError> {
        let mut added = Vec::new();
        let sites = sites.iter().filter(|site| self.shows(site));
        for file in sites.flat_map(|site| path_files(site)) {
            let Some(content) = content(&file) else { continue };
            let mut named = named_in(&file, &String::from_utf8_lossy(&content));
            named.retain(|path| !self.shows(path) && !is_private(path, &self.shown));
            check_accepted(&file, &content, &named, accepted)?;
            added.extend(named);
        }
        added.sort();
        added.dedup();
        added.truncate(MAX_ADDED);
        Ok(added)
    }

    /// Returns the `.pth` files in the usual site directories of the shown trees.
    pub(super) fn path_files(&self) -> Vec<PathBuf> {
        self.shown
            .iter()
            .flat_map(|prefix| path_files_of(prefix))
            .collect()
    }
}

/// Rejects a `.pth` file that a program may have written and that adds directories from elsewhere.
fn check_accepted(
    file: &Path,
    content: &[u8],
    named: &[PathBuf],
    accepted: &Accepted,
) -> Result<(), ProbeError> {
    if named.is_empty() {
        return Ok(());
    }
    let written = accepted.written(file, &Digest::of(content));
    let Some(tree) = written.map_err(ProbeError::Unknown)? else {
        return Ok(());
    };
    // Whoever could write it could write there.
    let reach = accepted.reach(file).map_err(ProbeError::Unknown)?;
    let reach = reach.and_then(|whole| whole.canonicalize().ok());
    let is_beyond = |added: &&PathBuf| !reach.as_ref().is_some_and(|whole| added.starts_with(whole));
    match named.iter().find(is_beyond) {
        None => Ok(()),
        Some(added) => Err(ProbeError::Planted {
            file: file.to_owned(),
            added: added.clone(),
            tree,
        }),
    }
}

/// A virtual environment, recognized by its files.
struct Environment {
    directory: PathBuf,
    /// Installation of the interpreter that created it.
    home: Option<PathBuf>,
}

/// Returns the virtual environment that a program of this path belongs to.
fn environment(name: &Path) -> Option<Environment> {
    let directory = name.parent()?.parent()?.to_owned();
    let text = text(&directory.join("pyvenv.cfg"))?;
    let home = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "home").then(|| PathBuf::from(value.trim()))
    });
    Some(Environment {
        home: home.and_then(|home| base(&home)),
        directory,
    })
}

/// Returns the installation whose programs lie in `home`, if there is a Python among them.
fn base(home: &Path) -> Option<PathBuf> {
    let program = ["python3", "python"]
        .iter()
        .map(|name| in_resolved_directory(&home.join(name)))
        .find(|program| home.is_absolute() && is_elf(program))?;
    let end = follow(&program).1;
    // A home may consist of links: the library lies where they lead.
    installation(&end).filter(|root| is_python(&end) && !is_broad(root))
}

/// Returns the files that a stand-in needs to find its Python.
fn stand_in(program: &Path) -> Vec<PathBuf> {
    let root = match program.parent() {
        Some(shims) if shims.ends_with("shims") => shims.parent().map(Path::to_owned),
        _ => installation(program),
    };
    let root = root.filter(|root| !is_broad(root));
    std::iter::once(program.to_owned()).chain(root).collect()
}

/// Rejects a directory that holds more than an interpreter.
fn narrow(program: &Path, directory: PathBuf) -> Result<PathBuf, Error> {
    if is_broad(&directory) {
        return Err(Error::Broad {
            path: program.to_owned(),
            prefix: directory,
        });
    }
    Ok(directory)
}

/// Returns the directory that a program `…/bin/python3` is installed in.
pub(super) fn installation(program: &Path) -> Option<PathBuf> {
    let dir = program.parent()?;
    let root = if dir.file_name() == Some(OsStr::new("bin")) {
        dir.parent()?
    } else {
        dir
    };
    // A `/bin` that is not a link to `/usr/bin` is shown like `/usr`.
    Some(if root == Path::new("/") {
        PathBuf::from("/usr")
    } else {
        root.to_owned()
    })
}

fn is_python(program: &Path) -> bool {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    PYTHONS.iter().any(|python| name.starts_with(python))
}

/// Returns `true` if a path lies in one of these directories or in a system directory.
pub(super) fn lies_in(path: &Path, shown: &[PathBuf]) -> bool {
    let system = SYSTEM.iter().map(Path::new);
    let mut all = system.chain(shown.iter().map(PathBuf::as_path));
    let dots = path.components().any(|part| part == Component::ParentDir);
    !dots && all.any(|directory| path.starts_with(directory))
}

/// Returns the `.pth` files in the usual site directories of an installation.
pub(super) fn path_files_of(prefix: &Path) -> Vec<PathBuf> {
    let libraries = ["lib", "lib64"].into_iter().map(|name| prefix.join(name));
    let versions = libraries.flat_map(|library| entries(&library));
    let versions = versions.filter(|version| is_python(version));
    versions
        .flat_map(|version| path_files(&version.join("site-packages")))
        .collect()
}

fn path_files(site: &Path) -> Vec<PathBuf> {
    let mut files = entries(site);
    files.retain(|path| path.extension() == Some(OsStr::new("pth")));
    files
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns the resolved directories that a `.pth` file names.
fn named_in(file: &Path, text: &str) -> Vec<PathBuf> {
    let site = file.parent().unwrap_or(Path::new("/"));
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#') && !is_code(line))
        .filter_map(|line| site.join(line.trim_end()).canonicalize().ok())
        .collect()
}

/// Returns `true` for a line that `site` executes: its effects stay in the fence and add nothing here.
fn is_code(line: &str) -> bool {
    line.starts_with("import ") || line.starts_with("import\t")
}

/// Returns `true` for a path where no package lies: of the system, or in a hidden directory. Hidden
/// directories that the interpreter itself lies in do not count.
fn is_private(path: &Path, shown: &[PathBuf]) -> bool {
    const KEPT: &[&str] = &["/proc", "/sys", "/dev", "/run", "/etc", "/var", "/boot"];
    let hidden = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
    let common = |other: &PathBuf| {
        let pairs = std::iter::zip(path.components(), other.components());
        pairs.take_while(|(one, other)| one == other).count()
    };
    let common = shown.iter().map(common).max().unwrap_or_default();
    is_broad(path)
        || KEPT.iter().any(|kept| path.starts_with(kept))
        || path.components().skip(common).any(hidden)
}

fn text(path: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&content(path)?).into_owned())
}

fn content(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    opened(path)?.take(MAX_TEXT).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
