//! Where programs in kept containers leave files for whoever called them: a directory for each scope and conversation.
//!
//! A directory outlives its containers, so that what a program names can be read afterwards. It goes after a week without a
//! call, and earlier where there are too many.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringfence_policy::{Bytes, Scope, SessionId};

use crate::local::harvest::{self, Harvest};
use crate::local::remove_tree;

/// How long one is kept without a call.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// How far the times of files may lie behind the clock.
const COARSE: Duration = Duration::from_millis(20);
/// How many there are at most.
const MOST: usize = 256;

/// The directories of one user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outputs {
    base: PathBuf,
    /// Whose they are inside, if not ours.
    owner: Option<u32>,
}

impl Outputs {
    /// Directories below `base`, which is private and made if need be; they are given to `owner`, if not to us.
    pub fn new(base: PathBuf, owner: Option<u32>) -> Self {
        Self { base, owner }
    }

    /// The directory of a scope's conversation, which need not exist.
    pub fn path(&self, scope: &Scope, session: Option<&SessionId>) -> PathBuf {
        let scope = scope.as_str();
        self.base.join(match session {
            // No scope's name holds a `+`.
            Some(session) => format!("{scope}+{}", session.as_str()),
            None => scope.to_owned(),
        })
    }

    /// Whether a path is that of one of a scope's.
    pub(super) fn holds(&self, path: &Path, scope: &Scope) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let conversation = name.and_then(|name| name.strip_prefix(scope.as_str()));
        let base = self.base.canonicalize();
        conversation.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
            && base.is_ok_and(|base| path.parent() == Some(&base))
    }

    /// The same, made if need be, and without links.
    ///
    /// # Errors
    /// If it cannot be made, or the base is open to others.
    pub fn open(&self, scope: &Scope, session: Option<&SessionId>) -> io::Result<PathBuf> {
        private(&self.base)?;
        let path = self.path(scope, session);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {
                if self.owner.is_some() {
                    chown(&path, self.owner, self.owner)?;
                }
                self.sweep(&path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Nobody but us makes names here.
                File::open(&path)?.set_modified(SystemTime::now())?;
            }
            Err(error) => return Err(error),
        }
        path.canonicalize()
    }

    /// Removes what has not been used for long, and the oldest of too many. What cannot be removed is tried again.
    fn sweep(&self, new: &Path) {
        let found = fs::read_dir(&self.base).into_iter().flatten().flatten();
        let mut all: Vec<(SystemTime, PathBuf)> = found
            .filter(|entry| entry.path() != new)
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        all.sort();
        let surplus = (all.len() + 1).saturating_sub(MOST);
        let is_old = |time: &SystemTime| time.elapsed().is_ok_and(|age| age > KEPT);
        for (number, (time, path)) in all.into_iter().enumerate() {
            if number < surplus || is_old(&time) {
                remove_tree(path);
            }
        }
    }
}

/// What programs have left in such a directory since.
pub(super) fn left(directory: &Path, since: SystemTime, limit: u64) -> Harvest {
    let mut left = harvest::collect_from(harvest::open_directory(directory), None, limit);
    left.files
        .retain(|file| is_new(&directory.join(&file.path), since));
    left
}

/// Whether a file was written since. A link tells of itself alone.
fn is_new(path: &Path, since: SystemTime) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified + COARSE >= since)
}

/// What is said of a program that was killed because too much lies in such a directory.
pub(super) fn overfilled(directory: &Path, limit: Bytes) -> String {
    format!(
        "killed: more than {limit} lie in {} or in the workspace; delete what is not needed\n",
        directory.display()
    )
}

/// Makes a directory that is ours alone.
fn private(base: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    let found = fs::symlink_metadata(base)?;
    if is_ours(&found)? {
        return Ok(());
    }
    let why = format!("{} is open to others", base.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// `/proc/self` belongs to the user that we are.
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
            outputs.open(&ann, None).unwrap(),
            outputs.open(&ann, Some(&session)).unwrap(),
            outputs.open(&bob, None).unwrap(),
            outputs.open(&bob, Some(&session)).unwrap(),
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
        assert_eq!(outputs.open(&ann, None).unwrap(), outputs.path(&ann, None));
        assert!(all[0].join("x").exists());
    }

    #[test]
    fn what_nobody_uses_goes_and_what_is_used_stays() {
        let (_dir, outputs) = outputs();
        let open = |name: &str| outputs.open(&name.parse().unwrap(), None).unwrap();
        let [old, used] = ["old", "used"].map(open);
        age(&old, 8);
        age(&used, 8);
        open("used");
        open("new");
        assert!(!old.exists() && used.exists());
        for number in 0..MOST {
            age(&open(&format!("n{number}")), 1);
        }
        assert_eq!(fs::read_dir(&outputs.base).unwrap().count(), MOST);
        assert!(used.exists());
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
