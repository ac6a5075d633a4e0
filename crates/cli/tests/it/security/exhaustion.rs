//! Threat: a guest that exhausts the machine.

use serde_json::json;

use super::fence::Fence;
use super::probe::{deny, probe};
use crate::world::{Mode, Place, World, play};

fn limit_disk(fence: &Fence, size: &str) {
    let config = format!("[sandbox]\ndisk = '{size}'\n");
    fence.dir.write("config/ringfence/ringfence.toml", config);
}

#[test]
fn processes_are_counted() {
    let Some(fence) = Fence::root() else { return };
    let children = probe(
        "forty children",
        "EAGAIN",
        "for _ in range(40):\n    waiting_child()",
    );
    deny(&fence, &["--pids", "16"], &children, &[]);
    let threads = probe(
        "forty threads",
        "EAGAIN",
        "import threading\n\
         end = threading.Event()\n\
         try:\n    \
             for _ in range(40):\n        threading.Thread(target=end.wait, daemon=True).start()\n\
         except RuntimeError:\n    raise OSError(errno.EAGAIN, '')\n\
         finally:\n    end.set()",
    );
    deny(&fence, &["--pids", "16"], &threads, &[]);
}

/// Blocks beyond a file's size are not in its size.
#[test]
fn no_file_has_more_of_the_disk_than_its_size() {
    let Some(fence) = Fence::root() else { return };
    let kept = probe(
        "fallocate beyond the size",
        "ENOTSUP",
        "import ctypes, tempfile\nlibc = ctypes.CDLL(None, use_errno=True)\nfile = tempfile.TemporaryFile(dir='.')\n\
         if libc.fallocate(file.fileno(), 1, ctypes.c_long(0), ctypes.c_long(1 << 20)):\n    \
             raise OSError(ctypes.get_errno(), '')",
    );
    // `struct space_resv`: SEEK_SET, from the start, of this length.
    let reserved = probe(
        "FS_IOC_RESVSP",
        "EPERM",
        "import ctypes, struct, tempfile\nlibc = ctypes.CDLL(None, use_errno=True)\nfile = tempfile.TemporaryFile(dir='.')\n\
         space = struct.pack('hxxxxxxqqiI16x', 0, 0, 1 << 20, 0, 0)\n\
         if libc.ioctl(file.fileno(), ctypes.c_ulong(0x40305828), space):\n    \
             raise OSError(ctypes.get_errno(), '')",
    );
    let directory = fence.dir.path("work").display().to_string();
    for probe in [kept, reserved] {
        deny(&fence, &["-w", &directory], &probe, &[]);
    }
}

/// Files of a call have their workspace in memory, where a file that is open and has no name counts, too.
#[test]
fn files_of_a_call_bring_no_room_on_the_disk() {
    let code = "import os\nopen_files = []\nprint(open('in/a.txt').read(), end=' ')\ntry:\n    for n in range(9):\n        \
                file = os.open('/workspace/f', os.O_RDWR | os.O_CREAT)\n        os.unlink('/workspace/f')\n        \
                open_files.append(file)\n        os.posix_fallocate(file, 0, 40 << 20)\n\
                except OSError as error:\n    print(n, error.strerror)";
    for (mode, session) in [
        (Mode::OneShot, None),
        (Mode::Engine, None),
        (Mode::Engine, Some("s")),
    ] {
        play(World::new(mode, Place::Here), |world| {
            let mut call = json!({"code": code, "files": {"in/a.txt": "given"}});
            if let Some(session) = session {
                call["session"] = session.into();
            }
            let answer = world.tool(&[], "run_code", &call);
            let stdout = answer["stdout"].as_str().unwrap_or_default();
            assert_eq!(stdout, "given 1 No space left on device\n", "{answer}");
        });
    }
}

#[test]
fn a_fork_bomb_ends_with_its_run() {
    let Some(fence) = Fence::root() else { return };
    let mark = format!("{}-{}", std::process::id(), line!());
    for (language, bomb) in [
        ("bash", "bomb() { bomb | bomb & }; bomb; while :; do :; done"),
        (
            "python",
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        ),
    ] {
        let variable = format!("RINGFENCE_TEST={mark}");
        let mut command = fence.ringfence(&["-l", language, "--pids", "32", "--timeout", "1s"]);
        let output = crate::support::finish(command.args(["--env", &variable, "-c", bomb]), b"");
        assert_eq!(output.status, 124, "{output:?}");
        assert_eq!(processes_with(&mark), [0; 0]);
    }
}

/// Returns the processes of this machine that have a text in their environment.
pub(super) fn processes_with(text: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| String::from_utf8_lossy(&environ).contains(text))
    })
    .collect()
}

/// Each of these takes more than 64 MiB of memory.
const TAKE: &[(&str, &str)] = &[
    ("the heap", "data = bytearray(200 << 20)"),
    ("/tmp", "open('/tmp/file', 'wb').write(bytes(1 << 20) * 200)"),
    (
        "the working directory",
        "file = open('file', 'wb')\nfor _ in range(200): file.write(bytes(1 << 20))",
    ),
    (
        "/output",
        "file = open('/output/file', 'wb')\nfor _ in range(200): file.write(bytes(1 << 20))",
    ),
    (
        "/dev/shm",
        "file = open('/dev/shm/file', 'wb')\nfor _ in range(200): file.write(bytes(1 << 20))",
    ),
    (
        "a memory file",
        "import os\nfd = os.memfd_create('x')\nfor _ in range(200): os.write(fd, bytes(1 << 20))",
    ),
    (
        "a shared mapping",
        "import mmap\nmmap.mmap(-1, 200 << 20).write(bytes(200 << 20))",
    ),
    (
        "pipes",
        // The kernel allows one user 64 MiB in large pipes; further pipes keep their 64 KiB.
        "import fcntl, os\n\
         pipes = [os.pipe() for _ in range(250)]\n\
         for _, pipe in pipes:\n    \
             os.set_blocking(pipe, False)\n    \
             try: fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)\n    \
             except PermissionError: pass\n    \
             try:\n        \
                 while True: os.write(pipe, bytes(1 << 16))\n    \
             except BlockingIOError: pass",
    ),
    (
        "buffers of sockets",
        "import socket\n\
         pairs = [socket.socketpair() for _ in range(240)]\n\
         for pair in pairs:\n    \
             pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20); pair[0].setblocking(False)\n    \
             try:\n        \
                 while True: pair[0].send(bytes(1 << 16))\n    \
             except BlockingIOError: pass",
    ),
    (
        "messages of System V",
        "import ctypes\nlibc = ctypes.CDLL(None)\n\
         message = (ctypes.c_char * 8200).from_buffer_copy(b'\\1' + bytes(8199))\n\
         for _ in range(12800):\n    \
             queue = libc.msgget(0, 0o1600)\n    \
             while libc.msgsnd(queue, message, 8192, 0o4000) == 0: pass",
    ),
    (
        "shared memory of System V",
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\n\
         ctypes.memset(ctypes.c_void_p(libc.shmat(libc.shmget(0, 200 << 20, 0o1600), None, 0)), 1, 200 << 20)",
    ),
];

#[test]
fn memory_counts_wherever_it_lies() {
    let Some(fence) = Fence::root() else { return };
    limit_disk(&fence, "1GiB");
    for (place, code) in TAKE {
        let result = fence.result(&["--memory", "64MiB", "--timeout", "20s"], code);
        let (outcome, status) = (&result["meta"]["outcome"], &result["exit_code"]);
        assert_eq!(
            (outcome.as_str(), status.as_i64()),
            (Some("memory_exceeded"), Some(-9)),
            "{place}: {result:#}"
        );
        let enough = fence.result(&["--memory", "512MiB", "--timeout", "20s"], code);
        assert_eq!(enough["meta"]["outcome"], "exited", "{place}: {enough:#}");
        assert_eq!(enough["exit_code"], 0, "{place}: {enough:#}");
    }
}

#[test]
fn memory_of_children_counts() {
    let Some(fence) = Fence::root() else { return };
    let code = "import os, signal\n\
                def take():\n    \
                    data = bytearray(25 << 20)\n    \
                    os.write(1, b'.')\n    \
                    signal.pause()\n\
                for _ in range(8):\n    \
                    if os.fork() == 0: take()\n\
                status = os.wait()[1]\n\
                print('', os.waitstatus_to_exitcode(status))";
    let result = fence.result(&["--memory", "96MiB", "--timeout", "20s"], code);
    let stdout = result["stdout"].as_str().unwrap();
    // The kernel killed only a child, so the outcome is the program's own exit.
    assert!(stdout.contains(" -9\n") && stdout.len() < 12, "{result:#}");
    assert_eq!(result["meta"]["outcome"], "exited", "{result:#}");
}

#[test]
fn the_disk_has_an_end() {
    let Some(fence) = Fence::root() else { return };
    limit_disk(&fence, "8MiB");
    for place in ["/tmp", "/workspace", "/output", "/dev/shm"] {
        // Outside the same reaches the same depth, in a directory of the test.
        let act = probe(
            "many files",
            "ENOSPC",
            "place = ARGS[0] if INSIDE else '.'\n\
             for n in range(12):\n    open(f'{place}/{n}', 'wb').write(bytes(1 << 20))",
        );
        deny(&fence, &[], &act, &[place]);
    }
    let inodes = probe(
        "very many files",
        "ENOSPC",
        "for n in range(20000):\n    os.close(os.open(f'n{n}', os.O_CREAT))",
    );
    deny(&fence, &[], &inodes, &[]);
    let long = probe(
        "a long file",
        "EFBIG",
        "file = os.open('long', os.O_CREAT | os.O_WRONLY)\nfor _ in range(9):\n    os.write(file, bytes(1 << 20))",
    );
    deny(&fence, &[], &long, &[]);
    let memory = probe(
        "a long memory file",
        "EFBIG",
        "file = os.memfd_create('x')\nfor _ in range(9):\n    os.write(file, bytes(1 << 20))",
    );
    deny(&fence, &[], &memory, &[]);
    let sparse = probe(
        "a file with a hole",
        "EFBIG",
        "os.truncate(os.open('hole', os.O_CREAT | os.O_WRONLY), 1 << 30)",
    );
    deny(&fence, &[], &sparse, &[]);
}

#[test]
fn open_files_are_counted() {
    let Some(fence) = Fence::root() else { return };
    let act = probe(
        "two thousand open files",
        "EMFILE",
        "import resource\n\
         hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n\
         for _ in range(2000):\n    os.dup(0)",
    );
    deny(&fence, &[], &act, &[]);
}
