//! A host directory that guests work in: its protected entries, and their enforcement.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::layout::{NOBODY, effective_uid};

use crate::files::REPOSITORY;

/// Maximum number of entries with a rule of their own, and maximum total length of their paths: a launcher
/// gets them all in one packet.
const MAX_RULES: usize = 256;
const MAX_PATHS: usize = 32 << 10;

/// Files that git reads in a bare repository, and programs that it runs from there.
const OF_A_REPOSITORY: &[&str] = &[
    "HEAD",
    "config",
    "config.worktree",
    "hooks",
    "info",
    "objects",
    "refs",
    "packed-refs",
    "modules",
    "worktrees",
    "commondir",
];

/// A host directory that guests work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workspace {
    pub(crate) path: PathBuf,
    /// Names in it that guests may read but not write: host programs would execute them.
    pub(crate) protected: Vec<String>,
}

/// The directories and regular files directly in a workspace, without links.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) protected: Vec<PathBuf>,
    /// Writable entries; as many as there can be rules for.
    pub(crate) open: Vec<PathBuf>,
}

impl Workspace {
    pub(crate) fn entries(&self) -> Entries {
        let mut found = Entries::default();
        let mut left = MAX_PATHS;
        let is_repository = self.is_repository();
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let real = |kind: fs::FileType| kind.is_dir() || kind.is_file();
            if !entry.file_type().is_ok_and(real) {
                continue;
            }
            let name = entry.file_name();
            let of_repository = || OF_A_REPOSITORY.iter().any(|part| name.eq_ignore_ascii_case(part));
            if self.protected.iter().any(|protected| bears(&name, protected))
                || (is_repository && of_repository())
            {
                found.protected.push(entry.path());
                continue;
            }
            let path = entry.path();
            if let (true, Some(rest)) = (
                found.open.len() < MAX_RULES,
                left.checked_sub(path.as_os_str().len()),
            ) {
                left = rest;
                found.open.push(path);
            }
        }
        found
    }

    /// Returns `true` if git takes the directory itself for a repository.
    fn is_repository(&self) -> bool {
        let is_there = |mark: &&str| self.path.join(mark).symlink_metadata().is_ok();
        REPOSITORY.iter().all(is_there)
    }

    /// Returns the warnings for code that runs without a cell, as the user `guest` if given.
    pub(super) fn warnings(&self, guest: Option<u32>) -> Vec<String> {
        let path = self.path.display();
        let mut told = vec![format!(
            "code sees the workspace at {path}; there is no /workspace here"
        )];
        told.extend(guest.and_then(|guest| {
            let lacking = self.lacking(guest);
            (!lacking.is_empty()).then(|| {
                format!(
                    "code runs as the user {guest} here; in the workspace it may not: {}; give the workspace to that \
                     user (chown), or run Ringfence as its owner",
                    lacking.join(", ")
                )
            })
        }));
        if let Some(name) = self.entries().protected.first().and_then(|path| path.file_name()) {
            told.push(format!(
                "code changes what is in the workspace, but adds and removes nothing in its top directory: that holds \
                 `{}`, which is protected, and without namespaces there is no other way to keep it",
                name.display()
            ));
        }
        told
    }

    /// Returns the actions that a user's permission bits do not allow.
    fn lacking(&self, user: u32) -> Vec<&'static str> {
        let may = |path: &Path, wanted| {
            fs::metadata(path).is_ok_and(|found| rights(&found, user) & wanted == wanted)
        };
        let mut lacking = Vec::new();
        if !may(&self.path, 0o5) {
            lacking.push("read");
        }
        if !may(&self.path, 0o3) {
            lacking.push("write");
        }
        if !self.path.ancestors().skip(1).all(|above| may(above, 0o1)) {
            lacking.push("use absolute paths");
        }
        lacking
    }
}

/// Returns `true` if a name equals a protected one, or ends like one that begins with a star.
fn bears(name: &OsStr, protected: &str) -> bool {
    let Some(end) = protected.strip_prefix('*') else {
        return name.eq_ignore_ascii_case(protected);
    };
    let (name, end) = (name.as_encoded_bytes(), end.as_bytes());
    name.len() >= end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end)
}

/// Returns the permission bits for a user whose group id equals the user id.
pub(crate) fn rights(found: &Metadata, user: u32) -> u32 {
    let shift = match (found.uid() == user, found.gid() == user) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    found.mode() >> shift & 0o7
}

/// Returns the owner that directories need so that guests can write in them. `None`: our own user.
///
/// A root that may not mount has no cells; its guests become `nobody`, if it may chown and setuid.
pub fn owner_for_guests() -> Option<u32> {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const NEEDED: u64 = CAP_CHOWN | CAP_SETUID;
    const CAP_CHOWN: u64 = 1;
    const CAP_SETUID: u64 = 1 << 7;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    let given = effective_uid() == Some(0) && effective & (CAP_SYS_ADMIN | NEEDED) == NEEDED;
    given.then_some(NOBODY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn workspace() -> (tempfile::TempDir, Workspace) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let protected = [".git", ".envrc", "*.pth"].map(str::to_owned).into();
        (dir, Workspace { path, protected })
    }

    #[test]
    fn links_are_no_entries() {
        let (_dir, workspace) = workspace();
        for name in ["src", ".GIT"] {
            fs::create_dir(workspace.path.join(name)).unwrap();
        }
        for name in ["a", "b.Pth"] {
            fs::write(workspace.path.join(name), "").unwrap();
        }
        symlink("/etc", workspace.path.join("link")).unwrap();
        symlink("/etc/passwd", workspace.path.join(".envrc")).unwrap();
        let mut found = workspace.entries();
        found.open.sort();
        found.protected.sort();
        assert_eq!(
            found.protected,
            [".GIT", "b.Pth"].map(|name| workspace.path.join(name))
        );
        assert_eq!(found.open, [workspace.path.join("a"), workspace.path.join("src")]);
    }

    #[test]
    fn what_a_user_may_not_do_is_said() {
        let (dir, workspace) = workspace();
        let check = |mode: u32, above: u32, expected: &[&str]| {
            fs::set_permissions(&workspace.path, Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(dir.path(), Permissions::from_mode(above)).unwrap();
            assert_eq!(workspace.lacking(4_000_000), expected, "{mode:o} {above:o}");
            fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        };
        check(0o777, 0o755, &[]);
        check(0o755, 0o755, &["write"]);
        check(0o700, 0o755, &["read", "write"]);
        check(0o777, 0o700, &["use absolute paths"]);
    }
}
