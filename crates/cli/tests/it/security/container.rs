//! Threat: a machine that forbids namespaces. The remaining layers must hold alone, and be reported
//! correctly.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use super::exhaustion::processes_with;
use super::fence::{Fence, PYTHON, USER};
use super::probe::{Probe, deny, deny_all, probe, program, verdict};
use super::{kernel, namespaces, privileges, processes, sockets};
use crate::support::entries;

const FILES: &[Probe] = &[
    probe("the list of the root", "EACCES", "os.listdir('/')"),
    probe("the list of temporary files", "EACCES", "os.listdir('/tmp')"),
    probe(
        "the caller's file",
        "EACCES",
        "os.open(ARGS[0] + '/secret', os.O_RDONLY)",
    ),
    probe(
        "a new file of the caller",
        "EACCES",
        "open(ARGS[0] + '/work/new', 'x').close()\nos.unlink(ARGS[0] + '/work/new')",
    ),
    probe(
        "a new temporary file",
        "EACCES",
        "open('/tmp/new', 'x').close()\nos.unlink('/tmp/new')",
    ),
    probe(
        "a new file in shared memory",
        "EACCES",
        "open('/dev/shm/new', 'x').close()\nos.unlink('/dev/shm/new')",
    ),
    probe(
        "another name for the caller's file",
        "EACCES",
        "os.rename(ARGS[0] + '/secret', ARGS[0] + '/other')\nos.rename(ARGS[0] + '/other', ARGS[0] + '/secret')",
    ),
    probe(
        "the kernel's settings",
        "EACCES",
        "os.open('/proc/sys/kernel/hostname', os.O_RDONLY)",
    ),
    probe("control groups", "EACCES", "os.listdir('/sys/fs/cgroup')"),
    probe(
        "a new link of the caller",
        "EACCES",
        "os.symlink('x', ARGS[0] + '/work/link')\nos.unlink(ARGS[0] + '/work/link')",
    ),
];

const FILES_OF_ROOT: &[Probe] = &[
    probe(
        "passwords",
        "EACCES",
        "attempt(os.close, attempt(os.open, '/etc/shadow-', os.O_CREAT, 0o600))\nos.open('/etc/shadow-', os.O_RDONLY)",
    ),
    probe(
        "a new program",
        "EACCES",
        "open('/usr/bin/new', 'x').close()\nos.unlink('/usr/bin/new')",
    ),
    probe(
        "the list of users",
        "EACCES",
        "os.open('/etc/passwd', os.O_WRONLY)",
    ),
    probe("setuid", "EPERM", "in_child(lambda: call(number(105, 146), 0))"),
];

/// Socket families that need no network.
const SOCKETS: &[Probe] = &[
    probe(
        "TCP to loopback",
        "EACCES",
        "listener = socket.socket()\nlistener.bind(('127.0.0.1', 0))\nlistener.listen()\n\
         socket.socket().connect(listener.getsockname())",
    ),
    probe("a Unix socket", "EPERM", "socket.socket(socket.AF_UNIX)"),
    probe(
        "a pair that can be sent from",
        "EPERM",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    ),
    probe(
        "shared memory of System V",
        "EPERM",
        "call(number(29, 194), 0, 4096, 0o1600)",
    ),
    probe(
        "a message queue",
        "EPERM",
        "call(number(240, 180), b'ringfence-test', os.O_CREAT | os.O_RDWR, 0o600, 0)\ncall(number(241, 181), b'ringfence-test')",
    ),
];

const OTHERS: &[Probe] = &[
    probe("a signal", "EPERM", "os.kill(int(ARGS[0]), 0)"),
    probe(
        "the environment",
        "EACCES",
        "os.open(f'/proc/{ARGS[0]}/environ', os.O_RDONLY)",
    ),
    probe(
        "the memory",
        "EACCES",
        "os.open(f'/proc/{ARGS[0]}/mem', os.O_RDONLY)",
    ),
    probe(
        "the working directory",
        "EACCES",
        "os.listdir(f'/proc/{ARGS[0]}/cwd')",
    ),
    probe(
        "the arguments",
        "EACCES",
        "os.open(f'/proc/{ARGS[0]}/cmdline', os.O_RDONLY)",
    ),
    probe(
        "PTRACE_SEIZE",
        "EPERM",
        "call(number(101, 117), 0x4206, int(ARGS[0]), 0, 0)",
    ),
    probe(
        "the limits",
        "EPERM",
        "import resource\nresource.prlimit(int(ARGS[0]), resource.RLIMIT_CORE)",
    ),
];

#[test]
fn the_result_says_which_layers_there_are() {
    for user in [0, USER] {
        let Some(fence) = Fence::container(user) else {
            return;
        };
        let result = fence.result(&[], "import os\nprint(os.getuid())");
        let uid = if user == 0 { 65534 } else { user };
        assert_eq!(result["stdout"], format!("{uid}\n"), "{result:#}");
        let isolation = &result["meta"]["isolation"];
        for layer in [
            "user_ns",
            "pid_ns",
            "mount_ns",
            "net_ns",
            "ipc_ns",
            "uts_ns",
            "cgroup_ns",
            "time_ns",
        ] {
            assert_eq!(isolation[layer], false, "{layer}: {result:#}");
        }
        assert_eq!(isolation["seccomp"], "fence");
        assert_eq!(isolation["no_new_privs"], true);
        assert_eq!(isolation["capabilities_dropped"], true);
        assert!(isolation["landlock_abi"].as_u64().unwrap() > 0);

        let refused = fence.inside(&["--isolation", "required"], "print('ran')", &[]);
        assert_eq!(
            (refused.status, refused.stdout.as_str()),
            (125, ""),
            "{refused:?}"
        );
        let lines: Vec<&str> = refused.stderr.lines().collect();
        assert!(
            lines.len() == 2 && lines[0].starts_with("error: ") && lines[1].starts_with("hint: "),
            "{refused:?}"
        );

        let status = fence.printed(&[], privileges::STATUS);
        for line in [
            "CapPrm 0",
            "CapEff 0",
            "CapInh 0",
            "CapAmb 0",
            "NoNewPrivs 1",
            "Seccomp 2",
            "core (0, 0)",
        ] {
            assert!(status.lines().any(|found| found == line), "{line}: {status}");
        }
    }
}

fn files_and_sockets(user: u32) {
    let Some(fence) = Fence::container(user) else {
        return;
    };
    fence.dir.write("secret", "secret");
    let place = fence.dir.path("");
    for probe in FILES {
        deny(
            &fence,
            &[],
            probe,
            &[place.to_str().unwrap().trim_end_matches('/')],
        );
    }
    deny_all(&fence, SOCKETS);
    if user == 0 {
        deny_all(&fence, FILES_OF_ROOT);
    }
}

#[test]
fn files_and_sockets_are_out_of_reach_of_root() {
    files_and_sockets(0);
}

#[test]
fn files_and_sockets_are_out_of_reach_of_a_user() {
    files_and_sockets(USER);
}

fn surface(user: u32) {
    let Some(fence) = Fence::container(user) else {
        return;
    };
    for probes in [
        kernel::SURFACE,
        namespaces::SURFACE,
        processes::SURFACE,
        sockets::SURFACE,
    ] {
        deny_all(&fence, probes);
    }
}

#[test]
fn the_kernels_surface_is_as_small_for_root() {
    surface(0);
}

#[test]
fn the_kernels_surface_is_as_small_for_a_user() {
    surface(USER);
}

/// Starts a process of the same user in the same container; returns its pid there.
pub(super) fn neighbour(fence: &Fence) -> (Child, String) {
    let mut command = fence.command(Path::new(PYTHON));
    let code = "import os\nprint(os.getpid(), flush=True)\ninput()";
    let mut child = command
        .args(["-I", "-c", code])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    (child, line.trim().to_owned())
}

fn other_processes(user: u32) {
    let Some(fence) = Fence::container(user) else {
        return;
    };
    let (mut child, pid) = neighbour(&fence);
    for probe in OTHERS {
        deny(&fence, &[], probe, &[&pid]);
    }
    for (act, verdict_inside) in [
        ("os.kill(os.getppid(), signal.SIGKILL)", "errno EPERM"),
        ("os.killpg(int(ARGS[0]), signal.SIGKILL)", "errno EPERM"),
        // The kernel does not report that no process could be signalled.
        ("os.kill(-1, signal.SIGKILL)", "ok"),
    ] {
        let output = fence.inside(&[], &program(act), &[&pid]);
        assert_eq!(verdict(&output), verdict_inside, "{act}");
    }
    assert!(child.try_wait().unwrap().is_none());
    drop(child.stdin.take());
    // It ended at the end of its input, with EOFError, and not by a signal.
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn other_processes_are_out_of_reach_of_root() {
    other_processes(0);
}

#[test]
fn other_processes_are_out_of_reach_of_a_user() {
    other_processes(USER);
}

#[test]
fn nothing_is_left_in_the_container() {
    for user in [0, USER] {
        let Some(fence) = Fence::container(user) else {
            return;
        };
        let mark = format!("RINGFENCE_TEST={}-{}-{user}", std::process::id(), line!());
        let code = "import os, signal\n\
                    for number in range(1, 32):\n    \
                        if number not in (signal.SIGKILL, signal.SIGSTOP): signal.signal(number, signal.SIG_IGN)\n\
                    for _ in range(4):\n    \
                        if os.fork() == 0:\n        \
                            os.setsid()\n        \
                            if os.fork() == 0: os.close(1); os.close(2)\n        \
                            while True: signal.pause()\n\
                    open('file', 'w').write('x')\n\
                    print('done')";
        assert_eq!(fence.printed(&["--env", &mark], code), "done\n");
        assert_eq!(processes_with(&mark), [0; 0]);
        let bomb = fence.inside(
            &["--env", &mark, "--timeout", "1s", "--pids", "24"],
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
            &[],
        );
        assert_eq!(bomb.status, 124, "{bomb:?}");
        assert_eq!(processes_with(&mark), [0; 0]);
        assert_eq!(
            fence
                .outside("import os\nprint(os.listdir('/tmp'))", &[])
                .ok()
                .matches("ringfence")
                .count(),
            0
        );
        assert_eq!(entries(&fence.dir.path("work")), [""; 0]);
    }
}

/// Two runs of the same user share the directory of temporary files, and nothing in it.
#[test]
fn the_places_of_another_run_are_closed() {
    for user in [0, USER] {
        let Some(fence) = Fence::container(user) else {
            return;
        };
        let code = "import os\nopen('secret', 'w').close()\nprint(os.getcwd(), flush=True)\ninput()";
        let mut command = fence.ringfence(&["--stdin", "-", "-c", code]);
        let mut first = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut place = String::new();
        BufReader::new(first.stdout.as_mut().unwrap())
            .read_line(&mut place)
            .unwrap();
        for act in [
            "os.listdir(ARGS[0])",
            "os.open(ARGS[0] + '/secret', os.O_RDONLY)",
            "open(ARGS[0] + '/planted', 'x')",
        ] {
            let output = fence.inside(&[], &program(act), &[place.trim()]);
            assert_eq!(verdict(&output), "errno EACCES", "{act}");
        }
        drop(first.stdin.take());
        first.wait().unwrap();
    }
}
