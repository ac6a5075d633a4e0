//! Landlock: an allowlist of paths, and no access outside the guest's own domain.
//!
//! Source: landlock(7), `Documentation/userspace-api/landlock.rst`.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::protocol::{LandlockRules, TcpPorts};
use crate::sys;

/// LANDLOCK_ACCESS_FS_* bits.
mod right {
    pub(super) const EXECUTE: u64 = 1 << 0;
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const READ_FILE: u64 = 1 << 2;
    pub(super) const READ_DIR: u64 = 1 << 3;
    pub(super) const MAKE_CHAR: u64 = 1 << 6;
    pub(super) const MAKE_BLOCK: u64 = 1 << 11;
    /// All rights of the first ABI.
    pub(super) const ABI_1: u64 = (1 << 13) - 1;
    pub(super) const REFER: u64 = 1 << 13;
    pub(super) const TRUNCATE: u64 = 1 << 14;
    pub(super) const IOCTL_DEV: u64 = 1 << 15;
    /// Rights that apply to files; the kernel rejects the others on one.
    pub(super) const FILE: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
}

/// TCP connect.
const CONNECT_TCP: u64 = 0b10;
/// TCP bind and connect.
const NET_TCP: u64 = 0b11;
/// Abstract Unix sockets and signals outside the domain.
const SCOPES: u64 = 0b11;

/// Returns the Landlock ABI of this kernel.
///
/// # Errors
/// `ENOSYS` if the kernel has none, `EOPNOTSUPP` if it is disabled.
pub fn abi() -> io::Result<u32> {
    sys::landlock_abi()
}

/// A rule set that is ready to be enforced.
#[derive(Debug)]
pub(crate) struct Ruleset {
    fd: OwnedFd,
    abi: u32,
}

impl Ruleset {
    /// Enforces the ruleset on the calling process. Returns the ABI in force.
    pub(crate) fn enforce(self) -> io::Result<u32> {
        sys::landlock_restrict(self.fd.as_fd())?;
        Ok(self.abi)
    }
}

/// Builds a rule set that denies every access that the kernel can govern, except those that `rules` grant.
pub(crate) fn prepare(rules: &LandlockRules) -> io::Result<Ruleset> {
    let abi = abi()?;
    let handled = handled_rights(abi);
    let tcp = match abi {
        // The kernel does not govern it.
        0..=3 => TcpPorts::All,
        _ => rules.tcp,
    };
    let attributes = sys::RulesetAttributes {
        handled_access_fs: handled,
        handled_access_net: match tcp {
            TcpPorts::None | TcpPorts::Connect(_) => NET_TCP,
            TcpPorts::All => 0,
        },
        scoped: if abi >= 6 { SCOPES } else { 0 },
    };
    let size = match abi {
        0..=3 => 8,
        4..=5 => 16,
        _ => 24,
    };
    let ruleset = Ruleset {
        fd: sys::landlock_ruleset(&attributes, size)?,
        abi,
    };
    let change = handled & !(right::MAKE_CHAR | right::MAKE_BLOCK | right::IOCTL_DEV);
    for path in &rules.readable {
        allow(
            &ruleset,
            path,
            handled & (right::EXECUTE | right::READ_FILE | right::READ_DIR),
            Link::Follow,
        )?;
    }
    for path in &rules.writable {
        allow(&ruleset, path, change, Link::Follow)?;
    }
    for path in &rules.entries {
        allow(&ruleset, path, change, Link::Leave)?;
    }
    for path in &rules.devices {
        allow(
            &ruleset,
            path,
            handled & (right::READ_FILE | right::WRITE_FILE | right::IOCTL_DEV),
            Link::Follow,
        )?;
    }
    if let TcpPorts::Connect(port) = tcp {
        sys::landlock_allow_port(ruleset.fd.as_fd(), port, CONNECT_TCP)?;
    }
    Ok(ruleset)
}

/// Confines the calling thread to the access that the rules grant, for the rest of its life. Other threads
/// are not affected.
///
/// # Errors
/// If the kernel has no Landlock, or a path of the rules cannot be opened.
pub fn confine_thread(rules: &LandlockRules) -> io::Result<()> {
    let ruleset = prepare(rules)?;
    sys::set_no_new_privs()?;
    ruleset.enforce().map(drop)
}

fn handled_rights(abi: u32) -> u64 {
    let mut rights = right::ABI_1;
    if abi >= 2 {
        rights |= right::REFER;
    }
    if abi >= 3 {
        rights |= right::TRUNCATE;
    }
    if abi >= 5 {
        rights |= right::IOCTL_DEV;
    }
    rights
}

/// Treatment of a symbolic link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Follow,
    Leave,
}

/// Grants access to a path. A missing path needs no rule; nor does a link that is not followed.
fn allow(ruleset: &Ruleset, path: &Path, access: u64, link: Link) -> io::Result<()> {
    let more = match link {
        Link::Follow => 0,
        Link::Leave => libc::O_NOFOLLOW,
    };
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | more)
        .open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    // Of the opened file: the name may mean another one by now.
    let kind = file.metadata()?.file_type();
    if kind.is_symlink() {
        return Ok(());
    }
    let access = if kind.is_dir() {
        access
    } else {
        access & right::FILE
    };
    sys::landlock_allow(ruleset.fd.as_fd(), file.as_fd(), access)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_confined_thread_keeps_to_its_directory_and_others_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (dir.path().join("own"), dir.path().join("other"));
        fs::create_dir(&own).unwrap();
        fs::write(&other, "other").unwrap();
        if abi().is_err() {
            return;
        }
        let rules = LandlockRules {
            writable: vec![own.clone()],
            ..LandlockRules::default()
        };
        let confined = std::thread::scope(|scope| {
            let confined = scope.spawn(|| {
                confine_thread(&rules).unwrap();
                fs::write(own.join("new"), "x").unwrap();
                [
                    fs::read(&other).map(drop),
                    fs::write(&other, "x"),
                    fs::remove_file(&other),
                ]
            });
            confined.join().unwrap()
        });
        for denied in confined {
            assert_eq!(denied.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(fs::read(&other).unwrap(), b"other");
    }
}
