//! Threat: a worker that was warm before its program came, and shares a parent with the workers of other
//! programs.

use super::fence::Fence;
use super::probe::{deny, deny_all, probe, program, verdict};
use super::{kernel, namespaces, privileges, processes, sockets};
use crate::support::finish;

#[test]
fn the_layers_are_those_of_a_fresh_program() {
    let Some(fence) = Fence::root() else { return };
    let fresh = fence.result(&[], "import os\nprint(os.getuid())");
    let fence = fence.with_engine();
    let warm = fence.result(&[], "import os\nprint(os.getuid())");
    assert_eq!(warm["meta"]["warm"], true, "{warm:#}");
    assert_eq!(warm["meta"]["isolation"], fresh["meta"]["isolation"]);
    assert_eq!(warm["stdout"], fresh["stdout"]);
    let status = fence.printed(&[], privileges::STATUS);
    for line in [
        "CapPrm 0",
        "CapEff 0",
        "CapInh 0",
        "CapBnd 0",
        "CapAmb 0",
        "NoNewPrivs 1",
        "Seccomp 2",
        "core (0, 0)",
    ] {
        assert!(status.lines().any(|found| found == line), "{line}: {status}");
    }
}

#[test]
fn kernel_interfaces_are_refused() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    deny_all(&fence, kernel::SURFACE);
    deny_all(&fence, &[kernel::MEMORY_PROGRAM]);
}

#[test]
fn namespaces_processes_and_sockets_are_refused() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    for probes in [namespaces::SURFACE, processes::SURFACE, sockets::SURFACE] {
        deny_all(&fence, probes);
    }
}

#[test]
fn an_ordinary_users_warm_workers_are_refused_the_same() {
    let Some(fence) = super::ordinary_user::fence().map(Fence::with_engine) else {
        return;
    };
    assert_eq!(fence.result(&[], "print(1)")["meta"]["warm"], true);
    for probes in [namespaces::SURFACE, processes::SURFACE, sockets::SURFACE] {
        deny_all(&fence, probes);
    }
}

#[test]
fn files_of_the_host_and_the_engine_are_not_there() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    for (name, path) in [
        ("the server's socket", "run/ringfence/engine.sock"),
        ("the server's state", "state/ringfence"),
    ] {
        let act = probe(name, "ENOENT", "os.stat(ARGS[0])");
        deny(&fence, &[], &act, &[fence.dir.path(path).to_str().unwrap()]);
    }
    let connect = probe(
        "the server",
        "ENOENT",
        "socket.socket(socket.AF_UNIX).connect(ARGS[0])",
    );
    deny(
        &fence,
        &[],
        &connect,
        &[fence.dir.path("run/ringfence/engine.sock").to_str().unwrap()],
    );
    let act = probe(
        "a program of the system",
        "EACCES",
        "os.open('/usr/bin/env', os.O_WRONLY)",
    );
    deny(&fence, &[], &act, &[]);
}

#[test]
fn nothing_of_the_engine_arrives() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    let code = "import os\n\
                print(sorted(os.environ))\n\
                print('s3cret' in open('/proc/self/environ').read())\n\
                for fd in range(3, 1024):\n    \
                    try: print(fd, os.readlink(f'/proc/self/fd/{fd}'))\n    \
                    except FileNotFoundError: pass\n\
                print(os.getppid(), os.getsid(0) == os.getpid(), [name for name in os.listdir('/proc') if name.isdigit()] == [str(os.getpid())])";
    let output = finish(fence.ringfence(&["-c", code]).env("API_KEY", "s3cret"), b"");
    let names = "['HOME', 'LANG', 'LOGNAME', 'MPLCONFIGDIR', 'PATH', 'PIP_RETRIES', 'RINGFENCE_OUTPUT', 'SHELL', 'TMPDIR', 'USER', 'npm_config_fetch_retries']";
    assert_eq!(output.ok(), format!("{names}\nFalse\n0 True True\n"));
}

#[test]
fn a_run_finds_nothing_of_the_one_before() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    let code = "import builtins, os, random, sys\n\
                places = ['/tmp', '/dev/shm', '/workspace', '/output']\n\
                print([os.listdir(place) for place in places], hasattr(builtins, 'planted'), 'planted' in sys.modules)\n\
                builtins.planted = sys.modules['planted'] = 1\n\
                sys.path.insert(0, '/tmp')\n\
                for place in places: open(place + '/planted.py', 'w').close()\n\
                print(random.random(), os.urandom(4).hex())";
    let mut seen = Vec::new();
    for _ in 0..6 {
        let printed = fence.printed(&[], code);
        let (state, random) = printed.split_once('\n').unwrap();
        assert_eq!(state, "[[], [], [], []] False False");
        seen.push(random.to_owned());
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6, "random numbers came twice");
}

/// A worker receives its job through a channel to the server.
#[test]
fn a_guest_cannot_speak_for_the_worker() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    let code = "import gc, os, socket\n\
                forged = b'{\"Exited\": {\"id\": 1, \"status\": 0, \"cpu_micros\": 0, \"max_rss\": 0}}\\n'\n\
                for fd in range(3, 64):\n    \
                    try: os.write(fd, forged)\n    \
                    except OSError: pass\n\
                print(sum(isinstance(thing, socket.socket) and thing.fileno() >= 0 for thing in gc.get_objects()), flush=True)\n\
                os._exit(7)";
    let result = fence.result(&[], code);
    assert_eq!(
        (result["meta"]["outcome"].as_str(), result["exit_code"].as_i64()),
        (Some("exited"), Some(7))
    );
    assert_eq!(result["stdout"], "0\n");
}

#[test]
fn a_guest_cannot_end_the_zygote_or_its_siblings() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    let many = "for pid in [-1, 0 - os.getpgid(0) - 1, *range(2, 5000)]:\n    \
                    try:\n        \
                        if pid != os.getpid(): os.kill(pid, signal.SIGKILL); raise OSError(errno.EEXIST, '')\n    \
                    except ProcessLookupError: pass";
    assert_eq!(verdict(&fence.inside(&[], &program(many), &[])), "ok");
    assert_eq!(fence.result(&[], "print(1)")["stdout"], "1\n");
}

/// Runs of different users have separate launchers.
#[test]
fn scopes_share_no_process() {
    let Some(fence) = Fence::root().map(Fence::with_engine) else {
        return;
    };
    let code = "import os\nprint(sorted(os.readlink('/proc/self/ns/' + name) for name in ('user', 'pid', 'mnt', 'net', 'ipc')))";
    let ann = fence.printed(&["--user", "ann"], code);
    let bob = fence.printed(&["--user", "bob"], code);
    assert_ne!(ann, bob);
    // Two copies of one zygote would share its memory layout.
    let layout = "print(next(line.split()[0] for line in open('/proc/self/maps') if 'libc.so' in line))";
    assert_ne!(
        fence.printed(&["--user", "ann"], layout),
        fence.printed(&["--user", "bob"], layout)
    );
}
