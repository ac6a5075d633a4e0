//! The ends of warm programs: one that is alone in its cell is known to end before the kernel has taken it
//! apart, and nobody can tell.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::world::{Mode, Place, World, play};

fn engine(scenario: impl Fn(&World)) {
    play(World::new(Mode::Engine, Place::Here), scenario);
}

#[test]
fn every_status_is_the_programs_own() {
    engine(|world| {
        for status in 0..=255_u8 {
            let run = world.json(["-c", &format!("import sys; sys.exit({status})")]);
            run.ended("exited", status.into(), status.into());
            assert_eq!(run.get("meta.warm"), true, "{run:?}");
        }
    });
}

/// A program's end with its outcome, exit code and standard output.
struct End {
    code: &'static str,
    outcome: &'static str,
    exit_code: i64,
    stdout: &'static str,
}

const fn exited(code: &'static str, exit_code: i64, stdout: &'static str) -> End {
    End {
        code,
        outcome: "exited",
        exit_code,
        stdout,
    }
}

/// `LAST_EXIT` in `crates/seccomp/src/lib.rs` is the mark of an exit that is announced; programs may use it.
const ENDS: &[End] = &[
    exited("print('a', end='')\n1/0", 1, "a"),
    exited("import os; print('b', flush=True); os._exit(7)", 7, "b\n"),
    exited(
        "import os; print('c', flush=True); os._exit(0x52460000 | 9)",
        9,
        "c\n",
    ),
    exited(
        "import os, sys\nif os.fork() == 0:\n    print('d', flush=True)\n    sys.exit(4)\nprint(os.wait()[1] >> 8); sys.exit(5)",
        5,
        "d\n4\n",
    ),
    exited(
        "import os, threading, time\nthreading.Thread(target=lambda: os._exit(0x52460000 | 6)).start()\ntime.sleep(100)",
        6,
        "",
    ),
    exited(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()\nprint('e')",
        0,
        "e\n",
    ),
    exited(
        "import threading, time, sys\nthreading.Thread(target=lambda: print('f')).start()\nsys.exit(8)",
        8,
        "f\n",
    ),
    exited(
        "import atexit, sys; atexit.register(print, 'g'); sys.exit(3)",
        3,
        "g\n",
    ),
    exited(
        "import os; os.execv('/bin/sh', ['sh', '-c', 'echo h; exit 12'])",
        12,
        "h\n",
    ),
    exited(
        "import subprocess, sys; subprocess.Popen(['sleep', '1000']); print('i'); sys.exit(2)",
        2,
        "i\n",
    ),
    exited(
        "import os, sys\nif os.fork() == 0:\n    os.setsid()\n    while True: os.write(1, b'')\nsys.exit(2)",
        2,
        "",
    ),
    exited(
        "import subprocess; print(subprocess.run(['sh', '-c', 'echo j; exit 3']).returncode)",
        0,
        "j\n3\n",
    ),
    exited(
        "from multiprocessing import Pool\nif __name__ == '__main__':\n    print(sum(Pool(2).map(abs, range(-9, 0))))",
        0,
        "45\n",
    ),
    End {
        code: "import os; print('k', flush=True); os.kill(os.getpid(), 9)",
        outcome: "signalled",
        exit_code: -9,
        stdout: "k\n",
    },
    End {
        code: "import os, threading; threading.Thread(target=os.abort).start(); import time; time.sleep(100)",
        outcome: "signalled",
        exit_code: -6,
        stdout: "",
    },
];

#[test]
fn every_way_to_end_is_told_right() {
    engine(|world| {
        for end in ENDS {
            let run = world.json(["-c", end.code]);
            let status = match end.exit_code {
                signal @ ..0 => 128 - signal as i32,
                status => status as i32,
            };
            run.ended(end.outcome, end.exit_code, status);
            assert_eq!(run.stdout(), end.stdout, "{}: {run:?}", end.code);
            assert_eq!(run.get("meta.warm"), true, "{run:?}");
            assert!(
                run.get("meta.cpu_seconds")
                    .as_f64()
                    .is_some_and(|time| time > 0.0),
                "{run:?}"
            );
            assert!(
                run.get("meta.peak_memory_bytes")
                    .as_u64()
                    .is_some_and(|bytes| bytes > 0),
                "{run:?}"
            );
        }
    });
}

/// As much as a pipe can be made to hold is written at once, and the exit follows at once.
const FULL_PIPES: &str = "
import fcntl, os
for stream in (1, 2):
    fcntl.fcntl(stream, 1031, 1 << 20)
for stream in (1, 2):
    assert os.write(stream, b'x' * (1 << 20)) == 1 << 20
open('/output/last', 'w').write('y' * 100_000)
";

#[test]
fn what_comes_right_before_the_end_is_not_lost() {
    engine(|world| {
        for _ in 0..20 {
            let run = world.json(["--max-output", "2MiB", "-c", FULL_PIPES]);
            run.ended("exited", 0, 0);
            for stream in ["stdout", "stderr"] {
                assert_eq!(run.get(stream).as_str().unwrap().len(), 1 << 20, "{stream}");
            }
            assert_eq!(
                run.get("meta.output_files"),
                &serde_json::json!([{"path": "last", "bytes": 100_000}])
            );
        }
    });
}

/// Without this, the tests above would pass although every run takes the slow way.
#[test]
fn the_server_is_the_one_that_listens() {
    engine(|world| {
        let pid = world.engine_pid().unwrap();
        let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let targets = files.filter_map(|entry| fs::read_link(entry.path()).ok());
        let listeners = targets.filter(|target| target.to_string_lossy().contains("seccomp notify"));
        assert!(listeners.count() > 0, "Linux 5.19 has what this needs");
        let inside = "
import os
for number in os.listdir('/proc/self/fd'):
    if os.path.exists(f'/proc/self/fd/{number}'):
        print(os.readlink(f'/proc/self/fd/{number}'))
";
        let run = world.json(["-c", inside]);
        assert!(
            run.stdout().contains("pipe") && !run.stdout().contains("seccomp"),
            "{run:?}"
        );
    });
}

/// Processes that a program leaves are gone with its result, however busy they keep the processor of its cell: what they
/// wrote afterwards would get past every check of the workspace that is made at its beginning.
#[test]
fn nothing_runs_once_the_result_is_there() {
    const LEAVE: &str = "import os, time\n\
        late = os.open('late', os.O_CREAT | os.O_APPEND | os.O_WRONLY)\n\
        for _ in range(50):\n    \
            if os.fork() == 0:\n        \
                while True: os.write(late, b'.')\n\
        while os.fstat(late).st_size < 1000: time.sleep(0.01)\n";
    const LEAVE_BY_BASH: &str = "exec 9>> late; for _ in $(seq 50); do (while :; do printf . >&9; done) & done; \
        while [ $(stat -c %s late) -lt 1000 ]; do sleep 0.01; done; exit 4";
    for mode in [Mode::OneShot, Mode::Engine] {
        play(World::new(mode, Place::Here), |world| {
            let workspace = world.dir.path("work/project");
            fs::create_dir_all(&workspace).unwrap();
            let late = workspace.join("late");
            let check = |args: &[&str], status: i64| {
                let within = ["--workspace", "project", "--cpus", "0.2"];
                let run = world.json([&within, args].concat());
                assert_eq!(holders(&late), Vec::<PathBuf>::new(), "{args:?}");
                assert_eq!(run.get("exit_code"), status, "{run:?}");
                fs::remove_file(&late).unwrap();
            };
            check(&["-c", &format!("{LEAVE}os._exit(3)")], 3);
            check(&["-c", &format!("{LEAVE}os.kill(os.getpid(), 11)")], -11);
            check(&["-l", "bash", "-c", LEAVE_BY_BASH], 4);
            if mode == Mode::Engine {
                check(&["--session", "s", "-c", &format!("{LEAVE}os._exit(5)")], 5);
            }
        });
    }
}

/// Returns the open descriptors of a file, of all processes, by their paths.
fn holders(file: &Path) -> Vec<PathBuf> {
    let identity = |found: Metadata| (found.dev(), found.ino());
    let wanted = identity(fs::metadata(file).unwrap());
    // Processes end meanwhile.
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let descriptors = entries("/proc".into()).flat_map(|process| entries(process.path().join("fd")));
    let is_open = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| identity(found) == wanted);
    descriptors.map(|entry| entry.path()).filter(is_open).collect()
}
