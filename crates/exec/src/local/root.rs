//! Sandboxes whose programs are root over the users of their cell, and may change its root file system: the fence `box`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_jail::protocol::{HostIds, LandlockRules, Template, WritableRoot};
use ringfence_policy::Account;

use super::error::Error;
use super::guest::{Groups, check_groups};
use super::layout::{Extra, MAPS_ANY_ID};

/// Number of such sandboxes of one server at a time.
const MAX: u32 = 32;
/// Host ids of each: root and users of its cell, and what its launcher needs.
const IDS: u32 = 2_048;
/// First host id of such ranges. Those of other launchers lie below.
const BASE: u32 = 1 << 31;
/// Number of servers, told apart by their process ids, whose ranges do not overlap.
const SERVERS: u32 = 32_767;

/// Directories that programs expect at a root, and which the view of this machine lacks.
const DIRECTORIES: &[&str] = &[
    "/root",
    "/home",
    "/mnt",
    "/opt",
    "/srv",
    "/var/cache",
    "/var/lib",
    "/var/log",
];

/// Ranges in use.
static TAKEN: Mutex<u32> = Mutex::new(0);

/// A range of host ids that belongs to one sandbox until its last copy is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootIds(Arc<Slot>);

#[derive(Debug, PartialEq, Eq)]
struct Slot(u32);

impl Drop for Slot {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) &= !(1 << self.0);
    }
}

impl RootIds {
    /// Takes a range.
    ///
    /// # Errors
    /// If this process may not map ids, has no control groups (per-user limits mean nothing to who can be several users),
    /// or all ranges are in use.
    pub(super) fn take(groups: Option<&Arc<Groups>>) -> Result<Self, Error> {
        if !*MAPS_ANY_ID {
            return Err(Error::NeedsIds);
        }
        check_groups(groups)?;
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = (0..MAX)
            .find(|slot| *taken >> slot & 1 == 0)
            .ok_or(Error::NoMoreRoots { max: MAX })?;
        *taken |= 1 << free;
        Ok(Self(Arc::new(Slot(free))))
    }

    fn range(&self) -> HostIds {
        let server = std::process::id() % SERVERS;
        HostIds {
            first: BASE + (server * MAX + self.0.0) * IDS,
            count: IDS,
        }
    }
}

/// Adapts the template of a sandbox with root: an image becomes a layer of its root instead of mounts.
pub(super) fn adapt(template: &mut Template, extra: &Extra) {
    let Some(ids) = &extra.root_ids else { return };
    template.host_ids = Some(ids.range());
    template.writable_root = Some(WritableRoot {
        image: extra.image.as_ref().map(|image| image.root.clone()),
    });
    let missing = DIRECTORIES.iter().filter(|_| extra.image.is_none());
    template.directories.extend(missing.map(PathBuf::from));
}

/// Returns `/etc/passwd` and `/etc/group` of an account.
pub(super) fn users(account: Account) -> (String, String) {
    const NOBODY: &str = "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n";
    let (user, home) = (account.name(), account.home());
    if account.is_root() {
        let passwd = format!("root:x:0:0:root:{home}:/bin/bash\n{NOBODY}");
        return (passwd, "root:x:0:\nnogroup:x:65534:\n".to_owned());
    }
    let passwd =
        format!("root:x:0:0:root:/:/usr/sbin/nologin\n{user}:x:1000:1000:{user}:{home}:/bin/bash\n{NOBODY}");
    (passwd, format!("root:x:0:\n{user}:x:1000:\nnogroup:x:65534:\n"))
}

/// Returns the rules of such a sandbox: everything in its root is its own, and mounts restrict the rest.
pub(super) fn rules(rules: LandlockRules) -> LandlockRules {
    LandlockRules {
        readable: Vec::new(),
        writable: vec![Path::new("/").to_path_buf()],
        entries: Vec::new(),
        ..rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_neither_each_other_nor_the_largest_id() {
        let last = BASE.checked_add((SERVERS * MAX - 1) * IDS).unwrap();
        assert!(last.checked_add(IDS).is_some_and(|end| end < u32::MAX - 1));
    }
}
