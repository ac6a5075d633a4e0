//! Resolves paths, and refuses those that lead to the process itself.
//!
//! This follows path_resolution(7), one name at a time, since guests, among them the operations, cannot call
//! openat2(2), which could refuse the links of `/proc`. Those lead past every name, to descriptors and roots of
//! processes. `/proc/self` is the process of the operation here, a copy of the launcher, which no program of the sandbox
//! may look into.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::directory::{Directory, FileOwner, refusal};
use crate::sys;

/// Maximum number of links on the way, as in path_resolution(7).
const MAX_LINKS: usize = 40;
/// Permission bits with which others than the owner can change a directory.
const OTHERS_WRITE: u32 = 0o022;
/// Permission bit with which everybody can reach what is in a directory.
const OTHERS_SEARCH: u32 = 0o001;
/// Bits of a directory such as `/tmp`: sticky, and writable for everybody.
const SHARED: u32 = 0o1002;

/// The place that a path leads to. Links are followed, a final one too.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) directory: Directory,
    /// Name in the directory; `.` or `..` if the path ends so.
    pub(super) name: OsString,
    /// The entry's metadata; `None` if it is missing.
    pub(super) found: Option<Metadata>,
    /// Names that would follow the missing entry.
    below: Vec<OsString>,
    /// The end of a link that names a missing entry.
    link: Option<LinkEnd>,
    /// Set if every directory on the way is one that root alone can change, and everybody search. Nobody but root can
    /// have led the path here, nor lead it elsewhere.
    pub(super) is_roots_alone: bool,
}

/// Position of a link that leads to a missing entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkEnd {
    /// The path ends with it.
    Last,
    /// Names of the path follow it.
    OnTheWay,
}

/// Returns the place that an absolute path leads to.
pub(super) fn resolve(path: &Path) -> io::Result<Resolved> {
    if !path.is_absolute() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let left = names(path.as_os_str());
    let walk = Walk {
        at: Directory::root()?,
        own: left.len(),
        left,
        links: 0,
        user: sys::effective_ids().0,
        is_roots_alone: true,
    };
    walk.finish()
}

/// Returns the metadata of the file that a path leads to.
pub(super) fn metadata(path: &Path) -> io::Result<Metadata> {
    resolve(path)?.present()
}

/// Returns the names of a path, the first one last. A slash at the end demands a directory, as `.` does.
fn names(path: &OsStr) -> Vec<OsString> {
    let bytes = path.as_bytes();
    let names = bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let mut names: Vec<OsString> = names.map(|name| OsStr::from_bytes(name).to_owned()).collect();
    if bytes.ends_with(b"/") || names.is_empty() {
        names.push(".".into());
    }
    names.reverse();
    names
}

struct Walk {
    at: Directory,
    /// Names to come, the next one last.
    left: Vec<OsString>,
    /// Number of them that are the path's own, not a link's.
    own: usize,
    links: usize,
    /// Id of the user who follows links.
    user: u32,
    is_roots_alone: bool,
}

impl Walk {
    fn finish(mut self) -> io::Result<Resolved> {
        while let Some(name) = self.left.pop() {
            let is_of_link = self.left.len() >= self.own;
            self.own = self.own.min(self.left.len());
            let here = self.at.metadata()?;
            self.is_roots_alone &=
                here.uid() == 0 && here.mode() & OTHERS_WRITE == 0 && here.mode() & OTHERS_SEARCH != 0;
            let found = match self.at.stat(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                found => Some(found?),
            };
            match found {
                Some(link) if link.is_symlink() => self.follow(&name, &link, &here)?,
                Some(_) if !self.left.is_empty() => self.at = self.at.child_of_any_type(&name)?,
                found => return Ok(self.end(name, found, is_of_link)),
            }
        }
        Err(ErrorKind::NotFound.into())
    }

    fn end(mut self, name: OsString, found: Option<Metadata>, is_of_link: bool) -> Resolved {
        let link = match self.own {
            _ if !is_of_link || found.is_some() => None,
            0 => Some(LinkEnd::Last),
            _ => Some(LinkEnd::OnTheWay),
        };
        self.left.reverse();
        Resolved {
            directory: self.at,
            name,
            found,
            below: self.left,
            link,
            is_roots_alone: self.is_roots_alone,
        }
    }

    /// Puts the names of a link before those to come.
    fn follow(&mut self, name: &OsStr, link: &Metadata, here: &Metadata) -> io::Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        // Links of another user in a directory such as `/tmp`, as in proc_sys_fs(5), `protected_symlinks`.
        let is_shared = here.mode() & SHARED == SHARED;
        if is_shared && link.uid() != self.user && link.uid() != here.uid() {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        if self.at.is_of_processes() {
            return Err(refusal());
        }
        self.is_roots_alone &= link.uid() == 0;
        let target = self.at.link_target(name)?;
        if target.is_empty() {
            return Err(ErrorKind::NotFound.into());
        }
        if target.as_bytes().starts_with(b"/") {
            self.at = Directory::root()?;
        }
        self.left.extend(names(&target));
        Ok(())
    }
}

impl Resolved {
    /// Returns the entry's metadata.
    pub(super) fn present(self) -> io::Result<Metadata> {
        self.found.ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Returns `true` if a link leads to the missing entry, except where `allowed` and the path ends with that link.
    pub(super) fn is_behind_link(&self, allowed: bool) -> bool {
        match self.link {
            None => false,
            Some(LinkEnd::Last) => !allowed,
            Some(LinkEnd::OnTheWay) => true,
        }
    }

    /// Returns `true` if the entry is there, or can be made without any other.
    pub(super) fn has_parent(&self) -> bool {
        self.below.is_empty()
    }

    /// Makes the missing entry and those below it as directories. They belong to `owner` once all are there: until then nobody
    /// but the maker can put a link in their place.
    pub(super) fn make_directories(self, owner: Option<FileOwner>) -> io::Result<Directory> {
        make(self.directory, &[&[self.name][..], &self.below].concat(), owner)
    }

    /// Makes the directories on the way to the last of the missing entries, as [`Self::make_directories`] does, and returns
    /// that entry.
    pub(super) fn make_parents(self, owner: Option<FileOwner>) -> io::Result<Self> {
        let mut missing = [&[self.name][..], &self.below].concat();
        let name = missing.pop().unwrap_or_default();
        Ok(Self {
            directory: make(self.directory, &missing, owner)?,
            name,
            below: Vec::new(),
            ..self
        })
    }
}

/// Makes a directory in another, one in that, and so on. Returns the last one.
fn make(mut at: Directory, names: &[OsString], owner: Option<FileOwner>) -> io::Result<Directory> {
    let mut made = Vec::new();
    for name in names {
        let created = at.create_directory(name, 0o777);
        // Somebody else made it meanwhile, or the name is `.` or `..`.
        let is_there = matches!(&created, Err(error) if error.kind() == ErrorKind::AlreadyExists);
        let child = match is_there {
            true => at.child(name)?,
            false => created.and_then(|()| at.readable_child(name))?,
        };
        at = child;
        if let (Some(_), false) = (owner, is_there) {
            made.push(at.try_clone()?);
        }
    }
    for directory in made {
        directory.give_to_owner(owner)?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::directory::is_same;
    use super::*;

    fn errno(result: io::Result<Metadata>) -> Option<i32> {
        result.unwrap_err().raw_os_error()
    }

    #[test]
    fn paths_lead_where_the_kernel_leads() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("a/b/file"), "").unwrap();
        symlink("../b/./file", path("a/b/relative")).unwrap();
        symlink(path("a/b/"), path("absolute")).unwrap();
        symlink("absolute/relative", path("chain")).unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("nowhere/below", path("dangling")).unwrap();
        for name in [
            "",
            "a//b/",
            "a/./b/../b/file",
            "absolute",
            "absolute/",
            "absolute/..",
            "absolute/relative",
            "chain",
            "../../../../../..",
        ] {
            let found = metadata(&path(name)).unwrap();
            assert!(is_same(&found, &fs::metadata(path(name)).unwrap()), "{name}");
        }
        for name in [
            "loop",
            "dangling",
            "missing",
            "missing/..",
            "chain/",
            "chain/x",
            "a/b/file/.",
            "a/b/file/..",
        ] {
            let expected = fs::metadata(path(name)).unwrap_err();
            let found = metadata(&path(name)).unwrap_err();
            assert_eq!(found.kind(), expected.kind(), "{name}");
        }
        assert_eq!(
            metadata(Path::new("a")).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }

    #[test]
    fn a_missing_end_says_what_is_missing_and_whether_a_link_leads_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        symlink("nowhere/below", path("link")).unwrap();
        fs::create_dir(path("real")).unwrap();
        symlink("real", path("way")).unwrap();
        let check = |name: &str, expected: (&str, usize, Option<LinkEnd>)| {
            let found = resolve(&path(name)).unwrap();
            assert!(found.found.is_none());
            let name_found = found.name.to_str().unwrap();
            assert_eq!((name_found, found.below.len(), found.link), expected, "{name}");
        };
        check("x", ("x", 0, None));
        check("way/x/y", ("x", 1, None));
        check("link", ("nowhere", 1, Some(LinkEnd::Last)));
        check("link/x", ("nowhere", 2, Some(LinkEnd::OnTheWay)));
        let found = resolve(&path("way/x/y/z")).unwrap().make_parents(None).unwrap();
        let made = fs::metadata(path("real/x/y")).unwrap();
        assert!(found.name == "z" && is_same(&found.directory.metadata().unwrap(), &made));
    }

    #[test]
    fn the_process_itself_is_closed() {
        let (own, program) = (std::process::id(), std::os::unix::process::parent_id());
        let dir = tempfile::tempdir().unwrap();
        let way = dir.path().join("way");
        symlink("/proc/self/maps", &way).unwrap();
        for path in [
            "/proc/self/maps".to_owned(),
            "/proc/thread-self/status".to_owned(),
            "/proc/self/fd".to_owned(),
            "/proc/self".to_owned(),
            "/proc/self/cwd".to_owned(),
            "/proc/mounts".to_owned(),
            "/dev/fd".to_owned(),
            format!("/proc/{own}/maps"),
            format!("/proc/{own}"),
            format!("/proc/./{own}/root/etc"),
            format!("/proc/{program}/root/etc"),
            format!("/proc/{program}/cwd"),
            way.display().to_string(),
        ] {
            let path = Path::new(&path);
            // The kernel leads there.
            fs::metadata(path).unwrap();
            let refused = metadata(path).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{path:?}");
            assert!(refused.to_string().contains("file operation"), "{refused}");
        }
        // Nothing else of `/proc` is.
        metadata(Path::new("/proc/meminfo")).unwrap();
        metadata(Path::new(&format!("/proc/{program}/status"))).unwrap();
        let processes = resolve(Path::new("/proc")).unwrap().directory;
        let processes = processes.readable_child(OsStr::new("proc")).unwrap();
        assert!(processes.readable_child(OsStr::new(&own.to_string())).is_err());
        processes
            .readable_child(OsStr::new(&program.to_string()))
            .unwrap();
        // A name like it elsewhere is a name.
        fs::write(dir.path().join(own.to_string()), "").unwrap();
        metadata(&dir.path().join(own.to_string())).unwrap();
    }

    #[test]
    fn a_link_that_another_user_planted_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("target"), "").unwrap();
        symlink("target", path("link")).unwrap();
        // 65534 is nobody.
        std::os::unix::fs::lchown(path("link"), Some(65_534), None).unwrap();
        metadata(&path("link")).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(errno(metadata(&path("link"))), Some(libc::EACCES));
        std::os::unix::fs::lchown(path("link"), Some(0), None).unwrap();
        metadata(&path("link")).unwrap();
    }

    #[test]
    fn what_another_user_can_lead_is_not_roots_alone() {
        // Below a directory that everybody can search, which a temporary one is not.
        let dir = tempfile::tempdir_in("/var").unwrap();
        let path = |name: &str| dir.path().join(name);
        let is_roots_alone = |name: &str| resolve(&path(name)).unwrap().is_roots_alone;
        let set_mode = |name: &str, mode| {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        set_mode("", 0o755);
        for name in ["open", "closed", "of-user", "shared"] {
            fs::create_dir(path(name)).unwrap();
        }
        set_mode("closed", 0o700);
        set_mode("shared", 0o1777);
        for name in ["of-user", "link"] {
            if name == "link" {
                symlink("open", path("link")).unwrap();
                symlink("open", path("own-link")).unwrap();
            }
            std::os::unix::fs::lchown(path(name), Some(65_534), None).unwrap();
        }
        assert!(is_roots_alone("open/x") && is_roots_alone("own-link/x") && is_roots_alone("x/y"));
        for name in ["closed/x", "shared/x", "of-user/x", "link/x", "of-user/../open/x"] {
            assert!(!is_roots_alone(name), "{name}");
        }
    }
}
