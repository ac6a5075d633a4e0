//! Path resolution, component by component, with a list of the links on the way: some may be a guest's.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links followed; the kernel's own limit.
const MAX_LINKS: usize = 40;

/// A path without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Absolute target. Components that do not exist are kept as given.
    pub path: PathBuf,
    /// Links on the way, each by its own resolved path.
    pub links: Vec<PathBuf>,
    /// Set if the target exists.
    pub exists: bool,
}

/// The system's error for a missing file.
const ENOENT: i32 = 2;

impl Resolved {
    /// Returns the target.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn existing(self) -> io::Result<PathBuf> {
        match self.exists {
            true => Ok(self.path),
            false => Err(io::Error::from_raw_os_error(ENOENT)),
        }
    }
}

/// A component still to be resolved.
enum Step {
    Root,
    Up,
    Down(OsString),
}

/// Resolves a path; a relative one from the working directory.
///
/// # Errors
/// If a component cannot be examined, there are too many links, or `..` follows a component that does not
/// exist.
pub fn resolve(path: &Path) -> io::Result<Resolved> {
    let path = std::path::absolute(path)?;
    let mut steps = backwards(&path);
    let mut found = Resolved {
        path: PathBuf::from("/"),
        links: Vec::new(),
        exists: true,
    };
    while let Some(step) = steps.pop() {
        match step {
            Step::Root => found.path = PathBuf::from("/"),
            Step::Up if !found.exists => return Err(io::ErrorKind::NotFound.into()),
            Step::Up => drop(found.path.pop()),
            Step::Down(name) => {
                let next = found.path.join(name);
                match found.exists.then(|| next.symlink_metadata()) {
                    Some(Ok(meta)) if meta.is_symlink() && !is_open_alone(&next) => {
                        steps.extend(backwards(&next.read_link()?));
                        found.links.push(next);
                        if found.links.len() > MAX_LINKS {
                            return Err(io::Error::other("too many levels of symbolic links"));
                        }
                        continue;
                    }
                    Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Some(Err(_)) => found.exists = false,
                    Some(Ok(_)) | None => {}
                }
                found.path = next;
            }
        }
    }
    Ok(found)
}

/// Returns `true` for a descriptor of this process, by its resolved path.
pub(super) fn is_own_descriptor(path: &Path) -> bool {
    let own = format!("/proc/{}/fd", std::process::id());
    path.parent() == Some(Path::new(&own))
}

/// Returns `true` for a descriptor of this process whose file has no path: a pipe, or a removed file. The
/// text of the kernel's link leads nowhere.
fn is_open_alone(path: &Path) -> bool {
    is_own_descriptor(path)
        && path
            .read_link()
            .is_ok_and(|target| !target.is_absolute() || !target.exists())
}

/// Returns the components of a path, the last one first.
fn backwards(path: &Path) -> Vec<Step> {
    let step = |component| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_on_the_way_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/below")).unwrap();
        std::fs::write(root.join("real/file"), "").unwrap();
        symlink("real", root.join("one")).unwrap();
        symlink(root.join("one"), root.join("two")).unwrap();
        symlink("../../two/below", root.join("real/below/up")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        let check = |path: &str, expected: &str, links: &[&str]| {
            let found = resolve(&root.join(path)).unwrap();
            assert_eq!(found.path, root.join(expected), "{path}");
            let links: Vec<PathBuf> = links.iter().map(|link| root.join(link)).collect();
            assert_eq!(found.links, links, "{path}");
            assert_eq!(found.exists, found.path.exists(), "{path}");
        };
        check("real/below/..", "real", &[]);
        check("one/below", "real/below", &["one"]);
        check(
            "two/below/up",
            "real/below",
            &["two", "one", "real/below/up", "two", "one"],
        );
        check("one/new/x", "real/new/x", &["one"]);
        for path in ["circle", "real/file/below", "real/new/../below"] {
            assert!(resolve(&root.join(path)).is_err(), "{path}");
        }
    }
}
