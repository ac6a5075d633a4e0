//! The server: it serves, it is the only one, it exits cleanly, and the next one removes what a killed one
//! left.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;

use serde_json::{Value, json};

use crate::leftovers::processes;
use crate::support::{eventually, eventually_none, finish};
use crate::world::{Mode, Place, World, play};

fn engine(scenario: impl Fn(&World)) {
    play(World::new(Mode::Engine, Place::Here), scenario);
}

/// Starts a long run, and waits for its first line `begun`.
fn lasting(world: &World, args: &[&str]) -> Child {
    let code = "import time; print('begun', flush=True); time.sleep(1000)";
    let mut child = world
        .call([args, &["--timeout", "300s", "-c", code]].concat())
        .start();
    let mut said = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"begun\n");
    child
}

/// A server that ends while clients wait: whoever was not accepted, or whose request was not read, has lost nothing.
#[test]
fn what_an_ending_server_has_not_read_is_run_without_it() {
    let world = World::new(Mode::Engine, Place::Here).unwrap();
    world.stop_engine("TERM");
    for read in [0, 1] {
        for (input, options) in [(None, &[][..]), (Some("given"), &["--stdin", "-"])] {
            let listener = UnixListener::bind(world.socket()).unwrap();
            let code = ["-c", "import sys; print(sys.stdin.read() or 'none')"];
            let call = world.call(options.iter().chain(&code));
            let mut running = call.start();
            let mut stdin = running.stdin.take().unwrap();
            stdin.write_all(input.unwrap_or_default().as_bytes()).unwrap();
            drop(stdin);
            let (mut client, _) = listener.accept().unwrap();
            // The rest of the request stays unread.
            client.read_exact(&mut vec![0; read]).unwrap();
            drop(client);
            drop(listener);
            fs::remove_file(world.socket()).unwrap();
            let output = running.wait_with_output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            assert_eq!(printed.trim(), input.unwrap_or("none"), "{:?}", output.stderr);
        }
    }
    world.close();
}

#[test]
fn runs_are_served_warm_and_without_it_cold() {
    engine(|world| {
        let served = world.json(["-c", "print('x')"]);
        assert_eq!(served.get("meta.warm"), true, "{served:?}");
        let other_user = world.json(["--user", "ann", "-c", "print('x')"]);
        other_user.ended("exited", 0, 0);
        let alone = world.json(["--no-engine", "-c", "print('x')"]);
        assert_eq!(alone.get("meta.warm"), false, "{alone:?}");
    });
}

/// Programs that print much of their environment.
const SHOWING: &[&[&str]] = &[
    &[
        "-c",
        "import sys; print(1); print(2, file=sys.stderr); sys.exit(3)",
    ],
    &["-c", "1/0"],
    &[
        "--memory",
        "64MiB",
        "--pids",
        "9",
        "--cpus",
        "0.5",
        "-c",
        "x = bytearray(200 << 20)",
    ],
    &["--timeout", "300ms", "-c", "while True: pass"],
    &[
        "-c",
        "import os; print(sorted(os.environ.items()), os.getpid(), os.getppid(), os.sched_getaffinity(0))",
    ],
    &[
        "-c",
        "import resource as r; print([(n, r.getrlimit(getattr(r, n))) for n in dir(r) if n.startswith('RLIMIT')])",
    ],
    &[
        "-c",
        "print(open('/proc/self/limits').read(), open('/proc/mounts').read().count('\\n'))",
    ],
    &[
        "-c",
        "import os; print(sorted(os.listdir('/')), os.umask(0), os.getpgrp(), os.getsid(0), sorted(os.listdir('/proc/self/fd')))",
    ],
    &[
        "-c",
        "import signal as s; print([(n.name, s.getsignal(n)) for n in s.valid_signals() if hasattr(n, 'name')], s.pthread_sigmask(s.SIG_BLOCK, []))",
    ],
    &[
        "-c",
        "import sys; print(sys.path, sys.flags, sys.argv, sys.executable, sys.stdin.encoding, sys.stdout.line_buffering, sys.getrecursionlimit())",
    ],
    &[
        "-c",
        "import threading, gc; print(threading.active_count(), threading.current_thread().name, gc.isenabled(), gc.get_threshold())",
    ],
    &[
        "-l",
        "bash",
        "-c",
        "env | sort; ulimit -a; ls -la / /tmp /workspace /output | grep -v '^total'; id",
        "--",
        "a",
    ],
    &[
        "-l",
        "javascript",
        "-c",
        "console.log(process.env, process.argv, process.version); process.exit(4)",
    ],
];

#[test]
fn the_result_is_the_same_with_and_without() {
    engine(|world| {
        for args in SHOWING {
            let mut results = [&["--no-engine"][..], &[]].map(|extra| {
                let mut result = world.json(extra.iter().chain(*args)).result;
                let meta = result["meta"].as_object_mut().unwrap();
                for varying in ["peak_memory_bytes", "cpu_seconds", "warm"] {
                    assert!(meta.remove(varying).is_some(), "{varying}");
                }
                if let Some(path) = meta.get_mut("artifact").filter(|path| path.is_string()) {
                    *path = json!("stored");
                }
                assert!(result.as_object_mut().unwrap().remove("duration").is_some());
                result
            });
            let [alone, served] = &mut results;
            without_times(alone);
            without_times(served);
            assert_eq!(alone, served, "{args:?}");
        }
    });
}

/// Removes the times that `ls -la` prints.
fn without_times(result: &mut Value) {
    let text = result["stdout"].as_str().unwrap();
    let lines = text.lines().map(
        |line| match line.split_once(" Nov ").or_else(|| line.split_once(':')) {
            Some((before, after)) if line.starts_with(['d', 'l', '-']) => {
                format!("{before} {}", after.rsplit(' ').next().unwrap_or_default())
            }
            _ => line.to_owned(),
        },
    );
    let text = lines.collect::<Vec<_>>().join("\n");
    result["stdout"] = Value::String(text);
}

#[test]
fn only_one_serves_a_state_directory() {
    engine(|world| {
        let second = finish(&mut world.command(&[], ["serve"]), b"");
        second.refused(125, "a server is already running");
        assert_eq!(
            world.json(["-c", "1"]).get("meta.warm"),
            true,
            "the first one still serves"
        );
    });
}

#[test]
fn the_socket_is_for_its_user_alone() {
    engine(|world| {
        let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&world.socket()), 0o600);
        assert_eq!(mode(world.socket().parent().unwrap()), 0o700);
    });
    // Root can open any socket, and is rejected by another user's nevertheless.
    play(World::new(Mode::Engine, Place::User), |world| {
        let mut stream = UnixStream::connect(world.socket()).unwrap();
        drop(stream.write_all(b"\0\0\0\0"));
        assert_eq!(stream.read(&mut [0; 64]).unwrap_or(0), 0);
        assert_eq!(world.json(["-c", "1"]).get("meta.warm"), true);
    });
}

#[test]
fn foreign_bytes_do_not_disturb_it() {
    engine(|world| {
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], b"\0", b"{}", b""] {
            let mut stream = UnixStream::connect(world.socket()).unwrap();
            drop(stream.write_all(garbage));
        }
        let idle: Vec<_> = (0..50)
            .map(|_| UnixStream::connect(world.socket()).unwrap())
            .collect();
        assert_eq!(world.json(["-c", "print(1)"]).get("meta.warm"), true);
        drop(idle);
    });
}

#[test]
fn it_ends_cleanly_under_load() {
    for signal in ["TERM", "INT"] {
        let world = World::new(Mode::Engine, Place::Here).unwrap();
        let children = [lasting(&world, &[]), lasting(&world, &["--user", "bob"])];
        assert_eq!(world.stop_engine(signal), Some(0), "{}", world.engine_log());
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(!output.status.success(), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.starts_with("error: "), "{said}");
        }
        world.close();
    }
}

#[test]
fn what_a_killed_one_leaves_is_cleared_by_the_next() {
    let world = World::new(Mode::Engine, Place::Here).unwrap();
    let child = lasting(&world, &[]);
    let mut in_shell = world
        .call(["-l", "bash", "-c", "echo begun; setsid sleep 1003 & sleep 1004"])
        .start();
    in_shell.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    assert_eq!(world.stop_engine("KILL"), Some(-1));
    for child in [child, in_shell] {
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(125));
    }
    // Without a server the client runs the program itself.
    assert_eq!(world.json(["-c", "print(1)"]).get("meta.warm"), false);
    world.start_engine();
    assert_eq!(world.json(["-c", "print(1)"]).get("meta.warm"), true);
    world.close();
}

#[test]
fn a_client_that_vanishes_takes_its_run_along() {
    engine(|world| {
        let mut child = lasting(world, &[]);
        let sleepers = || {
            let guests = processes()
                .into_iter()
                .filter(|process| process.command.contains("sleep 1005"));
            guests.map(|process| process.pid).collect::<Vec<_>>()
        };
        let mut shell = world.call(["-l", "bash", "-c", "sleep 1005"]).start();
        eventually("the program runs", || !sleepers().is_empty());
        for child in [&mut child, &mut shell] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        eventually_none("programs of clients that have gone", sleepers);
        assert_eq!(world.json(["-c", "print(1)"]).get("meta.warm"), true);
    });
}

#[test]
fn what_is_too_much_at_once_is_told_so() {
    let world = World::before_engine();
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[engine]\nmax_concurrent = 1\nqueue = 1\n",
    );
    world.start_engine();
    let mut running = lasting(&world, &[]);
    let waiting = world.call(["--timeout", "100s", "-c", "print('waited')"]).start();
    // Either of the two may get the place in the queue; the other is rejected at once.
    let third = world.call(["--timeout", "100s", "-c", "print('waited')"]).start();
    running.kill().unwrap();
    running.wait().unwrap();
    let outputs = [waiting, third].map(|child| child.wait_with_output().unwrap());
    let served = outputs
        .iter()
        .filter(|output| output.stdout == b"waited\n")
        .count();
    let busy = outputs.iter().filter(|output| {
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.code() == Some(125) && said.contains("busy") && said.contains("hint: ")
    });
    assert_eq!(served + busy.count(), 2, "{outputs:?}");
    assert!(served >= 1, "{outputs:?}");
    world.close();
}

#[test]
fn a_queue_without_places_turns_away() {
    let world = World::before_engine();
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[engine]\nmax_concurrent = 1\nqueue = 0\n",
    );
    world.start_engine();
    let mut running = lasting(&world, &[]);
    world.run(["-c", "print(1)"]).refused(125, "busy");
    running.kill().unwrap();
    running.wait().unwrap();
    eventually("there is room again", || {
        world.run(["-c", "print(1)"]).status == 0
    });
    world.close();
}

#[test]
fn many_at_once_get_each_their_own() {
    engine(|world| {
        let children: Vec<_> = (0..24)
            .map(|number| {
                let code = format!("import sys; print({number}, sys.stdin.read()); sys.exit({number})");
                let mut child = world.call(["--stdin", "-", "-c", &code]).start();
                write!(child.stdin.take().unwrap(), "in {number}").unwrap();
                child
            })
            .collect();
        for (number, child) in children.into_iter().enumerate() {
            let output = child.wait_with_output().unwrap();
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                format!("{number} in {number}\n")
            );
            assert_eq!(output.status.code(), Some(i32::try_from(number).unwrap()));
        }
    });
}

#[test]
fn modules_can_be_imported_beforehand() {
    let world = World::before_engine();
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[sandbox]\npreload = ['wave', 'no_such_module']\n",
    );
    world.start_engine();
    let loaded = world.json(["-c", "import sys; print('wave' in sys.modules)"]);
    assert_eq!(
        (loaded.stdout(), loaded.get("meta.warm")),
        ("True\n", &json!(true))
    );
    world.close();
}

#[test]
fn a_zygote_is_replaced_and_its_hash_seed_with_it() {
    let world = World::before_engine();
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[engine]\npool_size = 1\nrotate_after_runs = 3\n",
    );
    world.start_engine();
    let mut seeds = std::collections::BTreeSet::new();
    eventually("workers come from another zygote", || {
        let run = world.json(["-c", "print(hash('a'))"]);
        // A run without a pooled worker has its own Python, and its own seed.
        if run.get("meta.warm") == true {
            seeds.insert(run.stdout().to_owned());
        }
        seeds.len() > 1
    });
    world.close();
}

/// Successive programs share neither a hash seed nor a memory layout, although both use pooled workers.
#[test]
fn a_pool_that_rests_is_replaced() {
    let world = World::before_engine();
    world
        .dir
        .write("config/ringfence/ringfence.toml", "[engine]\npool_size = 2\n");
    world.start_engine();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..2 {
        eventually("a worker waits", || {
            world.json(["-c", "1"]).get("meta.warm") == true
        });
        let before = interpreters_below(world.engine_pid().unwrap());
        assert!(before.len() > 1, "{before:?}");
        let run = world.json(["-c", "print(hash('a'), id(int))"]);
        assert_eq!(run.get("meta.warm"), true, "{run:?}");
        assert!(seen.insert(run.stdout().to_owned()), "{run:?}");
        eventually_none("the zygote and its workers have gone", || {
            let now = interpreters_below(world.engine_pid().unwrap());
            before.intersection(&now).copied().collect()
        });
    }
    world.close();
}

/// Returns the Python processes below this one.
fn interpreters_below(pid: u32) -> std::collections::BTreeSet<u32> {
    let children = |pid: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let pids: Vec<u32> = lists
            .flat_map(|list| {
                list.split_whitespace()
                    .map(|pid| pid.parse().unwrap())
                    .collect::<Vec<_>>()
            })
            .collect();
        pids
    };
    let is_python = |pid: &u32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        program.is_ok_and(|program| program.to_string_lossy().contains("python"))
    };
    let mut found = children(pid);
    let mut next = 0;
    while next < found.len() {
        found.extend(children(found[next]));
        next += 1;
    }
    found.into_iter().filter(is_python).collect()
}

/// A run in a control group that was used before is charged for nothing of the runs before it.
#[test]
fn what_a_run_used_is_charged_to_no_other() {
    engine(|world| {
        let used = |run: &crate::world::Run| {
            (
                run.get("meta.peak_memory_bytes").as_u64(),
                run.get("meta.cpu_seconds").as_f64(),
            )
        };
        for _ in 0..6 {
            let greedy = "import time\nx = bytearray(60 << 20)\nwhile time.process_time() < 0.3: pass";
            let (memory, time) = used(&world.json(["-c", greedy]));
            assert!(memory.is_none_or(|bytes| bytes > 60 << 20), "{memory:?}");
            assert!(time.is_some_and(|seconds| seconds > 0.25), "{time:?}");
            for _ in 0..2 {
                let (memory, time) = used(&world.json(["-c", "1"]));
                assert!(memory.is_none_or(|bytes| bytes < 30 << 20), "{memory:?}");
                assert!(time.is_some_and(|seconds| seconds < 0.25), "{time:?}");
            }
        }
    });
}

#[test]
fn nothing_of_a_run_is_seen_by_the_next() {
    engine(|world| {
        let leave = "import os, sys, builtins, json, pathlib\nbuiltins.spoiled = json.spoiled = 1\nsys.path.append('/tmp')\n\
                     os.environ['SPOILED'] = '1'\nfor d in '/tmp', '/workspace', '/output', '/dev/shm':\n    \
                     pathlib.Path(d, 'spoiled').touch()\nos.umask(0o777)";
        let look = "import os, builtins, json, sys\nprint(hasattr(builtins, 'spoiled'), hasattr(json, 'spoiled'), sys.path[-1] == '/tmp', \
                    'SPOILED' in os.environ, [os.listdir(d) for d in ('/tmp', '/workspace', '/output', '/dev/shm')], os.umask(0))";
        for _ in 0..12 {
            world.run(["-c", leave]).ok();
            assert_eq!(
                world.python(look),
                "False False False False [[], [], [], []] 18\n"
            );
        }
    });
}

/// Kills the launchers that a Ringfence process started.
fn break_launchers(world: &World, owner: u32) {
    let root = world.dir.path("");
    let all = processes();
    let launchers: Vec<_> = all
        .iter()
        .filter(|process| process.parent == owner && process.executable.starts_with(&root))
        .collect();
    assert!(!launchers.is_empty(), "no launcher among {all:?}");
    for launcher in launchers {
        let mut kill = world.dir.program("kill");
        finish(kill.arg("-KILL").arg(launcher.pid.to_string()), b"").ok();
    }
}

#[test]
fn a_broken_executor_is_unknown_and_never_a_success() {
    for mode in [Mode::OneShot, Mode::Engine] {
        play(World::new(mode, Place::Here), |world| {
            for language in ["python", "bash"] {
                let code = match language {
                    "python" => "print('begun', flush=True)\nimport time; time.sleep(1000)",
                    _ => "echo begun; sleep 1008",
                };
                let mut child = world
                    .call(["--timeout", "300s", "-l", language, "-c", code])
                    .start();
                child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
                break_launchers(world, world.engine_pid().unwrap_or(child.id()));
                let output = child.wait_with_output().unwrap();
                assert_eq!(output.status.code(), Some(125), "{output:?}");
                let said = String::from_utf8(output.stderr).unwrap();
                assert!(said.contains("nothing is known of the program's end"), "{said}");
                // It recovers.
                eventually("runs work again", || {
                    world.run(["-l", language, "-c", ""]).status == 0
                });
            }
        });
    }
}
