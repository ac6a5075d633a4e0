//! Files that git obeys when it runs in a directory: its store, and the paths in the settings there.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::acted::{Acted, Target};
use super::git_settings::{Setting, settings};

/// Files that git reads in a repository without a working tree, and programs that it runs from there.
pub const PARTS: &[&str] = &[
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

/// Names that only git uses, and that lead it to other settings.
pub const NEVER: &[&str] = &["commondir", "config.worktree"];

/// Maximum size of a settings file that is read, and maximum number of such files.
const MAX_SETTINGS: u64 = 1 << 20;
const MAX_FILES: usize = 64;
/// Maximum number of hooks that are looked at.
const MAX_HOOKS: usize = 256;

/// Returns `true` if git takes a directory with these entries for a repository.
pub fn is_repository(is_there: impl Fn(&str) -> bool) -> bool {
    is_there("HEAD") && (is_there("commondir") || (is_there("objects") && is_there("refs")))
}

/// Returns `true` if git takes the directory at a path for a repository.
pub fn is_repository_at(directory: &Path) -> bool {
    is_repository(|name| directory.join(name).symlink_metadata().is_ok())
}

impl Acted {
    /// Finds the paths that these protected links in a workspace, and the settings of git, lead to.
    pub fn find(tree: &Path, links: &[PathBuf]) -> Self {
        let mut acted = Self::default();
        for link in links.iter().filter(|link| link.is_symlink()) {
            acted.follow(link, link);
        }
        believed(tree, &mut acted);
        acted
    }
}

/// Adds the files that git obeys in `tree`. Git looks for a repository there and in each directory above.
fn believed(tree: &Path, acted: &mut Acted) {
    for directory in tree.ancestors() {
        let named = directory.join(".git");
        if let Some(store) = store(&named) {
            acted.follow(&store, &named);
            Repository {
                store: &store,
                base: directory,
            }
            .believe(acted);
        }
        if is_repository_at(directory) {
            for part in PARTS.iter().map(|part| directory.join(part)) {
                if part.symlink_metadata().is_ok() {
                    acted.follow(&part, &part);
                }
            }
            Repository {
                store: directory,
                base: directory,
            }
            .believe(acted);
        }
    }
}

/// Returns the directory that a `.git` is, leads to or names.
fn store(named: &Path) -> Option<PathBuf> {
    if fs::metadata(named).ok()?.is_dir() {
        return Some(named.to_owned());
    }
    let text = read(named)?;
    let path = text.strip_prefix(b"gitdir:")?.trim_ascii();
    Some(named.parent()?.join(OsString::from_vec(path.to_owned())))
}

struct Repository<'a> {
    store: &'a Path,
    /// Directory that relative paths in the settings start from.
    base: &'a Path,
}

impl Repository<'_> {
    /// Adds the settings, the hooks, and the paths that both lead to.
    fn believe(&self, acted: &mut Acted) {
        let mut stores = vec![self.store.to_owned()];
        let shared = self.store.join("commondir");
        if let Some(text) = read(&shared) {
            let common = self.store.join(OsString::from_vec(text.trim_ascii().to_owned()));
            acted.follow(&common, &shared);
            stores.push(common);
        }
        for store in &stores {
            for name in ["config", "config.worktree"] {
                self.settings(&store.join(name), acted);
            }
            hooks(&store.join("hooks"), acted);
        }
    }

    /// Adds a settings file if it is a link, and the files and directories that it names.
    fn settings(&self, file: &Path, acted: &mut Acted) {
        let mut seen: Vec<PathBuf> = Vec::new();
        let mut todo = vec![file.to_owned()];
        while let Some(file) = todo.pop() {
            if seen.contains(&file) || seen.len() >= MAX_FILES {
                continue;
            }
            if file.symlink_metadata().is_ok() {
                acted.follow(&file, &file);
            }
            let above = file.parent().unwrap_or(Path::new("/"));
            for setting in read(&file).map(|text| settings(&text)).unwrap_or_default() {
                match setting {
                    Setting::Path(path) => {
                        let path = above.join(path);
                        acted.follow(&path, &file);
                        todo.push(path);
                    }
                    Setting::Hooks(path) => {
                        let path = self.base.join(path);
                        acted.follow(&path, &file);
                        hooks(&path, acted);
                    }
                    Setting::Unknown(path) => acted.unknown.push(Target {
                        path,
                        by: file.clone(),
                    }),
                }
            }
            seen.push(file);
        }
    }
}

/// Adds the paths that a directory of hooks, and hooks that are links, lead to.
fn hooks(directory: &Path, acted: &mut Acted) {
    if directory.is_symlink() {
        acted.follow(directory, directory);
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.take(MAX_HOOKS) {
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            acted.follow(&entry.path(), &entry.path());
        }
    }
}

/// Returns the content of a small regular file, or of its beginning.
fn read(path: &Path) -> Option<Vec<u8>> {
    // A pipe would block until somebody writes to it.
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_SETTINGS).read_to_end(&mut text).ok()?;
    Some(text)
}
