//! Rejects write access to the code of MCP servers that run without a fence.
//!
//! Read-only mounts do not help here: the files that a program on the host executes (modules beside a script,
//! `node_modules` above it, site-packages) are not known from its command.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use ringfence_policy::{HostServer, Trusted};

use super::conflict::Conflict;
use super::identity::{holds, identity, look};

/// Maximum number of entries examined in search of another name of a server's file.
const MAX_ENTRIES: usize = 50_000;

/// Checks that a program that writes to a tree changes no code of a server on the host.
///
/// # Errors
/// If it could.
pub fn check_servers(tree: &Path, trusted: &Trusted) -> Result<(), Conflict> {
    trusted.servers.iter().try_for_each(|server| {
        if let Some(path) = reached(tree, server) {
            return Err(Conflict::Server {
                tree: tree.to_owned(),
                server: server.name.clone(),
                path: path.to_owned(),
            });
        }
        if let Some(path) = &server.unsearched {
            return Err(Conflict::ServerUnsearched {
                tree: tree.to_owned(),
                server: server.name.clone(),
                path: path.clone(),
            });
        }
        server.code.iter().try_for_each(|path| {
            let other = match look(path) {
                Some(found) if found.is_file() && found.nlink() > 1 => other_name(tree, path, &found),
                _ => OtherName::None,
            };
            let other = match other {
                OtherName::None => return Ok(()),
                OtherName::At(other) => Some(other),
                OtherName::Unknown => None,
            };
            Err(Conflict::ServerLinked {
                tree: tree.to_owned(),
                server: server.name.clone(),
                path: path.clone(),
                other,
            })
        })
    })
}

/// Returns the path of a server that lies in a tree or around it.
fn reached<'a>(tree: &Path, server: &'a HostServer) -> Option<&'a Path> {
    let inside = |path: &&PathBuf| path.starts_with(tree) || holds(tree, path);
    let around = |path: &&PathBuf| tree.starts_with(path) || holds(path, tree);
    // Data excuses only the code around it, and not the code of another directory in it.
    let is_data = |code: &PathBuf| {
        let within =
            |data: &&PathBuf| around(data) && *data != code && (data.starts_with(code) || holds(code, data));
        server.data.iter().any(|data| within(&data))
    };
    let mut all = server.code.iter().chain(&server.entries);
    let found = all.find(inside);
    let found = found.or_else(|| server.code.iter().find(|path| around(path) && !is_data(path)));
    found.map(PathBuf::as_path)
}

/// Another hard link of a file.
#[derive(Debug, PartialEq, Eq)]
enum OtherName {
    None,
    At(PathBuf),
    /// The tree cannot be listed, or has too many entries.
    Unknown,
}

/// Finds a hard link in a tree.
fn other_name(tree: &Path, path: &Path, file: &Metadata) -> OtherName {
    let directory = path.parent().unwrap_or(path);
    if !holds(directory, tree) && are_beside(directory, file) {
        return OtherName::None;
    }
    let mut left = MAX_ENTRIES;
    let mut todo = vec![tree.to_owned()];
    while let Some(directory) = todo.pop() {
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return OtherName::Unknown,
        };
        for entry in entries {
            let (Ok(entry), Some(rest)) = (entry, left.checked_sub(1)) else {
                return OtherName::Unknown;
            };
            left = rest;
            let is_it = || look(&entry.path()).is_some_and(|found| identity(&found) == identity(file));
            if entry.ino() == file.ino() && is_it() {
                return OtherName::At(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
        }
    }
    OtherName::None
}

/// Returns `true` if all names of a file lie in its directory or in `deps` in it, where Cargo keeps one.
fn are_beside(directory: &Path, file: &Metadata) -> bool {
    let names = [directory.to_owned(), directory.join("deps")].into_iter();
    let names = names.flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
    let names = names.filter(|entry| entry.ino() == file.ino());
    names.count() as u64 == file.nlink()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new() -> Self {
            let dir = Self(tempfile::tempdir().unwrap());
            for name in ["w/srv/lib", "w/data", "opt/srv/deps"] {
                fs::create_dir_all(dir.path(name)).unwrap();
            }
            fs::write(dir.path("opt/srv/run"), "").unwrap();
            dir
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn check(&self, tree: &str, lists: [&[&str]; 3]) -> Option<Conflict> {
            let [code, entries, data] =
                lists.map(|names| names.iter().map(|name| self.path(name)).collect::<Vec<_>>());
            let server = HostServer {
                name: "units".to_owned(),
                code,
                entries,
                data,
                unsearched: None,
            };
            let trusted = Trusted {
                servers: vec![server],
                ..Trusted::none()
            };
            check_servers(&self.path(tree), &trusted).err()
        }

        #[track_caller]
        fn refused(&self, tree: &str, lists: [&[&str]; 3], path: &str) {
            let expected = Conflict::Server {
                tree: self.path(tree),
                server: "units".to_owned(),
                path: self.path(path),
            };
            assert_eq!(self.check(tree, lists), Some(expected), "{tree} {lists:?}");
        }

        #[track_caller]
        fn allowed(&self, tree: &str, lists: [&[&str]; 3]) {
            assert_eq!(self.check(tree, lists), None, "{tree} {lists:?}");
        }
    }

    #[test]
    fn code_in_a_tree_or_around_it_is_refused() {
        let dir = Dir::new();
        for path in ["w", "w/srv", "w/srv/missing.py", "w/new/deep/missing"] {
            dir.refused("w", [&[path], &[], &[]], path);
        }
        dir.refused("w/srv", [&["w"], &[], &[]], "w");
        dir.refused("w/new", [&["w/new/x"], &[], &[]], "w/new/x");
        dir.allowed("w/data", [&["w/srv", "opt/srv/run"], &[], &[]]);
    }

    #[test]
    fn an_entry_matters_within_alone() {
        let dir = Dir::new();
        dir.refused("w", [&[], &["w/srv"], &[]], "w/srv");
        dir.allowed("w/srv", [&[], &["w"], &[]]);
    }

    #[test]
    fn data_is_exempt_from_the_code_around_it_alone() {
        let dir = Dir::new();
        dir.allowed("w/data", [&["w"], &[], &["w/data"]]);
        dir.refused("w/data", [&["w"], &[], &["w"]], "w");
        // A package beside a script of which the directory above is data.
        dir.refused("w/srv/lib", [&["w/srv"], &[], &["w"]], "w/srv");
        dir.refused("w", [&["w/srv"], &[], &["w"]], "w/srv");
        dir.refused("w/srv", [&["w"], &[], &["w/data"]], "w");
    }

    #[test]
    fn another_name_in_a_tree_is_refused() {
        let dir = Dir::new();
        let run = dir.path("opt/srv/run");
        fs::hard_link(&run, dir.path("opt/srv/deps/run-1")).unwrap();
        dir.allowed("w", [&["opt/srv/run"], &[], &[]]);
        // A tree below the directory of the file may hold the name that is known.
        let linked = |tree: &str| match dir.check(tree, [&["opt/srv/run"], &[], &[]]) {
            Some(Conflict::ServerLinked { other, .. }) => other,
            found => panic!("{found:?}"),
        };
        assert_eq!(linked("opt/srv/deps"), Some(dir.path("opt/srv/deps/run-1")));
        fs::hard_link(&run, dir.path("elsewhere")).unwrap();
        dir.allowed("w", [&["opt/srv/run"], &[], &[]]);
        fs::hard_link(&run, dir.path("w/data/alias")).unwrap();
        assert_eq!(linked("w"), Some(dir.path("w/data/alias")));
    }
}
