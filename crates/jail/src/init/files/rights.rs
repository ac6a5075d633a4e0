//! The rights with which a user's operation is performed: the user's.
//!
//! One thing is done for users that they could not do: what they make where root alone may write, as E2B's clients do with
//! `/tests` and `/logs`. No directory on the way there can be changed by anybody but root, so that nobody else's link or
//! directory can have led there.

use std::path::Path;

use super::directory::FileOwner;
use super::error::{At, FileError};
use super::operation::Operation;
use super::resolve::{Resolved, resolve};
use crate::sys;

/// Takes a user's rights, irrevocably, after the directories that the operation needs were made for the user. Returns the owner of the
/// file to write, if root must write it.
pub(super) fn take(operation: &Operation, user: FileOwner) -> Result<Option<FileOwner>, FileError> {
    if user.user != 0 {
        make_directories(operation, user)?;
        if let Operation::Write { path, .. } = operation
            && is_for_root_to_write(Path::new(path), user)
        {
            return Ok(Some(user));
        }
    }
    // The kernel may make a process dumpable that changes its user (proc_sys_fs(5), `suid_dumpable`): programs of that user could look into this one.
    let taken = sys::set_ids(user.user, user.group).and_then(|()| sys::set_undumpable());
    taken.at(Path::new("")).map(|()| None)
}

/// Makes the missing directories of an operation that root alone may make.
fn make_directories(operation: &Operation, user: FileOwner) -> Result<(), FileError> {
    let made = match operation {
        Operation::Write { path, .. } => {
            let path = Path::new(path);
            let parents = for_root_to_make(path, true).filter(|missing| !missing.has_parent());
            return parents.map_or(Ok(()), |missing| {
                missing.make_parents(Some(user)).at(path).map(drop)
            });
        }
        Operation::MakeDirectory { path } => Some(Path::new(path)),
        Operation::Move { to, .. } => Path::new(to).parent(),
        _ => None,
    };
    let Some(path) = made else { return Ok(()) };
    for_root_to_make(path, false).map_or(Ok(()), |missing| {
        missing.make_directories(Some(user)).at(path).map(drop)
    })
}

/// Returns a missing entry, if root alone can have led the path to it. Every other path is the user's own to follow.
fn for_root_to_make(path: &Path, through_last_link: bool) -> Option<Resolved> {
    let found = resolve(path).ok()?;
    let is_missing = found.found.is_none() && !found.is_behind_link(through_last_link);
    (is_missing && found.is_roots_alone).then_some(found)
}

/// Returns `true` for a file that is missing or the user's own, in a directory where root alone may make or replace it.
fn is_for_root_to_write(path: &Path, user: FileOwner) -> bool {
    resolve(path).is_ok_and(|entry| {
        let is_own = entry
            .found
            .as_ref()
            .is_none_or(|found| found.is_file() && std::os::unix::fs::MetadataExt::uid(found) == user.user);
        is_own && entry.is_roots_alone && entry.has_parent() && !entry.is_behind_link(true)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::io::{Seek, Write};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    use super::super::operate::perform;
    use super::super::{FileErrorKind, FileRange};
    use super::*;

    /// The user `nobody`.
    const USER: FileOwner = FileOwner {
        user: 65_534,
        group: 65_534,
    };

    /// Performs an operation as a user, in a thread: rights are a thread's.
    fn perform_as(user: FileOwner, operation: &Operation) -> Result<Vec<u8>, FileErrorKind> {
        let mut input = tempfile::tempfile().unwrap();
        input.write_all(b"new").unwrap();
        input.rewind().unwrap();
        let performed = std::thread::scope(|scope| {
            let performing = scope.spawn(move || {
                let mut out = Vec::new();
                let owner = take(operation, user)?;
                perform(operation, owner, &mut input, &mut out).map(|()| out)
            });
            performing.join().unwrap()
        });
        performed.map_err(|error| error.kind)
    }

    fn write(path: &Path) -> Operation {
        Operation::Write {
            path: path.display().to_string(),
            mode: None,
            size: None,
        }
    }

    fn make_directory(path: &Path) -> Operation {
        Operation::MakeDirectory {
            path: path.display().to_string(),
        }
    }

    #[test]
    fn no_link_leads_a_user_to_more_than_the_user_may() {
        let dir = tempfile::tempdir_in("/var").unwrap();
        let path = |name: &str| dir.path().join(name);
        let text = |name: &str| path(name).display().to_string();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        for name in ["precious", "secret", "useless"] {
            fs::write(path(name), "of root").unwrap();
        }
        fs::set_permissions(path("secret"), Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(path("home")).unwrap();
        for (name, target) in [("write", "../precious"), ("read", "../secret"), ("up", "..")] {
            symlink(target, path("home").join(name)).unwrap();
        }
        chown(path("home"), Some(USER.user), Some(USER.group)).unwrap();
        let whole = FileRange {
            offset: 0,
            length: None,
        };
        let read = Operation::Read {
            path: text("home/read"),
            range: whole,
        };
        let moved = |from: &str, to: &str| Operation::Move {
            from: text(from),
            to: text(to),
        };
        let operations = [
            write(&path("home/write")),
            write(&path("home/up/new")),
            write(&path("home/up/other/deep")),
            make_directory(&path("home/up/made")),
            read.clone(),
            moved("home/up/precious", "home/taken"),
            moved("home/write", "home/up/given"),
            Operation::Remove {
                path: text("home/up/useless"),
            },
        ];
        for operation in &operations {
            let denied = perform_as(USER, operation);
            assert_eq!(denied, Err(FileErrorKind::Denied), "{operation:?}");
        }
        assert_eq!(fs::read_to_string(path("precious")).unwrap(), "of root");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
        // Root itself may do all of it.
        let root = FileOwner { user: 0, group: 0 };
        for operation in &operations {
            perform_as(root, operation).unwrap();
        }
        assert!(perform_as(root, &read).unwrap().ends_with(b"of root"));
    }

    #[test]
    fn what_a_user_makes_where_root_alone_may_belongs_to_the_user() {
        let dir = tempfile::tempdir_in("/var").unwrap();
        let path = |name: &str| dir.path().join(name);
        let owner = |name: &str| fs::symlink_metadata(path(name)).unwrap().uid();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        for operation in [
            write(&path("file")),
            write(&path("file")),
            write(&path("a/b/file")),
        ] {
            perform_as(USER, &operation).unwrap();
        }
        perform_as(USER, &make_directory(&path("c/d"))).unwrap();
        let moved = Operation::Move {
            from: path("a/b/file").display().to_string(),
            to: path("e/f").display().to_string(),
        };
        perform_as(USER, &moved).unwrap();
        for name in ["file", "a", "a/b", "c", "c/d", "e", "e/f"] {
            assert_eq!(owner(name), USER.user, "{name}");
        }
        // What is root's stays root's, and so does what others cannot reach.
        File::create(path("of-root")).unwrap();
        fs::create_dir(path("closed")).unwrap();
        fs::set_permissions(path("closed"), Permissions::from_mode(0o700)).unwrap();
        for name in ["of-root", "closed/new", "closed/new/deep"] {
            let denied = perform_as(USER, &write(&path(name)));
            assert_eq!(denied, Err(FileErrorKind::Denied), "{name}");
        }
        assert_eq!(owner("of-root"), 0);
        assert_eq!(fs::read_dir(path("closed")).unwrap().count(), 0);
    }
}
