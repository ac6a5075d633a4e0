//! A host directory that guests work in: its protected entries, and their enforcement.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringfence_policy::Trusted;

use super::user::{NOBODY, effective_uid};
use crate::trust::{self, Acted, Conflict, Protection, git};

/// Maximum number of entries with a rule or mount of their own, and maximum of their cost: a launcher gets them
/// all in one message.
pub const MAX_RULES: usize = 256;
const MAX_COST: usize = 56 << 10;

/// A host directory that guests work in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub path: PathBuf,
    /// Names in it that guests may read but not write: host programs would execute them.
    pub protected: Vec<String>,
}

/// The entries of a workspace's top directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// Directories and regular files with a protected name, as many as can be mounted.
    pub protected: Vec<PathBuf>,
    /// Links and special files with a protected name.
    pub(crate) pinned: Vec<PathBuf>,
    /// Writable directories and regular files, as many as there can be rules for.
    pub open: Vec<PathBuf>,
    /// Set if nothing may be added to the top directory or removed from it.
    pub closed: Option<Closed>,
}

/// Cause for a read-only top directory of a workspace. Guests may change only its existing entries, which are
/// writable mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// The workspace is a git repository without a working tree, where git also obeys files that do not exist
    /// yet.
    Repository,
    /// More protected names than can be mounted, or one that is not valid UTF-8.
    Many(PathBuf),
    /// An entry leads to a path in it that does not exist yet.
    Awaits(PathBuf),
    /// A link or a special file with a protected name, where no mount can keep it.
    Pinned(PathBuf),
    /// An entry leads to the top directory itself, whose files are closed, too.
    Leads(PathBuf),
}

/// A workspace's entries, and the protection of the paths that they lead to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guarded {
    pub top: Entries,
    pub mounts: Vec<trust::ProtectedMount>,
}

impl Workspace {
    /// Determines the protection of the workspace.
    ///
    /// # Errors
    /// If a path in it cannot be protected.
    pub fn guarded(&self, trusted: &Trusted) -> Result<Guarded, Conflict> {
        let mut top = self.entries();
        let mut acted = Acted::find(&self.path, &top.pinned);
        acted.add_aliases(&self.path, &top.protected)?;
        let room = trust::MAX_COST + MAX_COST - top.cost();
        let Protection {
            mounts,
            links,
            awaits,
            leads,
        } = trust::protection(&self.path, trusted, &acted, room)?;
        top.closed = top.closed.or(awaits.map(Closed::Awaits));
        if let Some(entry) = leads {
            top.open.retain(|path| path.is_dir());
            top.closed = Some(Closed::Leads(entry));
        }
        let new: Vec<PathBuf> = links
            .into_iter()
            .filter(|link| !top.pinned.contains(link))
            .collect();
        top.pinned.extend(new);
        let is_protected = |mount: &trust::ProtectedMount| {
            let path = self.path.join(&mount.below);
            top.protected.iter().any(|protected| path.starts_with(protected))
        };
        let mounts = mounts.into_iter().filter(|mount| !is_protected(mount)).collect();
        Ok(Guarded { top, mounts })
    }

    pub(crate) fn entries(&self) -> Entries {
        let mut found = Entries::default();
        let is_repository = git::is_repository_at(&self.path);
        let (mut open, mut many) = (Capacity::new(), None);
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let (name, path) = (entry.file_name(), entry.path());
            let is_real = kind.is_dir() || kind.is_file();
            let is_part = || is_repository && git::PARTS.iter().any(|part| name.eq_ignore_ascii_case(part));
            if self.protected.iter().any(|protected| bears(&name, protected)) || is_part() {
                if path.to_str().is_none() {
                    many = Some(path);
                } else if is_real {
                    found.protected.push(path);
                } else {
                    found.pinned.push(path);
                }
            } else if is_real && open.takes(&path) {
                found.open.push(path);
            }
        }
        let mut room = Capacity::new();
        if !found
            .protected
            .iter()
            .chain(&found.pinned)
            .all(|path| room.takes(path))
        {
            many = found.protected.first().cloned();
            self.truncate(&mut found);
        }
        found.closed = is_repository
            .then_some(Closed::Repository)
            .or(many.map(Closed::Many));
        found
    }

    /// Keeps as many protected entries as can be examined. Exactly named ones take precedence.
    fn truncate(&self, found: &mut Entries) {
        let is_pattern = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            !self.protected.iter().any(|protected| name == protected.as_str())
        };
        for list in [&mut found.protected, &mut found.pinned] {
            list.sort_by_key(|path| (is_pattern(path), path.clone()));
            list.truncate(MAX_RULES);
        }
    }

    /// Returns the warnings for code that runs without a cell, as the user `guest` if given.
    pub(super) fn warnings(&self, top: &Entries, guest: Option<u32>) -> Vec<String> {
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
        if let (None, Some(name)) = (
            &top.closed,
            top.protected.first().and_then(|path| path.file_name()),
        ) {
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

impl Entries {
    /// Returns the cost of the entries with a mount of their own.
    fn cost(&self) -> usize {
        let cost = |paths: &[PathBuf]| paths.iter().map(|path| trust::cost(path)).sum::<usize>();
        let closed = cost(&self.open);
        closed
            .max(cost(&self.protected) + cost(&self.pinned))
            .min(MAX_COST)
    }

    /// Closes the top directory where links and special files cannot be kept by mounts.
    pub fn without_pins(mut self) -> Self {
        let pinned = self.pinned.first().cloned().map(Closed::Pinned);
        self.closed = self.closed.or(pinned);
        self
    }

    /// Returns the warning for a closed top directory.
    pub fn warning(&self) -> Option<String> {
        let closed = self.closed.as_ref()?;
        Some(format!(
            "code changes what is in the workspace, but adds and removes nothing in its top directory: {closed}"
        ))
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository => f.write_str(
                "that is a git repository without a working tree (`HEAD`, `objects`, `refs` or `commondir`); if it is \
                 none of yours, remove its `HEAD`",
            ),
            Self::Many(path) => write!(
                f,
                "that holds more than {MAX_RULES} protected names, or such with control characters, as `{}`; remove \
                 those that you do not need",
                path.display()
            ),
            Self::Awaits(path) => write!(
                f,
                "`{}` names a path there that does not exist; create it, or remove what names it",
                path.display()
            ),
            Self::Pinned(path) => write!(
                f,
                "`{}` is protected and no plain file or directory; replace it by one",
                path.display()
            ),
            Self::Leads(path) => write!(
                f,
                "`{}` leads to that directory, or above it, where programs of the host execute or obey files, which are \
                 read-only, too; remove it",
                path.display()
            ),
        }
    }
}

/// Space for entries in a launcher's message.
struct Capacity {
    rules: usize,
    cost: usize,
}

impl Capacity {
    const fn new() -> Self {
        Self {
            rules: MAX_RULES,
            cost: MAX_COST,
        }
    }

    /// Takes an entry in, if there is room and its path is text, as messages are.
    fn takes(&mut self, path: &Path) -> bool {
        let left = (
            self.rules.checked_sub(1),
            self.cost.checked_sub(trust::cost(path)),
        );
        let (Some(rules), Some(cost), Some(_)) = (left.0, left.1, path.to_str()) else {
            return false;
        };
        *self = Self { rules, cost };
        true
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
pub fn rights(found: &Metadata, user: u32) -> u32 {
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
        assert_eq!(found.pinned, [workspace.path.join(".envrc")]);
        assert_eq!(found.closed, None);
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
