//! Threat: large or old parts of the kernel, reached by system calls that no program here needs.

use super::fence::Fence;
use super::probe::{Probe, deny_all, probe};

/// Acts allowed to any user outside.
pub(super) const SURFACE: &[Probe] = &[
    probe(
        "io_uring_setup",
        "EPERM",
        "call(425, 8, ctypes.create_string_buffer(120))",
    ),
    probe("userfaultfd", "EPERM", "call(number(323, 282), 1)"),
    probe(
        "add_key",
        "EPERM",
        "call(number(248, 217), b'user', b'ringfence-probe', b'x', 1, -2)",
    ),
    probe("keyctl", "EPERM", "call(number(250, 219), 0, -2, 1)"),
    probe(
        "perf_event_open",
        "EPERM",
        // A software clock, for user space only.
        "event = struct.pack('=IIQQQQQ', 1, 112, 0, 0, 0, 0, 1 << 5 | 1 << 6).ljust(112, b'\\0')\n\
         call(number(298, 241), event, 0, -1, -1, 0)",
    ),
    probe(
        "io_setup",
        "EPERM",
        "call(number(206, 0), 1, ctypes.byref(ctypes.c_ulong()))",
    ),
    probe(
        "vmsplice",
        "EPERM",
        "buffer = ctypes.create_string_buffer(b'x')\n\
         vector = struct.pack('=QQ', ctypes.addressof(buffer), 1)\n\
         call(number(278, 75), os.pipe()[1], vector, 1, 0)",
    ),
    probe("memfd_secret", "EPERM", "call(447, 0)"),
    probe(
        "name_to_handle_at",
        "EPERM",
        "handle = ctypes.create_string_buffer(struct.pack('=Ii', 128, 0), 136)\n\
         call(number(303, 264), -100, b'/usr', handle, ctypes.byref(ctypes.c_int()), 0)",
    ),
    probe(
        "clock_adjtime",
        "EPERM",
        "call(number(305, 266), 0, ctypes.create_string_buffer(256))",
    ),
    probe("get_mempolicy", "EPERM", "call(number(239, 236), 0, 0, 0, 0, 0)"),
    probe(
        "seccomp",
        "EPERM",
        "call(number(317, 277), 2, 0, ctypes.byref(ctypes.c_uint(0x7fff0000)))",
    ),
    probe(
        "landlock_create_ruleset",
        "EPERM",
        "call(444, struct.pack('=Q', 1), 8, 0)",
    ),
    probe(
        "personality(ADDR_NO_RANDOMIZE)",
        "EPERM",
        "in_child(lambda: call(number(135, 92), 0x40000))",
    ),
    probe(
        "clone3",
        "ENOSYS",
        "arguments = struct.pack('=QQQQQQQQQQQ', 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)\n\
         if call(435, arguments, 88) == 0:\n    os._exit(0)",
    ),
    probe(
        "memory file with MFD_EXEC",
        "EACCES",
        "os.memfd_create('x', os.MFD_CLOEXEC | 0x10)",
    ),
    probe(
        "execveat of a file",
        "EPERM",
        "program = os.open('/usr/bin/true', os.O_RDONLY)\n\
         vector = struct.pack('=QQ', ctypes.addressof(ctypes.create_string_buffer(b'true')), 0)\n\
         in_child(lambda: call(number(322, 281), program, b'', vector, bytes(8), 0x1000))",
    ),
    probe(
        "execveat of a memory file",
        "EPERM",
        "program = os.memfd_create('x')\n\
         os.write(program, open('/usr/bin/true', 'rb').read())\n\
         vector = struct.pack('=QQ', ctypes.addressof(ctypes.create_string_buffer(b'true')), 0)\n\
         in_child(lambda: call(number(322, 281), program, b'', vector, bytes(8), 0x1000))",
    ),
];

/// Execution of a memory file through its path. The kernel denies it below a pid namespace if
/// `vm.memfd_noexec` is set; without namespaces the program would run, inside the same fence.
pub(super) const MEMORY_PROGRAM: Probe = probe(
    "exec of a memory file through /proc/self/fd",
    "EACCES",
    "program = os.memfd_create('x', 0)\n\
     os.write(program, open('/usr/bin/true', 'rb').read())\n\
     in_child(lambda: os.execv(f'/proc/self/fd/{program}', ['true']))",
);

/// Acts allowed only to root outside.
pub(super) const PRIVILEGED: &[Probe] = &[
    probe(
        "bpf",
        "EPERM",
        "call(number(321, 280), 0, struct.pack('=IIII', 2, 4, 4, 1).ljust(72, b'\\0'), 72)",
    ),
    probe(
        "open_by_handle_at",
        "EPERM",
        "handle = ctypes.create_string_buffer(struct.pack('=Ii', 128, 0), 136)\n\
         attempt(call, number(303, 264), -100, b'/usr', handle, ctypes.byref(ctypes.c_int()), 0)\n\
         call(number(304, 265), os.open('/usr', os.O_RDONLY), handle, os.O_RDONLY)",
    ),
    probe("fanotify_init", "EPERM", "call(number(300, 262), 0, 0)"),
    probe("syslog", "EPERM", "call(number(103, 116), 10, 0, 0)"),
    probe(
        "sethostname, to what it is",
        "EPERM",
        "name = os.uname().nodename.encode()\ncall(number(170, 161), name, len(name))",
    ),
];

/// The system calls of other architectures that the processor also accepts.
#[cfg(target_arch = "x86_64")]
pub(super) const FOREIGN: &[Probe] = &[
    // mov eax, 20 (getpid); int 0x80; ret
    probe(
        "an i386 call",
        "signal 31",
        "if machine_code(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3') != os.getpid():\n    raise OSError(errno.ENOSYS, '')",
    ),
    probe("an x32 call", "ENOSYS", "call(39 | 0x40000000)"),
    probe("iopl", "EPERM", "call(172, 0)"),
    probe(
        "modify_ldt",
        "EPERM",
        "call(154, 0, ctypes.create_string_buffer(16), 16)",
    ),
];

#[test]
fn kernel_interfaces_that_any_user_has_are_refused() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, SURFACE);
        deny_all(&fence, &[MEMORY_PROGRAM]);
    }
}

#[test]
fn kernel_interfaces_of_root_are_refused() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, PRIVILEGED);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_other_architectures_are_refused() {
    if let Some(fence) = Fence::root() {
        deny_all(&fence, FOREIGN);
    }
}
