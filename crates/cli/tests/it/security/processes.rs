//! Threat: other processes, inspected, controlled or killed.

use std::io::Read;
use std::process::Child;

use super::fence::Fence;
use super::probe::{Probe, deny, deny_all, probe, program, verdict};
use crate::support::start;

/// Acts allowed to any user on its own processes outside.
pub(super) const SURFACE: &[Probe] = &[
    probe(
        "PTRACE_TRACEME",
        "EPERM",
        "in_child(lambda: call(number(101, 117), 0, 0, 0, 0))",
    ),
    probe(
        "PTRACE_SEIZE of a child",
        "EPERM",
        "call(number(101, 117), 0x4206, waiting_child(), 0, 0)",
    ),
    probe(
        "process_vm_readv of a child",
        "EPERM",
        "buffer = ctypes.create_string_buffer(b'secret')\n\
         there = struct.pack('=QQ', ctypes.addressof(buffer), 6)\n\
         copy = ctypes.create_string_buffer(6)\n\
         here = struct.pack('=QQ', ctypes.addressof(copy), 6)\n\
         call(number(310, 270), waiting_child(), here, 1, there, 1, 0)",
    ),
    probe(
        "process_vm_writev to a child",
        "EPERM",
        "buffer = ctypes.create_string_buffer(b'secret')\n\
         vector = struct.pack('=QQ', ctypes.addressof(buffer), 6)\n\
         call(number(311, 271), waiting_child(), vector, 1, vector, 1, 0)",
    ),
    probe(
        "pidfd_getfd from a child",
        "EPERM",
        "call(438, os.pidfd_open(waiting_child()), 1, 0)",
    ),
    probe(
        "kcmp",
        "EPERM",
        "call(number(312, 272), os.getpid(), os.getpid(), 0, 1, 1)",
    ),
    probe(
        "writing to /proc/self/mem",
        "EACCES",
        "os.open('/proc/self/mem', os.O_RDWR)",
    ),
    probe(
        "limits of another process",
        "EPERM",
        "import resource\nresource.prlimit(waiting_child(), resource.RLIMIT_CORE)",
    ),
];

pub(super) const PRIVILEGED: &[Probe] = &[
    probe(
        "PTRACE_SEIZE of the parent",
        "EPERM",
        "call(number(101, 117), 0x4206, os.getppid() or 1, 0, 0)",
    ),
    // hidepid hides every process that is not the guest's own.
    probe(
        "memory of the parent",
        "ENOENT",
        "os.open(f'/proc/{os.getppid() or 1}/mem', os.O_RDONLY)",
    ),
    probe(
        "environment of the parent",
        "ENOENT",
        "os.open(f'/proc/{os.getppid() or 1}/environ', os.O_RDONLY)",
    ),
    probe(
        "root of the parent",
        "ENOENT",
        "os.open(f'/proc/{os.getppid() or 1}/root/etc', os.O_RDONLY)",
    ),
    probe(
        "descriptors of the parent",
        "ENOENT",
        "os.listdir(f'/proc/{os.getppid() or 1}/fd')",
    ),
];

#[test]
fn other_processes_are_not_looked_into() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, SURFACE);
        deny_all(&fence, PRIVILEGED);
    }
}

/// Starts a run that waits for the end of its standard input.
fn waiting_run(fence: &Fence) -> Child {
    let mut command = fence.ringfence(&["--stdin", "-", "-c", "print('ready', flush=True); input()"]);
    let mut child = start(&mut command);
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    child
}

#[test]
fn a_host_process_cannot_be_signalled() {
    let Some(fence) = Fence::root() else { return };
    let act = probe("a signal to a host process", "ESRCH", "os.kill(int(ARGS[0]), 0)");
    deny(&fence, &[], &act, &[&std::process::id().to_string()]);
}

#[test]
fn a_sibling_run_cannot_be_seen_or_signalled() {
    let Some(fence) = Fence::root() else { return };
    let mut sibling = waiting_run(&fence);
    let killed = program(
        "entries = [int(name) for name in os.listdir('/proc') if name.isdigit()]\n\
         if entries != [os.getpid()]:\n    raise OSError(errno.EEXIST, '')\n\
         for pid in range(2, 40000):\n    \
             try:\n        \
                 if pid != os.getpid():\n            \
                     os.kill(pid, signal.SIGKILL)\n            \
                     raise OSError(errno.EEXIST, '')\n    \
             except ProcessLookupError:\n        \
                 pass\n\
         os.kill(-1, signal.SIGKILL)",
    );
    let verdict = verdict(&fence.inside(&[], &killed, &[]));
    let alive = sibling.try_wait().unwrap().is_none();
    drop(sibling.stdin.take());
    let end = sibling.wait_with_output().unwrap();
    // Sent to all processes, but there are no others.
    assert_eq!(verdict, "errno ESRCH");
    assert!(alive);
    // The sibling ended by itself: its input was closed.
    assert!(String::from_utf8_lossy(&end.stderr).contains("EOFError"));
}

#[test]
fn the_cells_first_process_cannot_be_ended() {
    let Some(fence) = Fence::root() else { return };
    let signals = program("os.kill(1, signal.SIGKILL)");
    assert_eq!(verdict(&fence.inside(&[], &signals, &[])), "errno EPERM");
    let many = "import os\n\
                for signal in range(1, 65):\n    \
                    try: os.kill(1, signal); print('sent', signal)\n    \
                    except PermissionError: pass\n\
                print('alive')";
    assert_eq!(fence.printed(&[], many), "alive\n");
}

#[test]
fn descriptors_of_the_caller_do_not_arrive() {
    let Some(fence) = Fence::root() else { return };
    let secret = fence.dir.write("secret", "secret");
    let code = "import os\n\
                for fd in range(3, 1024):\n    \
                    try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n    \
                    except FileNotFoundError: pass";
    let hand_over = |command: std::process::Command| {
        let mut shell = fence.command(std::path::Path::new("/bin/bash"));
        let script = "exec 7<\"$0\" 200>>\"$0\"; exec \"$@\"";
        shell.arg("-c").arg(script).arg(&secret);
        shell.arg(command.get_program()).args(command.get_args());
        crate::support::finish(&mut shell, b"")
    };
    let mut outside = fence.command(std::path::Path::new(super::fence::PYTHON));
    outside.args(["-I", "-c", code]);
    let held = format!("7 {0}\n200 {0}\n", secret.display());
    assert!(
        hand_over(outside)
            .ok()
            .lines()
            .filter(|line| line.contains("secret"))
            .eq(held.lines())
    );
    assert_eq!(hand_over(fence.ringfence(&["-c", code])).ok(), "");
    let bash = fence.ringfence(&["-l", "bash", "-c", "ls -l /proc/self/fd; : <&7"]);
    let output = hand_over(bash);
    assert!(
        output.status != 0 && output.stderr.contains("7: Bad file descriptor"),
        "{output:?}"
    );
    assert!(!output.stdout.contains("secret"), "{output:?}");
}

/// Every program that the guest starts inherits all other open descriptors.
#[test]
fn three_descriptors_are_open() {
    let Some(fence) = Fence::root() else { return };
    let list = "import os\n\
                for fd in range(0, 1024):\n    \
                    try: os.fstat(fd); print(fd, end=' ')\n    \
                    except OSError: pass";
    assert_eq!(fence.printed(&[], list), "0 1 2 ");
    let child = format!("/usr/bin/python3 -I -c \"{list}\"");
    let bash = crate::support::finish(&mut fence.ringfence(&["-l", "bash", "-c", &child]), b"");
    assert_eq!(bash.ok(), "0 1 2 ", "a child of bash");
    let child = format!(
        "process.stdout.write(require('child_process').execFileSync('/usr/bin/python3', ['-I', '-c', {list:?}]))"
    );
    let node = crate::support::finish(&mut fence.ringfence(&["-l", "javascript", "-c", &child]), b"");
    assert_eq!(node.ok(), "0 1 2 ", "a child of JavaScript");
}
