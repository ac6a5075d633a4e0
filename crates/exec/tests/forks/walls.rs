//! Tests the isolation of forks. Each act is shown to succeed without the isolation.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use crate::Test;
use crate::launcher::{Guest, TestLauncher};

pub(crate) const TESTS: &[Test] = &[
    (
        "walls::a_fork_goes_on_where_the_session_was",
        a_fork_goes_on_where_the_session_was,
    ),
    ("walls::every_namespace_is_its_own", every_namespace_is_its_own),
    (
        "walls::forks_cannot_signal_each_other",
        forks_cannot_signal_each_other,
    ),
    (
        "walls::forks_cannot_read_each_other",
        forks_cannot_read_each_other,
    ),
    (
        "walls::forks_cannot_reach_each_others_objects",
        forks_cannot_reach_each_others_objects,
    ),
    (
        "walls::open_files_stay_with_the_session",
        open_files_stay_with_the_session,
    ),
    ("walls::shared_memory_is_refused", shared_memory_is_refused),
    ("walls::namespaces_cannot_be_joined", namespaces_cannot_be_joined),
    (
        "walls::mounts_alone_keep_a_session_from_writing",
        mounts_alone_keep_a_session_from_writing,
    ),
    ("walls::files_are_copied", files_are_copied),
    (
        "walls::files_that_cannot_be_copied_fail_the_fork",
        files_that_cannot_be_copied_fail_the_fork,
    ),
];

fn a_fork_goes_on_where_the_session_was() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    session.evaluate("import json\nx = [1]\nos.mkdir('/workspace/d')\nos.chdir('/workspace/d')");
    let mut fork = launcher.fork(&mut session).unwrap();
    assert_eq!(fork.applied, session.applied);
    assert!(fork.applied.capabilities_dropped && fork.applied.seccomp && fork.applied.no_new_privs);
    fork.evaluate("x.append(2)");
    assert_eq!(
        fork.evaluate("result = json.dumps(x), os.getcwd(), os.getuid()"),
        "('[1, 2]', '/workspace/d', 1000)"
    );
    assert_eq!(session.evaluate("result = x"), "[1]");
    let signs = "fields = dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines())\n\
        result = [int(fields[name], 16) for name in 'CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp'.split()]";
    assert_eq!(fork.evaluate(signs), "[0, 0, 0, 0, 0, 1, 2]");
    // A fork's child processes run, and are cleaned up.
    let program =
        "import subprocess\nresult = subprocess.run(['/bin/echo', 'hi'], capture_output=True).stdout";
    assert_eq!(fork.evaluate(program), "b'hi\\n'");
    launcher.end(fork.id);
    launcher.end(session.id);
}

fn every_namespace_is_its_own() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let mut forks = [0, 1].map(|_| launcher.fork(&mut session).unwrap());
    let mut grandchild = launcher.fork(&mut forks[0]).unwrap();
    for kind in ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "time"] {
        let code = format!("result = os.readlink('/proc/self/ns/{kind}')");
        let [first, second] = forks.each_mut().map(|fork| fork.evaluate(&code));
        let mut all = vec![session.evaluate(&code), first, second, grandchild.evaluate(&code)];
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4, "{kind}: {all:?}");
    }
}

/// Returns the process ids that a session can signal: its forks', which it cannot see otherwise.
fn numbers(session: &mut Guest) -> Vec<String> {
    // A process that has ended is seen until the session's init has reaped it.
    let code = "import time\n\
        processes = lambda: [name for name in os.listdir('/proc') if name.isdigit()]\n\
        until = time.monotonic() + 20\n\
        while processes() != ['2'] and time.monotonic() < until: time.sleep(0.01)\n\
        found = [pid for pid in range(3, 300) if attempt(lambda: os.kill(pid, 0)) == 'allowed']\n\
        result = ' '.join(str(pid) for pid in found), processes()";
    let told = session.evaluate(code);
    let (found, seen) = told.trim_matches(['(', ')']).split_once(", ").unwrap();
    assert_eq!(seen, "['2']", "a session sees itself alone");
    found
        .trim_matches('\'')
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

fn forks_cannot_signal_each_other() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let neighbour = "child = os.fork()\nif child == 0:\n    import time\n    time.sleep(60)\n\
        result = attempt(lambda: os.kill(child, 0))\nos.kill(child, 9)\nos.waitpid(child, 0)";
    assert_eq!(session.evaluate(neighbour), "allowed");
    let mut forks = [0, 1].map(|_| launcher.fork(&mut session).unwrap());
    let seen = numbers(&mut session);
    assert!(seen.len() >= 2, "the session sees its forks: {seen:?}");
    for number in seen {
        assert_eq!(
            forks[0].evaluate(&format!("result = attempt(lambda: os.kill({number}, 0))")),
            "ESRCH"
        );
    }
    assert_eq!(
        forks[0].evaluate("result = attempt(lambda: os.kill(-1, 9))"),
        "ESRCH"
    );
    assert_eq!(forks[1].evaluate("result = 'alive'"), "alive");
    assert_eq!(session.evaluate("result = 'alive'"), "alive");
}

fn forks_cannot_read_each_other() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let neighbour = "child = os.fork()\nif child == 0:\n    import time\n    time.sleep(60)\n\
        result = attempt(lambda: open(f'/proc/{child}/mem', 'rb').close())\nos.kill(child, 9)\nos.waitpid(child, 0)";
    assert_eq!(session.evaluate(neighbour), "allowed");
    let mut forks = [0, 1].map(|_| launcher.fork(&mut session).unwrap());
    for number in numbers(&mut session) {
        // The session's pid namespace is an ancestor of its forks': it may signal them, but not inspect them.
        for file in ["mem", "ns/mnt", "fd"] {
            let code = format!("result = attempt(lambda: os.open('/proc/{number}/{file}', 0))");
            assert_eq!(
                [forks[0].evaluate(&code), session.evaluate(&code)],
                ["ENOENT", "ENOENT"],
                "{file}"
            );
        }
    }
    let listed = forks[0]
        .evaluate("result = [name for name in os.listdir('/proc') if name.isdigit()] == [str(os.getpid())]");
    assert_eq!(listed, "True");
    forks[1].evaluate("open('/workspace/secret', 'w').close()");
    assert_eq!(
        forks[1].evaluate("result = attempt(lambda: os.stat('/workspace/secret'))"),
        "allowed"
    );
    for guest in [&mut forks[0], &mut session] {
        assert_eq!(
            guest.evaluate("result = attempt(lambda: os.stat('/workspace/secret'))"),
            "ENOENT"
        );
    }
}

/// Separates kernel objects: abstract sockets and System V shared memory.
fn forks_cannot_reach_each_others_objects() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let mut forks = [0, 1].map(|_| launcher.fork(&mut session).unwrap());
    forks[1].evaluate("server = socket.socket(socket.AF_UNIX)\nserver.bind('\\0here')\nserver.listen()");
    forks[1].evaluate("call('shmget', 77, 4096, 0o1666)");
    let connect = "result = attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0here'))";
    let attach = "result = attempt(lambda: call('shmget', 77, 4096, 0))";
    assert_eq!(forks[1].evaluate(connect), "allowed");
    assert_eq!(forks[1].evaluate(attach), "allowed");
    for guest in [&mut forks[0], &mut session] {
        assert_eq!(guest.evaluate(connect), "ECONNREFUSED");
        assert_eq!(guest.evaluate(attach), "ENOENT");
    }
}

fn open_files_stay_with_the_session() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    session.evaluate("file = open('/workspace/f', 'w+')\nfile.write('old')\nfile.flush()\nours, theirs = socket.socketpair()");
    let mut fork = launcher.fork(&mut session).unwrap();
    let write = "result = attempt(lambda: os.write(file.fileno(), b'new')), attempt(lambda: ours.send(b'x'))";
    assert_eq!(session.evaluate(write), "('allowed', 'allowed')");
    // The descriptor number stays occupied by a descriptor that can be neither read nor written.
    assert_eq!(fork.evaluate(write), "('EBADF', 'EBADF')");
    assert_eq!(
        fork.evaluate("another = open('/workspace/g', 'w')\nresult = another.fileno() == file.fileno()"),
        "False"
    );
    assert_eq!(fork.evaluate("result = open('/workspace/f').read()"), "old");
}

fn shared_memory_is_refused() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    session.evaluate("import mmap\nshared = mmap.mmap(-1, 4096)");
    let neighbour = "child = os.fork()\nif child == 0:\n    shared[0] = 7\n    os._exit(0)\nos.waitpid(child, 0)\nresult = shared[0]";
    assert_eq!(session.evaluate(neighbour), "7");
    let refused = launcher.fork(&mut session).err().unwrap();
    assert_eq!(
        refused,
        (
            "fork a session that shares memory (mmap, multiprocessing)".to_owned(),
            libc_errno::EPERM
        )
    );
    session.evaluate("shared.close()\nfile = open('/workspace/f', 'wb+')\nfile.truncate(4096)\nshared = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)");
    assert_eq!(launcher.fork(&mut session).err().unwrap().1, libc_errno::EPERM);
    session.evaluate("shared.close()");
    let fork = launcher.fork(&mut session).unwrap();
    launcher.end(fork.id);
}

/// Error numbers.
mod libc_errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOSPC: i32 = 28;
    pub(super) const ELOOP: i32 = 40;
}

/// Denies `setns` to processes without capabilities, although the filter permits it for a session's forks.
fn namespaces_cannot_be_joined() {
    let outside =
        "import ctypes, os\nfd = os.open('/proc/self/ns/uts', 0)\nprint(ctypes.CDLL(None).setns(fd, 0))";
    let mut python = Command::new("/usr/bin/python3");
    let mut child = python
        .args(["-I", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(outside.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        assert_eq!(String::from_utf8(said).unwrap(), "0\n");
    }
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let mut fork = launcher.fork(&mut session).unwrap();
    for guest in [&mut session, &mut fork] {
        for kind in ["pid", "mnt", "net", "ipc", "uts", "cgroup", "time"] {
            let code = format!(
                "fd = os.open('/proc/self/ns/{kind}', 0)\nresult = attempt(lambda: call('setns', fd, 0))"
            );
            assert_eq!(guest.evaluate(&code), "EPERM", "{kind}");
        }
        let own = "fd = os.open('/proc/self/ns/user', 0)\nresult = attempt(lambda: call('setns', fd, 0))";
        assert_eq!(guest.evaluate(own), "EINVAL", "the one that it is in");
        assert_eq!(
            guest.evaluate("result = attempt(lambda: call('unshare', 0x10000000))"),
            "EPERM"
        );
        assert_eq!(
            guest.evaluate("result = attempt(lambda: call('prctl', 24, 0, 0, 0, 0))"),
            "EPERM",
            "no CAP_SETPCAP"
        );
        // Capability version 3, our own process, and two sets with all bits.
        let raise = "head = (ctypes.c_uint32 * 2)(0x20080522, 0)\nbits = (ctypes.c_uint32 * 6)(*[0xffffffff] * 6)\n\
            result = attempt(lambda: call('capset', head, bits))";
        assert_eq!(guest.evaluate(raise), "EPERM");
        for shared in ["0x100", "0x200", "0x400"] {
            let clone = format!("result = attempt(lambda: sibling({shared}))");
            assert_eq!(guest.evaluate(&clone), "EPERM", "CLONE_PARENT with {shared}");
        }
    }
}

/// Relies on read-only mounts for a session: its Landlock rule is wide, so that it also fits its forks'
/// cells.
fn mounts_alone_keep_a_session_from_writing() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let mut fork = launcher.fork(&mut session).unwrap();
    for guest in [&mut session, &mut fork] {
        for place in ["/tmp", "/workspace", "/output", "/dev/shm"] {
            let code = format!("result = attempt(lambda: open('{place}/x', 'w').write('x'))");
            assert_eq!(guest.evaluate(&code), "allowed", "{place}");
        }
        for place in ["/", "/usr", "/etc", "/dev", "/cell", "/run", "/code"] {
            let code = format!("result = attempt(lambda: os.mkdir('{place}/made-by-a-session'))");
            assert_eq!(guest.evaluate(&code), "EROFS", "{place}");
        }
        assert_eq!(guest.evaluate("result = os.listdir('/cell')"), "[]");
        for file in [
            "/proc/self/comm",
            "/proc/self/oom_score_adj",
            "/proc/sys/kernel/msgmax",
            "/proc/self/uid_map",
        ] {
            let code = format!("result = attempt(lambda: os.open('{file}', os.O_WRONLY))");
            let met = guest.evaluate(&code);
            assert!(met == "EROFS" || met == "EACCES", "{file}: {met}");
        }
        assert_eq!(
            guest.evaluate("result = attempt(lambda: open('/dev/null', 'w').write('x'))"),
            "allowed"
        );
    }
}

fn files_are_copied() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    session.evaluate(
        "os.makedirs('/workspace/a/b')\nopen('/workspace/a/b/text', 'w').write('text')\n\
         os.chmod('/workspace/a/b/text', 0o640)\nos.utime('/workspace/a/b/text', (1, 1))\n\
         os.symlink('/etc/passwd', '/workspace/link')\nos.mkfifo('/workspace/fifo')\n\
         hole = open('/workspace/hole', 'wb')\nhole.seek(1 << 27)\nhole.write(b'end')\nhole.close()\n\
         open('/workspace/closed', 'w').write('c')\nos.chmod('/workspace/closed', 0)\n\
         server = socket.socket(socket.AF_UNIX)\nserver.bind('/tmp/socket')\nopen('/output/o', 'w').write('out')\n\
         open('/dev/shm/s', 'w').write('shm')",
    );
    let mut fork = launcher.fork(&mut session).unwrap();
    let look = "status = os.stat('/workspace/a/b/text')\n\
        result = (open('/workspace/a/b/text').read(), oct(status.st_mode), status.st_mtime, os.readlink('/workspace/link'), \
        os.path.exists('/workspace/fifo'), os.path.exists('/tmp/socket'), oct(os.stat('/workspace/closed').st_mode))";
    assert_eq!(
        fork.evaluate(look),
        "('text', '0o100640', 1.0, '/etc/passwd', False, False, '0o100000')"
    );
    let hole = "file = open('/workspace/hole', 'rb')\nfile.seek(1 << 27)\nstatus = os.stat('/workspace/hole')\n\
        result = file.read(), status.st_size, status.st_blocks < 100";
    assert_eq!(fork.evaluate(hole), "(b'end', 134217731, True)");
    assert_eq!(
        fork.evaluate("result = open('/output/o').read() + open('/dev/shm/s').read()"),
        "outshm"
    );
    // The launcher's handle refers to the copy.
    fork.evaluate("open('/output/new', 'w').close()");
    let handle = std::os::fd::AsRawFd::as_raw_fd(&fork.output);
    assert!(std::path::Path::new(&format!("/proc/self/fd/{handle}/new")).exists());
    assert_eq!(session.evaluate("result = os.listdir('/output')"), "['o']");
}

fn files_that_cannot_be_copied_fail_the_fork() {
    let mut launcher = TestLauncher::open();
    let mut session = launcher.session();
    let step = "copy the session's files".to_owned();
    session.evaluate("os.chdir('/tmp')\nfor _ in range(200):\n    os.mkdir('d')\n    os.chdir('d')\nos.chdir('/workspace')");
    assert_eq!(
        launcher.fork(&mut session).err().unwrap(),
        (step.clone(), libc_errno::ELOOP)
    );
    session.evaluate("import shutil\nshutil.rmtree('/tmp/d')\nopen('/tmp/big', 'wb').write(bytes(12 << 20))");
    let small = crate::launcher::Wish {
        disk_bytes: 8 << 20,
        ..crate::launcher::Wish::new(ringfence_jail::protocol::Guest::ForkOf { of: session.id })
    };
    assert_eq!(
        launcher.fork_as(&mut session, &small).err().unwrap(),
        (step, libc_errno::ENOSPC)
    );
    // The session is unaffected and can still be forked.
    let mut fork = launcher.fork(&mut session).unwrap();
    assert_eq!(
        fork.evaluate("result = os.stat('/tmp/big').st_size"),
        (12 << 20).to_string()
    );
}
