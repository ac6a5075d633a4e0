//! Threat: the caller's terminal, device nodes, and the kernel's own files.

use std::path::Path;

use super::fence::{Fence, PYTHON};
use super::probe::{Probe, deny_all, probe, program, verdict};
use crate::support::{Output, finish};

pub(super) const PRIVILEGED: &[Probe] = &[
    probe(
        "making a device",
        "EPERM",
        "os.mknod('null', 0o600 | stat.S_IFCHR, os.makedev(1, 3))\nos.unlink('null')",
    ),
    probe(
        "making a disk",
        "EPERM",
        "os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(7, 0))\nos.unlink('disk')",
    ),
    probe(
        "the host's pseudo-terminals",
        "ENOENT",
        "os.open('/dev/ptmx', os.O_RDWR)",
    ),
    probe("the times of the host's device", "EROFS", "os.utime('/dev/null')"),
    probe("the kernel's log", "ENOENT", "os.open('/dev/kmsg', os.O_RDONLY)"),
    probe(
        "the core pattern",
        "EACCES",
        "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    ),
    probe(
        "the kernel's caches",
        "EACCES",
        "os.open('/proc/sys/vm/drop_caches', os.O_WRONLY)",
    ),
    probe(
        "the host name",
        "EACCES",
        "os.open('/proc/sys/kernel/hostname', os.O_WRONLY)",
    ),
    probe(
        "a driver of a file system",
        "EACCES",
        "os.open('/proc/sys/fs/binfmt_misc', os.O_RDONLY)\nos.open('/proc/sys/fs/suid_dumpable', os.O_WRONLY)",
    ),
    probe(
        "the kernel's messages",
        "EACCES",
        "os.open('/proc/kmsg', os.O_RDONLY)",
    ),
    probe(
        "its own place in the order of killing",
        "EACCES",
        "open('/proc/self/oom_score_adj', 'w').write('-999')",
    ),
];

#[test]
fn devices_and_the_kernels_files_are_out_of_reach() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, PRIVILEGED);
    }
}

#[test]
fn the_devices_are_five() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os\nfor name in ['null', 'zero', 'full', 'random', 'urandom', 'tty', 'console', 'vda', 'kvm', 'mem', 'fuse', 'shm']:\n    \
                if os.path.exists('/dev/' + name): print(name, end=' ')";
    assert_eq!(fence.printed(&[], code), "null zero full random urandom shm ");
}

/// Runs a command with a terminal as its standard streams.
fn in_terminal(fence: &Fence, command: &std::process::Command) -> Output {
    let spawn = "import os, pty, sys\nsys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut terminal = fence.command(Path::new(PYTHON));
    terminal.args(["-I", "-c", spawn]);
    terminal.arg(command.get_program()).args(command.get_args());
    finish(&mut terminal, b"")
}

#[test]
fn nothing_is_typed_into_the_callers_terminal() {
    let Some(fence) = Fence::root() else { return };
    let push = program(
        "import fcntl, termios\n\
         for terminal in (0, 1, 2):\n    fcntl.ioctl(terminal, termios.TIOCSTI, b'x')",
    );
    let mut outside = fence.command(Path::new(PYTHON));
    outside.args(["-I", "-c", &push]);
    let outside = in_terminal(&fence, &outside);
    assert!(outside.ok().trim_end().ends_with("ok"), "{outside:?}");
    let inside = in_terminal(&fence, &fence.ringfence(&["--stdin", "-", "-c", &push]));
    assert!(inside.ok().trim_end().ends_with("errno EPERM"), "{inside:?}");

    let look = "import os\nprint([os.isatty(fd) for fd in (0, 1, 2)], os.getsid(0) == os.getpid())\n\
                try: os.open('/dev/tty', os.O_RDWR)\nexcept OSError as error: print(error.errno)";
    let inside = in_terminal(&fence, &fence.ringfence(&["--stdin", "-", "-c", look]));
    let lines: Vec<&str> = inside.ok().lines().map(str::trim_end).collect();
    assert_eq!(lines, ["[False, False, False] True", "2"]);
}

#[test]
fn line_disciplines_are_not_loaded() {
    let Some(fence) = Fence::root() else { return };
    // A terminal loads line disciplines as kernel modules.
    let load = program("import fcntl\nfcntl.ioctl(0, 0x5423, struct.pack('=i', 0))");
    let mut outside = fence.command(Path::new(PYTHON));
    outside.args(["-I", "-c", &load]);
    let outside = in_terminal(&fence, &outside);
    assert!(outside.ok().trim_end().ends_with("ok"), "{outside:?}");
    let inside = fence.inside(&[], &load, &[]);
    assert_eq!(verdict(&inside), "errno EPERM");
}
