//! User namespaces and the maps of their ids: user_namespaces(7).

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::protocol::{GUEST_ID, HostIds};
use crate::step_error::{Step, StepError};
use crate::sys;

/// Returns a user namespace that maps the owner of a host path to the guest, and all others to themselves.
pub(crate) fn guest_id_map(uid: u32, gid: u32, ids: HostIds) -> io::Result<OwnedFd> {
    let guest = ids.first + GUEST_ID;
    let map = |owner: u32| {
        let below = if owner > 0 {
            format!("0 0 {owner}\n")
        } else {
            String::new()
        };
        let above = owner + 1;
        format!(
            "{below}{owner} {guest} 1\n{above} {above} {}\n",
            ids.first.saturating_sub(above)
        )
    };
    user_namespace(&map(uid), &map(gid))
}

/// Creates a user namespace with these id maps.
///
/// A child keeps it alive until it is open. It makes system calls alone, so the caller may have threads.
pub(crate) fn user_namespace(uids: &str, gids: &str) -> io::Result<OwnedFd> {
    let (released, release) = sys::pipe()?;
    match sys::clone3(libc::CLONE_NEWUSER as u64, sys::Parentage::Own)? {
        sys::Fork::Child => {
            drop(release);
            let _ = sys::poll(&[released.as_fd()], None);
            sys::exit_now(0)
        }
        sys::Fork::Parent { pid, pidfd } => {
            let opened =
                write_id_maps(pid, uids, gids).and_then(|()| fs::File::open(format!("/proc/{pid}/ns/user")));
            drop((released, release));
            sys::reap_child(pidfd.as_fd())?;
            opened.map(OwnedFd::from)
        }
    }
}

/// Writes the id maps of a child's new user namespace.
pub(crate) fn write_id_maps(pid: libc::pid_t, uids: &str, gids: &str) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/gid_map"), gids)?;
    fs::write(format!("/proc/{pid}/uid_map"), uids)
}

/// Creates a user namespace in which the caller is root. An ordinary user may map only its own id, and must
/// disable setgroups before.
pub(crate) fn become_root_of_own_namespace() -> Result<(), StepError> {
    let (uid, gid) = sys::effective_ids();
    sys::unshare(libc::CLONE_NEWUSER).step("make a user namespace")?;
    std::fs::write("/proc/self/setgroups", "deny").step("map the own user id")?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1\n")).step("map the own user id")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1\n")).step("map the own user id")
}
