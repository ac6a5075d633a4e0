//! Threat: new namespaces, mounts and roots, each of which would restore capabilities or paths.

use super::fence::Fence;
use super::probe::{Probe, deny_all, probe};

/// Acts allowed to any user outside.
pub(super) const SURFACE: &[Probe] = &[
    probe(
        "clone with CLONE_NEWUSER",
        "EPERM",
        "pid = call(number(56, 220), 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)\n\
         if pid == 0:\n    os._exit(0)\n\
         os.waitpid(pid, 0)",
    ),
    probe(
        "unshare of a user namespace",
        "EPERM",
        "in_child(lambda: call(number(272, 97), 0x10000000))",
    ),
];

/// A detached mount, and a directory to attach it to.
const MOUNT: &str = "
import tempfile
place = tempfile.mkdtemp().encode()
context = attempt(call, 430, b'tmpfs', 0)
attempt(call, 431, context, 6, 0, 0, 0)
mount = attempt(call, 432, context, 0, 0)
";

pub(super) const PRIVILEGED: &[Probe] = &[
    probe(
        "unshare of a mount namespace",
        "EPERM",
        "in_child(lambda: call(number(272, 97), 0x20000))",
    ),
    probe(
        "setns by a file",
        "EPERM",
        "call(number(308, 268), os.open('/proc/self/ns/net', os.O_RDONLY), 0)",
    ),
    probe(
        "setns by a pidfd",
        "EPERM",
        "call(number(308, 268), os.pidfd_open(os.getpid()), 0x40000000)",
    ),
    probe("chroot", "EPERM", "in_child(lambda: os.chroot('/usr'))"),
    probe(
        "mount",
        "EPERM",
        "os.makedirs('m', exist_ok=True)\n\
         call(number(165, 40), b'none', b'm', b'tmpfs', 0, b'')\n\
         call(number(166, 39), b'm', 0)",
    ),
    probe(
        "bind mount",
        "EPERM",
        "os.makedirs('m', exist_ok=True)\n\
         call(number(165, 40), b'/usr', b'm', b'', 0x1000, b'')\n\
         call(number(166, 39), b'm', 0)",
    ),
    probe(
        "umount2",
        "EPERM",
        "os.makedirs('m', exist_ok=True)\n\
         attempt(call, number(165, 40), b'none', b'm', b'tmpfs', 0, b'')\n\
         call(number(166, 39), b'm' if os.path.ismount('m') else b'/tmp', 2)",
    ),
    probe("fsopen", "EPERM", "call(430, b'tmpfs', 0)"),
    probe("open_tree", "EPERM", "call(428, -100, b'/tmp', 1)"),
];

const PRIVILEGED_MOUNT: &[Probe] = &[
    probe(
        "move_mount",
        "EPERM",
        "call(429, mount, b'', -100, place, 4)\ncall(number(166, 39), place, 2)",
    ),
    probe(
        "mount_setattr",
        "EPERM",
        "call(442, mount, b'', 0x1000, struct.pack('=QQQQ', 1, 0, 0, 0), 32)",
    ),
    probe(
        "pivot_root",
        "EPERM",
        "def act():\n    \
             attempt(call, number(272, 97), 0x20000)\n    \
             attempt(call, number(165, 40), b'none', b'/', b'', 0x44000, b'')\n    \
             attempt(call, 429, mount, b'', -100, place, 4)\n    \
             call(number(155, 41), place, place)\n\
         in_child(act)",
    ),
];

#[test]
fn namespaces_mounts_and_roots_are_refused() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, SURFACE);
        deny_all(&fence, PRIVILEGED);
    }
}

#[test]
fn the_newer_mount_calls_are_refused() {
    if let Some(fence) = Fence::root() {
        for probe in PRIVILEGED_MOUNT {
            let act: &'static str = Box::leak(format!("{MOUNT}{}", probe.act).into_boxed_str());
            deny_all(&fence, &[Probe { act, ..*probe }]);
        }
    }
}

#[test]
fn the_guest_lives_in_namespaces_of_its_own() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os\nfor name in sorted(os.listdir('/proc/self/ns')): print(name, os.readlink('/proc/self/ns/' + name))";
    let outside = fence.outside(code, &[]);
    let inside = fence.printed(&[], code);
    assert_eq!(outside.ok().lines().count(), inside.lines().count());
    for (theirs, ours) in inside.lines().zip(outside.stdout.lines()) {
        assert_ne!(theirs, ours);
    }
}
