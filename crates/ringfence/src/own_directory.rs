//! Private directories of a user, whose ancestors nobody else can replace.
//!
//! Files in them are opened by their paths, and believed. Checking the directory alone would leave a race between check
//! and use: whoever may write to an ancestor can rename it away. So ancestors are checked, too, as sshd(8) does with
//! `StrictModes`. Decision 171 says why.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// Owner of files whose owner a user namespace does not map (`/proc/sys/kernel/overflowuid`).
const UNMAPPED: u32 = 65_534;

/// Maximum number of symbolic links on the way to a directory, as in the kernel.
const MAX_LINKS: usize = 40;

/// Mode of a directory in which only the owner of a file may remove it.
const STICKY: u32 = 0o1000;

/// An error of a directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    /// Somebody else can replace it, or write there.
    #[error("{0}")]
    Unsafe(String),
    /// It is not private, but nobody else can write there: it is root's, a link of the user's own, or others can enter it.
    #[error("{0}")]
    Unusable(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A user with its group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Makes a directory, with those above it, unless it is there.
pub(crate) fn make(directory: &Path, user: User) -> Result<(), DirectoryError> {
    match check(directory, user) {
        Err(DirectoryError::Io(error)) if error.kind() == ErrorKind::NotFound => {}
        checked => return checked,
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    // Somebody else may have made it first.
    check(directory, user)
}

/// Checks a directory like [`check`], and makes one that does not exist where another user could make it first.
pub(crate) fn claim(directory: &Path, user: User) -> Result<(), DirectoryError> {
    match check(directory, user) {
        Err(DirectoryError::Io(error)) if error.kind() == ErrorKind::NotFound => {}
        checked => return checked,
    }
    let absolute = std::path::absolute(directory)?;
    let nearest = absolute.ancestors().find_map(|ancestor| ancestor.metadata().ok());
    match nearest.is_some_and(|meta| is_written_by_others(&meta, user)) {
        true => make(directory, user),
        false => Ok(()),
    }
}

/// Checks that a directory is no link, the user's own and closed to others, and that nobody else can replace an ancestor.
pub(crate) fn check(directory: &Path, user: User) -> Result<(), DirectoryError> {
    if let Some(above) = std::path::absolute(directory)?.parent() {
        check_ancestors(above, user)?;
    }
    let meta = directory.symlink_metadata()?;
    if !is_trusted(&meta, user) {
        return Err(DirectoryError::Unsafe(format!(
            "it belongs to user {}",
            meta.uid()
        )));
    }
    if !meta.is_dir() {
        check_ancestors(&std::path::absolute(directory)?, user)?;
        return Err(DirectoryError::Unusable("it is not a directory".to_owned()));
    }
    let mode = meta.mode() & 0o777;
    if is_written_by_others(&meta, user) {
        return Err(DirectoryError::Unsafe(format!(
            "others may write to it (mode {mode:o})"
        )));
    }
    if meta.uid() != user.uid {
        return Err(DirectoryError::Unusable(format!(
            "it belongs to user {}",
            meta.uid()
        )));
    }
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(DirectoryError::Unusable(format!(
            "others may enter it (mode {mode:o})"
        ))),
    }
}

/// Returns `true` unless somebody else can replace a directory, which need not exist, or write to it.
pub(crate) fn is_safe(directory: &Path, user: User) -> bool {
    !matches!(check(directory, user), Err(DirectoryError::Unsafe(_)))
}

/// Returns `true` unless somebody else can replace an ancestor of a directory.
pub(crate) fn has_safe_ancestors(directory: &Path, user: User) -> bool {
    let above = directory.parent().unwrap_or(directory);
    !matches!(check_ancestors(above, user), Err(DirectoryError::Unsafe(_)))
}

/// Checks that only root and the user can replace `path`, an absolute one, and its ancestors. Symbolic links are followed.
/// What does not exist ends the check.
fn check_ancestors(path: &Path, user: User) -> Result<(), DirectoryError> {
    let mut current = PathBuf::from("/");
    let mut names: Vec<OsString> = reversed(path);
    let mut links = 0;
    check_ancestor(&current, &fs::metadata(&current)?, user)?;
    while let Some(name) = names.pop() {
        if name == ".." {
            current.pop();
            continue;
        }
        let next = current.join(name);
        let meta = match next.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        if !meta.is_symlink() {
            check_ancestor(&next, &meta, user)?;
            current = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::other("too many symbolic links").into());
        }
        if !is_trusted(&meta, user) {
            return Err(foreign(&next, &meta));
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            current = PathBuf::from("/");
        }
        names.extend(reversed(&target));
    }
    Ok(())
}

/// Checks that nobody else can replace the entries of a directory. In a sticky one only an entry's owner can.
fn check_ancestor(directory: &Path, meta: &Metadata, user: User) -> Result<(), DirectoryError> {
    if !is_trusted(meta, user) {
        return Err(foreign(directory, meta));
    }
    let mode = meta.mode();
    if is_written_by_others(meta, user) && mode & STICKY == 0 {
        let why = format!(
            "others may write to {}, through which it is reached (mode {:o}, without the sticky bit)",
            directory.display(),
            mode & 0o777
        );
        return Err(DirectoryError::Unsafe(why));
    }
    Ok(())
}

/// Returns `true` if others may write to a file. Many users have a group of their own, with the number of the user, which
/// may write where they may.
fn is_written_by_others(meta: &Metadata, user: User) -> bool {
    let (mode, group) = (meta.mode(), meta.gid());
    let is_own_group = [0, user.gid, meta.uid()].contains(&group) || is_unmapped(group);
    mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_own_group)
}

/// Returns `true` if root, the user, or the unmapped root of a user namespace owns a file.
fn is_trusted(meta: &Metadata, user: User) -> bool {
    let owner = meta.uid();
    owner == 0 || owner == user.uid || is_unmapped(owner)
}

/// Returns `true` for the number of users and groups that a user namespace does not map.
fn is_unmapped(id: u32) -> bool {
    id == UNMAPPED && !maps_all_users()
}

/// Returns `true` if every user of the machine has an id here, as outside of user namespaces.
fn maps_all_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

fn foreign(path: &Path, meta: &Metadata) -> DirectoryError {
    let (path, owner) = (path.display(), meta.uid());
    DirectoryError::Unsafe(format!(
        "{path}, through which it is reached, belongs to user {owner}"
    ))
}

fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn own() -> User {
        let meta = fs::metadata("/proc/self").unwrap();
        User {
            uid: meta.uid(),
            gid: meta.gid(),
        }
    }

    #[track_caller]
    fn refused(directory: &Path, why: &str) {
        let error = make(directory, own()).unwrap_err();
        assert!(matches!(error, DirectoryError::Unsafe(_)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_open_to_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("a");
        make(&ours, own()).unwrap();
        assert_eq!(ours.metadata().unwrap().mode() & 0o777, 0o700);
        set_mode(&ours, 0o755);
        let error = make(&ours, own()).unwrap_err();
        assert!(
            error.to_string().contains("others may enter it (mode 755)"),
            "{error}"
        );
        assert!(is_safe(&ours, own()));
        set_mode(&ours, 0o722);
        refused(&ours, "others may write to it");
    }

    #[test]
    fn a_directory_of_somebody_else_or_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink(dir.path(), &link).unwrap();
        let error = make(&link, own()).unwrap_err();
        assert!(error.to_string().contains("not a directory"), "{error}");
    }

    #[test]
    fn a_directory_that_others_can_replace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().join("above");
        let ours = above.join("a/b");
        make(&ours, own()).unwrap();
        set_mode(&above, 0o777);
        refused(&ours, "others may write to");
        refused(&above.join("new"), "others may write to");
        assert!(!above.join("new").exists());
        // There only the owner of a file removes it.
        set_mode(&above, 0o1777);
        make(&ours, own()).unwrap();
    }

    #[test]
    fn a_directory_is_made_early_only_where_others_could() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("a/b");
        claim(&ours, own()).unwrap();
        assert!(!dir.path().join("a").exists());
        set_mode(dir.path(), 0o1777);
        claim(&ours, own()).unwrap();
        assert!(ours.is_dir());
    }

    #[test]
    fn a_link_on_the_way_is_followed_and_checked() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        symlink("target/../target", dir.path().join("link")).unwrap();
        let ours = dir.path().join("link/a");
        make(&ours, own()).unwrap();
        set_mode(&target, 0o777);
        refused(&ours, "others may write to");
        symlink("round", dir.path().join("round")).unwrap();
        assert!(matches!(
            make(&dir.path().join("round/a"), own()).unwrap_err(),
            DirectoryError::Io(_)
        ));
    }

    #[test]
    fn what_another_user_owns_on_the_way_is_refused() {
        if own().uid != 0 {
            // Only root gives files away.
            assert_eq!(std::env::var_os("CI"), None, "skipped: it needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        chown(&theirs, Some(4343), Some(4343)).unwrap();
        refused(&theirs.join("a/b"), "belongs to user 4343");
        let link = dir.path().join("link");
        symlink("/tmp", &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4343), None).unwrap();
        refused(&link.join("a"), "belongs to user 4343");
        // Root's directories are as good as the user's own.
        let ours = dir.path().join("ours");
        fs::create_dir(&ours).unwrap();
        chown(&ours, Some(4343), Some(4343)).unwrap();
        set_mode(&ours, 0o700);
        set_mode(dir.path(), 0o755);
        check(&ours, User { uid: 4343, gid: 4343 }).unwrap();
    }
}
