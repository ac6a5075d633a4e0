//! Manages the host directories for output files of reused containers, one per scope and conversation.
//!
//! A directory outlives its containers, so that callers can read the files afterwards. It is removed a week
//! after its last use; beyond a limit, the oldest of the scope that has the most is removed earlier. One in
//! use stays.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringfence_exec::local::output_files::{self, CollectedFiles};
use ringfence_exec::local::{Destination, remove_tree};
use ringfence_policy::{Bytes, Request, Scope, SessionId};
use serde::Serialize;

/// Retention time after the last use.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Resolution of file times: they may lag behind the clock by this much.
const COARSE: Duration = Duration::from_millis(20);
/// Limit of directories; those in use are never removed.
const MOST: usize = 256;
/// Directory for the locks of directories in use. No scope's name begins with a dot.
const LOCKS: &str = ".in-use";

/// A request, with the host directory that gets its output files.
pub(super) struct Delivered<'a> {
    pub(super) request: &'a Request,
    pub(super) output_directory: Option<PathBuf>,
}

/// A request, with the destination of its output files.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) request: &'a Request,
    pub(super) destination: Option<&'a Destination>,
}

/// The output directories of one user of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outputs {
    base: PathBuf,
    /// Owner of the directories, if not our own user.
    owner: Option<u32>,
}

/// An open directory, locked against removal.
#[derive(Debug, Clone)]
pub struct OpenOutput {
    path: PathBuf,
    _lock: Arc<File>,
}

impl OpenOutput {
    /// Returns the canonical path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Outputs {
    /// Manages directories below `base`, which is private and created if necessary. They are owned by
    /// `owner`, if given.
    pub fn new(base: PathBuf, owner: Option<u32>) -> Self {
        Self { base, owner }
    }

    /// Returns the path of a conversation's directory, which may not exist yet.
    pub fn path(&self, scope: &Scope, session: Option<&SessionId>) -> PathBuf {
        let scope = scope.as_str();
        self.base.join(match session {
            // No scope's name contains a `+`.
            Some(session) => format!("{scope}+{}", session.as_str()),
            None => scope.to_owned(),
        })
    }

    /// Returns `true` if the path is an output directory of the scope.
    pub(super) fn holds(&self, path: &Path, scope: &Scope) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let conversation = name.and_then(|name| name.strip_prefix(scope.as_str()));
        let base = self.base.canonicalize();
        conversation.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
            && base.is_ok_and(|base| path.parent() == Some(&base))
    }

    /// Removes the directories of a scope.
    ///
    /// # Errors
    /// If they cannot be listed, or one is in use or cannot be removed.
    pub fn remove_of(&self, scope: &Scope) -> io::Result<()> {
        let entries = match fs::read_dir(&self.base) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let conversation = name.and_then(|name| name.strip_prefix(scope.as_str()));
            let is_its = conversation.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'));
            if is_its && !remove_unused(&path) {
                let why = format!("{} is in use, or has files of another user", path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
        }
        Ok(())
    }

    /// Opens a conversation's directory; creates it if necessary.
    ///
    /// # Errors
    /// If the directory cannot be created, or the base is open to others.
    pub fn open(&self, scope: &Scope, session: Option<&SessionId>) -> io::Result<OpenOutput> {
        private(&self.base)?;
        let path = self.path(scope, session);
        let lock = self.lock(&path)?;
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {
                if self.owner.is_some() {
                    chown(&path, self.owner, self.owner)?;
                }
                self.sweep();
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Only we create names here.
                File::open(&path)?.set_modified(SystemTime::now())?;
            }
            Err(error) => return Err(error),
        }
        Ok(OpenOutput {
            path: path.canonicalize()?,
            _lock: Arc::new(lock),
        })
    }

    /// Takes a shared lock on a directory.
    fn lock(&self, path: &Path) -> io::Result<File> {
        let locks = self.base.join(LOCKS);
        DirBuilder::new().recursive(true).mode(0o700).create(&locks)?;
        let place = lock_of(path);
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .mode(0o600)
                .open(&place)?;
            file.lock_shared()?;
            // A concurrent removal of the directory has removed the lock file, too.
            if is_at(&file, &place) {
                return Ok(file);
            }
        }
    }

    /// Removes expired directories; beyond the limit, the oldest of the scope that has the most. Failures are
    /// retried next time.
    fn sweep(&self) {
        let found = fs::read_dir(&self.base).into_iter().flatten().flatten();
        let mut scopes: BTreeMap<String, Vec<(SystemTime, PathBuf)>> = BTreeMap::new();
        for entry in found {
            let name = entry.file_name().to_string_lossy().into_owned();
            let modified = entry.metadata().and_then(|found| found.modified());
            if let (false, Ok(modified)) = (name == LOCKS, modified) {
                let scope = name.split('+').next().unwrap_or_default();
                let own = scopes.entry(scope.to_owned()).or_default();
                own.push((modified, entry.path()));
            }
        }
        let is_old = |time: &SystemTime| time.elapsed().is_ok_and(|age| age > KEPT);
        for own in scopes.values_mut() {
            // Oldest last.
            own.sort_by(|one, other| other.cmp(one));
            own.retain(|(time, path)| !is_old(time) || !remove_unused(path));
        }
        let mut surplus = scopes.values().map(Vec::len).sum::<usize>().saturating_sub(MOST);
        // Directories in use count for their scope, but cannot be removed.
        let mut left: Vec<(usize, Vec<(SystemTime, PathBuf)>)> =
            scopes.into_values().map(|own| (own.len(), own)).collect();
        while surplus > 0 {
            left.retain(|(_, own)| !own.is_empty());
            let oldest = |own: &[(SystemTime, PathBuf)]| own.last().map(|(time, _)| Reverse(*time));
            let most = left.iter_mut().max_by_key(|(count, own)| (*count, oldest(own)));
            let Some((count, own)) = most else { return };
            let Some((_, path)) = own.pop() else { return };
            if remove_unused(&path) {
                *count -= 1;
                surplus -= 1;
            }
        }
    }
}

/// Returns the path of a directory's lock file.
fn lock_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    path.with_file_name(LOCKS).join(name)
}

/// Removes a directory unless it is in use. Returns `false` if it is, or cannot be removed.
fn remove_unused(path: &Path) -> bool {
    let place = lock_of(path);
    match File::open(&place) {
        Ok(file) => {
            let unused = !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if unused && is_at(&file, &place) {
                remove_tree(path.to_path_buf());
                if path.exists() {
                    return false;
                }
                let _ = fs::remove_file(&place);
            }
            unused
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Created by a version without locks: no process holds one.
            remove_tree(path.to_path_buf());
            !path.exists()
        }
        Err(_) => false,
    }
}

/// Returns `true` if an open file is the one at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |one: Metadata, other: Metadata| (one.dev(), one.ino()) == (other.dev(), other.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(one), Ok(other)) => same(one, other),
        _ => false,
    }
}

/// Lists the files that were written to such a directory since.
pub(super) fn left(directory: &Path, since: SystemTime, limit: u64) -> CollectedFiles {
    let mut left = output_files::collect_from(output_files::open_directory(directory), None, limit);
    left.files
        .retain(|file| is_new(&directory.join(&file.path), since));
    left
}

/// Returns `true` if a file was written since. Does not follow symbolic links.
fn is_new(path: &Path, since: SystemTime) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified + COARSE >= since)
}

/// Formats the message for a program that was killed for exceeding the disk limit.
pub(super) fn disk_limit_message(directory: &Path, limit: Bytes) -> String {
    format!(
        "killed: more than {limit} lie in {} or in the workspace; delete what is not needed\n",
        directory.display()
    )
}

/// Creates a directory of mode 0700; rejects one that belongs to or is open to other users.
fn private(base: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let found = fs::symlink_metadata(base)?;
    if is_ours(&found)? {
        return Ok(());
    }
    let why = format!("{} is open to others", base.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Returns `true` for a private directory of this process's user, who owns `/proc/self`.
fn is_ours(found: &Metadata) -> io::Result<bool> {
    let us = fs::metadata("/proc/self")?.uid();
    Ok(found.is_dir() && found.uid() == us && found.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn outputs() -> (tempfile::TempDir, Outputs) {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(dir.path().canonicalize().unwrap().join("output"), None);
        (dir, outputs)
    }

    fn path(outputs: &Outputs, scope: &Scope, session: Option<&SessionId>) -> PathBuf {
        outputs.open(scope, session).unwrap().path
    }

    fn age(path: &Path, days: u64) {
        let time = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
        File::open(path).unwrap().set_modified(time).unwrap();
    }

    #[test]
    fn each_scope_and_conversation_has_its_own() {
        let (_dir, outputs) = outputs();
        let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let session: SessionId = "s1".parse().unwrap();
        let all = [
            path(&outputs, &ann, None),
            path(&outputs, &ann, Some(&session)),
            path(&outputs, &bob, None),
            path(&outputs, &bob, Some(&session)),
        ];
        for (number, path) in all.iter().enumerate() {
            assert!(!all[..number].contains(path), "{}", path.display());
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o700);
        }
        for (path, own, other) in [
            (&all[0], &ann, &bob),
            (&all[1], &ann, &bob),
            (&all[2], &bob, &ann),
        ] {
            assert!(outputs.holds(path, own) && !outputs.holds(path, other));
            assert!(!outputs.holds(&path.join("below"), own));
        }
        fs::write(all[0].join("x"), "kept").unwrap();
        assert_eq!(path(&outputs, &ann, None), outputs.path(&ann, None));
        assert!(all[0].join("x").exists());
    }

    #[test]
    fn a_scopes_directories_go_once_they_are_not_in_use() {
        let (_dir, outputs) = outputs();
        let (ann, anna): (Scope, Scope) = ("ann".parse().unwrap(), "anna".parse().unwrap());
        outputs.remove_of(&ann).unwrap();
        let session: SessionId = "s1".parse().unwrap();
        let gone = path(&outputs, &ann, None);
        let kept = path(&outputs, &anna, Some(&session));
        let in_use = outputs.open(&ann, Some(&session)).unwrap();
        let error = outputs.remove_of(&ann).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        let used = in_use.path().to_owned();
        assert!(used.exists());
        drop(in_use);
        outputs.remove_of(&ann).unwrap();
        assert!(!gone.exists() && !used.exists() && kept.exists());
    }

    #[test]
    fn what_nobody_uses_goes_and_what_is_used_stays() {
        let (_dir, outputs) = outputs();
        let open = |name: &str| path(&outputs, &name.parse().unwrap(), None);
        let [old, used] = ["old", "used"].map(open);
        age(&old, 8);
        age(&used, 8);
        open("used");
        open("new");
        assert!(!old.exists() && used.exists());
        for number in 0..MOST {
            age(&open(&format!("n{number}")), 1);
        }
        assert_eq!(entries(&outputs), MOST);
        assert!(used.exists());
    }

    /// Counts the entries without the lock directory.
    fn entries(outputs: &Outputs) -> usize {
        fs::read_dir(&outputs.base).unwrap().count() - 1
    }

    #[test]
    fn who_has_the_most_makes_room_and_never_with_what_is_in_use() {
        let (_dir, outputs) = outputs();
        let (ann, bob): (Scope, Scope) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let few = path(&outputs, &ann, None);
        age(&few, 6);
        let session = |number: usize| format!("s{number}").parse::<SessionId>().unwrap();
        let in_use = outputs.open(&bob, Some(&session(0))).unwrap();
        age(in_use.path(), 9);
        for number in 1..2 * MOST {
            age(&path(&outputs, &bob, Some(&session(number))), 1);
        }
        assert_eq!(entries(&outputs), MOST);
        assert!(few.exists() && in_use.path().exists());
        let locks = fs::read_dir(outputs.base.join(LOCKS)).unwrap().count();
        assert_eq!(locks, MOST);
        drop(in_use);
        assert!(path(&outputs, &ann, Some(&session(1))).exists());
        assert!(few.exists() && !outputs.path(&bob, Some(&session(0))).exists());
    }

    #[test]
    fn where_all_are_in_use_nobody_is_taken_one() {
        let (_dir, outputs) = outputs();
        let scope = |number| format!("n{number}").parse::<Scope>().unwrap();
        let held: Vec<OpenOutput> = (0..MOST + 3)
            .map(|number| outputs.open(&scope(number), None).unwrap())
            .collect();
        assert!(held.iter().all(|output| output.path().exists()));
    }

    #[test]
    fn a_base_that_others_may_enter_is_refused() {
        let (dir, outputs) = outputs();
        let refused = |outputs: &Outputs| outputs.open(&Scope::local(), None).unwrap_err().kind();
        fs::create_dir(&outputs.base).unwrap();
        fs::set_permissions(&outputs.base, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(refused(&outputs), io::ErrorKind::PermissionDenied);
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&elsewhere, dir.path().join("link")).unwrap();
        let linked = Outputs::new(dir.path().join("link"), None);
        assert_eq!(refused(&linked), io::ErrorKind::PermissionDenied);
    }
}
