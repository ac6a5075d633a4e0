//! The tests of single layers, in a launcher.
//!
//! A launcher has one thread, so it may fork, and the tests confine no other process.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use serde::{Deserialize, Serialize};

use crate::id_map::become_root_of_own_namespace;
use crate::protocol::LandlockRules;
use crate::seccomp::{self, Exits, Forks, Ipc, Sockets, Surface, Users};
use crate::step_error::{Step, StepError};
use crate::{id_map, landlock, sys};

/// A layer that can be tested by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layer {
    /// A user namespace with an id map, created like an ordinary user would.
    UserNamespace,
    PidNamespace,
    MountNamespace,
    /// A network namespace.
    NetNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    TimeNamespace,
    /// A `/proc` of a new pid namespace.
    Proc,
    /// A tmpfs, attached by the descriptor-based mount calls.
    Tmpfs,
    /// An id-mapped mount.
    MappedMount,
    /// A Landlock rule set that takes effect.
    Landlock,
    /// The fence's seccomp filter, which takes effect.
    Seccomp,
    NoNewPrivs,
    Pidfd,
}

impl Layer {
    /// Every layer.
    pub const ALL: &[Self] = &[
        Self::UserNamespace,
        Self::PidNamespace,
        Self::MountNamespace,
        Self::NetNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::CgroupNamespace,
        Self::TimeNamespace,
        Self::Proc,
        Self::Tmpfs,
        Self::MappedMount,
        Self::Landlock,
        Self::Seccomp,
        Self::NoNewPrivs,
        Self::Pidfd,
    ];
}

/// The result of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trial {
    /// The layer works.
    Works,
    /// A step of the test was refused.
    Refused {
        step: String,
        /// The error number.
        errno: i32,
    },
    /// The layer could be applied, but did not deny a forbidden operation.
    Toothless,
    /// The test was killed by this signal, or exited without a report (0).
    Killed(i32),
}

/// Tests every layer, and reports to the server.
pub(crate) fn answer(server: &OwnedFd) -> Result<(), StepError> {
    let trials: Vec<(Layer, Trial)> = Layer::ALL.iter().map(|&layer| (layer, in_child(layer))).collect();
    let bytes = serde_json::to_vec(&trials)
        .map_err(io::Error::other)
        .step("report the trials")?;
    sys::send_message(server.as_fd(), &bytes, &[]).step("report the trials")
}

fn in_child(layer: Layer) -> Trial {
    let refused = |error: &StepError| Trial::Refused {
        step: error.step.to_owned(),
        errno: error.errno(),
    };
    match forked(|| match attempt(layer) {
        Ok(trial) => trial,
        Err(error) => refused(&error),
    }) {
        Ok(trial) => trial,
        Err(error) => refused(&error),
    }
}

/// Runs `body` in a child process and returns its result.
fn forked(body: impl FnOnce() -> Trial) -> Result<Trial, StepError> {
    let (answers, answer) = sys::pipe().step("make a pipe")?;
    match sys::fork().step("fork")? {
        None => {
            drop(answers);
            let bytes = serde_json::to_vec(&body()).unwrap_or_default();
            // Fails if the parent has exited.
            let _ = File::from(answer).write_all(&bytes);
            sys::exit_now(0)
        }
        Some(_) => {
            drop(answer);
            let mut bytes = Vec::new();
            File::from(answers)
                .read_to_end(&mut bytes)
                .step("await a trial")?;
            let ended = sys::reap(sys::Wait::Block).step("await a trial")?;
            let signal = ended.map_or(0, |ended| -ended.status.min(0));
            Ok(serde_json::from_slice(&bytes).unwrap_or(Trial::Killed(signal)))
        }
    }
}

fn attempt(layer: Layer) -> Result<Trial, StepError> {
    match layer {
        Layer::UserNamespace => become_root_of_own_namespace().map(|()| Trial::Works),
        Layer::PidNamespace => namespace(libc::CLONE_NEWPID, "make a pid namespace"),
        Layer::MountNamespace => namespace(libc::CLONE_NEWNS, "make a mount namespace"),
        Layer::NetNamespace => namespace(libc::CLONE_NEWNET, "make a network namespace"),
        Layer::IpcNamespace => namespace(libc::CLONE_NEWIPC, "make an ipc namespace"),
        Layer::UtsNamespace => namespace(libc::CLONE_NEWUTS, "make a uts namespace"),
        Layer::CgroupNamespace => namespace(libc::CLONE_NEWCGROUP, "make a cgroup namespace"),
        Layer::TimeNamespace => namespace(CLONE_NEWTIME, "make a time namespace"),
        Layer::Proc => fresh_proc(),
        Layer::Tmpfs => tmpfs(),
        Layer::MappedMount => mapped_mount(),
        Layer::Landlock => landlocked(),
        Layer::Seccomp => filtered(),
        Layer::NoNewPrivs => no_new_privs(),
        Layer::Pidfd => sys::pidfd_open(sys::process_ids().0)
            .step("open a handle on a process")
            .map(|_| Trial::Works),
    }
}

const CLONE_NEWTIME: libc::c_int = 0x80;

/// Prepares for namespaces as the template does: the host's root needs nothing, other users first need a user
/// namespace.
fn take_rights() -> Result<(), StepError> {
    let map = fs::read_to_string("/proc/self/uid_map").step("read the id map")?;
    let host = map.split_whitespace().eq(["0", "0", "4294967295"]);
    if host && sys::effective_ids().0 == 0 {
        return Ok(());
    }
    become_root_of_own_namespace()
}

fn namespace(kind: libc::c_int, step: &'static str) -> Result<Trial, StepError> {
    take_rights()?;
    sys::unshare(kind).step(step).map(|()| Trial::Works)
}

/// Enters a private mount namespace.
fn private_mounts(more: libc::c_int) -> Result<(), StepError> {
    take_rights()?;
    sys::unshare(libc::CLONE_NEWNS | more).step("make a mount namespace")?;
    sys::make_mounts_private().step("make the mounts private")
}

fn fresh_proc() -> Result<Trial, StepError> {
    private_mounts(libc::CLONE_NEWPID)?;
    // A /proc shows the pid namespace of the process that mounts it, so a child must mount it.
    forked(|| match mount(c"proc", c"/proc") {
        Ok(()) => Trial::Works,
        Err(error) => Trial::Refused {
            step: "mount a new /proc".to_owned(),
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        },
    })
}

fn tmpfs() -> Result<Trial, StepError> {
    private_mounts(0)?;
    mount(c"tmpfs", c"/tmp").step("mount a tmpfs")?;
    fs::write("/tmp/probe", "x").step("write to the tmpfs")?;
    let tree = sys::open_tree(c"/usr").step("copy a mount")?;
    let read_only = sys::MountAttributes {
        set: libc::MOUNT_ATTR_RDONLY,
        id_map: None,
    };
    sys::set_mount_attributes(tree.as_fd(), &read_only).step("make a mount read-only")?;
    Ok(Trial::Works)
}

fn mount(kind: &CStr, target: &CStr) -> io::Result<()> {
    let attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::move_mount(sys::new_filesystem(kind, &[], attributes)?.as_fd(), target)
}

fn mapped_mount() -> Result<Trial, StepError> {
    const STEP: &str = "map the owners of a mount";
    private_mounts(0)?;
    let ids = crate::protocol::HostIds {
        first: 1 << 30,
        count: 65_536,
    };
    let map = id_map::guest_id_map(0, 0, ids).step(STEP)?;
    let tree = sys::open_tree(c"/usr").step("copy a mount")?;
    let mapped = sys::MountAttributes {
        set: 0,
        id_map: Some(map.as_fd()),
    };
    sys::set_mount_attributes(tree.as_fd(), &mapped)
        .step(STEP)
        .map(|()| Trial::Works)
}

/// Allows `/usr` alone, then reads another directory.
fn landlocked() -> Result<Trial, StepError> {
    let rules = LandlockRules {
        readable: vec!["/usr".into()],
        ..LandlockRules::default()
    };
    let ruleset = landlock::prepare(&rules).step("prepare Landlock rules")?;
    sys::set_no_new_privs().step("set no_new_privs")?;
    ruleset.enforce().step("enforce Landlock rules")?;
    let denied = fs::read_dir("/etc").is_err_and(|error| error.raw_os_error() == Some(libc::EACCES));
    Ok(teeth(denied && fs::read_dir("/usr").is_ok()))
}

/// Loads the fence's filter, then makes a harmless call that it refuses.
fn filtered() -> Result<Trial, StepError> {
    let surface = Surface {
        sockets: Sockets::Unix,
        ipc: Ipc::Own,
        forks: Forks::Never,
        exits: Exits::Silent,
        users: Users::One,
    };
    let filter = seccomp::fence(surface)
        .map_err(io::Error::other)
        .step("build the system-call filter")?;
    sys::set_no_new_privs().step("set no_new_privs")?;
    sys::load_filter(filter.as_slice()).step("load a system-call filter")?;
    // Without the filter, this is a no-op that succeeds.
    Ok(teeth(sys::unshare(0).is_err()))
}

fn no_new_privs() -> Result<Trial, StepError> {
    sys::set_no_new_privs().step("set no_new_privs")?;
    let status = fs::read_to_string("/proc/self/status").step("read the own status")?;
    Ok(teeth(status.lines().any(|line| line == "NoNewPrivs:\t1")))
}

fn teeth(held: bool) -> Trial {
    if held { Trial::Works } else { Trial::Toothless }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_dies_is_told_from_one_that_answers() {
        // The test harness has threads, but none that holds a lock the child needs for these two bodies.
        assert_eq!(forked(|| Trial::Toothless).unwrap(), Trial::Toothless);
        let killed = forked(|| {
            let _ = sys::kill(sys::process_ids().0, libc::SIGKILL);
            Trial::Works
        });
        assert_eq!(killed.unwrap(), Trial::Killed(libc::SIGKILL));
    }
}
