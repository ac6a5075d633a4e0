//! System calls with which a process irrevocably drops privileges.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::{check, check_int};

/// Sets the real, effective and saved user and group id.
pub(crate) fn set_ids(uid: u32, gid: u32) -> io::Result<()> {
    // The raw calls change this thread only, which is the only one; glibc's would signal other threads.
    // SAFETY: plain calls without pointers.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) }).map(drop)
}

/// Returns the user and group whose rights on files this thread has.
pub(crate) fn file_ids() -> (u32, u32) {
    // The kernel refuses this id, and returns the present one.
    const NONE: libc::uid_t = libc::uid_t::MAX;
    // SAFETY: plain calls without pointers.
    let (user, group) = unsafe { (libc::setfsuid(NONE), libc::setfsgid(NONE)) };
    (user.cast_unsigned(), group.cast_unsigned())
}

/// Sets the user and group whose rights on files this thread has. The kernel reports no failure.
pub(crate) fn set_file_ids(user: u32, group: u32) {
    // SAFETY: plain calls without pointers.
    unsafe {
        libc::setfsgid(group);
        libc::setfsuid(user);
    }
}

/// Drops all supplementary groups.
pub(crate) fn drop_groups() -> io::Result<()> {
    set_groups(&[])
}

/// Replaces the supplementary groups.
pub(crate) fn set_groups(groups: &[libc::gid_t]) -> io::Result<()> {
    // SAFETY: the kernel reads as many numbers as the list has, which is live for the call.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// Sets `no_new_privs`: no program executed from here on gains privileges by its file's mode.
pub(crate) fn set_no_new_privs() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Makes the kernel kill this process when its parent exits.
pub(crate) fn die_with_parent() -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
}

/// Makes this process adopt its orphaned descendants.
pub(crate) fn become_subreaper() -> io::Result<()> {
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1)
}

/// Returns `true` if the process adopts orphaned descendants.
pub(crate) fn is_subreaper() -> bool {
    let mut answer: libc::c_int = 0;
    // SAFETY: the option writes one int, to a place that outlives the call.
    let asked = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut answer, 0, 0, 0) };
    check_int(asked).is_ok() && answer != 0
}

fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take one number.
    check_int(unsafe { libc::prctl(option, value, 0, 0, 0) }).map(drop)
}

/// Bits of capabilities (capabilities(7)).
pub(crate) type CapabilitySet = u32;

/// Removes all but `kept` from the bounding set, the capabilities that a program's file or its user could grant. A process
/// without the right to do so, an ordinary user without namespaces, can gain none either: `no_new_privs` is set.
fn limit_bounding_set(kept: CapabilitySet) {
    let is_kept = |capability: &u32| kept.checked_shr(*capability).is_some_and(|bits| bits & 1 == 1);
    for capability in (0..).filter(|capability| !is_kept(capability)) {
        // The first number that the kernel does not know fails, too.
        if prctl(libc::PR_CAPBSET_DROP, capability.into()).is_err() {
            return;
        }
    }
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops every capability but `kept`, in every set. With `no_new_privs` set, none can come back.
pub(crate) fn limit_capabilities(kept: CapabilitySet) -> io::Result<()> {
    limit_bounding_set(kept);
    hold_capabilities(kept)
}

/// Drops every capability that the process holds. Programs that it executes could gain others.
pub(crate) fn drop_held_capabilities() -> io::Result<()> {
    hold_capabilities(0)
}

fn hold_capabilities(kept: CapabilitySet) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = CapabilityHeader {
        version: VERSION_3,
        pid: 0,
    };
    let held = |set| CapabilityData {
        effective: set,
        permitted: set,
        inheritable: 0,
    };
    let sets = [held(kept), held(0)];
    prctl(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong,
    )?;
    // SAFETY: header and data are live and of the shape that version 3 wants.
    check(unsafe { libc::syscall(libc::SYS_capset, ptr::addr_of!(header), sets.as_ptr()) }).map(drop)
}

/// Sets the soft and hard limit of a resource of the calling process, never above the current hard limit.
pub(crate) fn set_rlimit(resource: u32, value: u64) -> io::Result<()> {
    let value = value.min(rlimit(resource)?.rlim_max);
    let limit = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: the limit is live for the call.
    check_int(unsafe { libc::setrlimit(resource as _, &limit) }).map(drop)
}

/// Returns the soft limit of a resource of the calling process.
pub(crate) fn soft_rlimit(resource: u32) -> io::Result<u64> {
    rlimit(resource).map(|limit| limit.rlim_cur)
}

/// Sets the soft limit of a resource of the calling process, never above its hard limit.
pub(crate) fn set_soft_rlimit(resource: u32, value: u64) -> io::Result<()> {
    let rlim_max = rlimit(resource)?.rlim_max;
    let limit = libc::rlimit {
        rlim_cur: value.min(rlim_max),
        rlim_max,
    };
    // SAFETY: the limit is live for the call.
    check_int(unsafe { libc::setrlimit(resource as _, &limit) }).map(drop)
}

fn rlimit(resource: u32) -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the place is valid to write.
    check_int(unsafe { libc::getrlimit(resource as _, &mut limit) })?;
    Ok(limit)
}

/// Loads a seccomp filter. `no_new_privs` must be set.
pub(crate) fn load_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    set_filter(program, 0).map(drop)
}

/// Loads a seccomp filter with flags, and returns the call's result.
pub(super) fn set_filter(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program is live, and the kernel copies and verifies it.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            ptr::addr_of!(program),
        )
    })
}

/// The rights that a Landlock rule set governs (struct landlock_ruleset_attr, landlock(7)).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RulesetAttributes {
    /// File-system rights that are denied unless a rule grants them.
    pub(crate) handled_access_fs: u64,
    /// Network rights that are denied unless a rule grants them (ABI 4).
    pub(crate) handled_access_net: u64,
    /// Kinds of access outside the domain that are denied (ABI 6).
    pub(crate) scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// Returns the Landlock ABI of the running kernel.
pub(crate) fn landlock_abi() -> io::Result<u32> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with the version flag no attributes are read.
    let abi = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<u8>(),
            0_usize,
            VERSION,
        )
    })?;
    Ok(abi as u32)
}

/// Creates a Landlock rule set. `size` bytes of the attributes are passed, as the kernel's ABI knows them.
pub(crate) fn landlock_ruleset(attributes: &RulesetAttributes, size: usize) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are live and at least `size` bytes long.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::addr_of!(*attributes),
            size.min(size_of::<RulesetAttributes>()),
            0,
        )
    })?;
    // SAFETY: the call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Grants rights on a file or on everything beneath a directory.
pub(crate) fn landlock_allow(ruleset: BorrowedFd<'_>, path: BorrowedFd<'_>, access: u64) -> io::Result<()> {
    const PATH_BENEATH: libc::c_uint = 1;
    let rule = PathBeneath {
        allowed_access: access,
        parent_fd: path.as_raw_fd(),
    };
    // SAFETY: the rule is live and of the packed shape that the kernel wants.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            ptr::addr_of!(rule),
            0,
        )
    })
    .map(drop)
}

#[repr(C)]
struct NetPort {
    allowed_access: u64,
    port: u64,
}

/// Grants rights on a TCP port (ABI 4).
pub(crate) fn landlock_allow_port(ruleset: BorrowedFd<'_>, port: u16, access: u64) -> io::Result<()> {
    const NET_PORT: libc::c_uint = 2;
    let rule = NetPort {
        allowed_access: access,
        port: port.into(),
    };
    // SAFETY: the rule is live and of the shape that the kernel wants.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            NET_PORT,
            ptr::addr_of!(rule),
            0,
        )
    })
    .map(drop)
}

/// Enforces a rule set on the calling process and all its descendants. `no_new_privs` must be set.
pub(crate) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a plain call on an open descriptor.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) }).map(drop)
}

/// Undoes an effect of changing ids: the process may inspect itself through `/proc` again.
pub(crate) fn set_dumpable() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 1)
}

/// Makes the process undumpable: only itself, and processes with capabilities in the namespace where it was
/// executed, may inspect it through `/proc`.
pub(crate) fn set_undumpable() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}
