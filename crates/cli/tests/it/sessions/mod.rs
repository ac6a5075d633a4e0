//! Sessions: persistent state, limits that end it, and an untrusted interpreter.

mod forks;
mod interrupts;
mod lifetimes;
mod notebooks;
mod results;
mod views;

use std::io::Read;
use std::process::Child;

use serde_json::{Value, json};

use crate::support::{Output, eventually_none, finish};
use crate::world::{Mode, Place, Run, World};

/// Runs a scenario in a world with a server, and asserts that nothing is left.
fn engine(act: impl FnOnce(&World)) {
    let world = World::new(Mode::Engine, Place::Here).unwrap();
    act(&world);
    world.close();
}

fn engine_with(config: &str, act: impl FnOnce(&World)) {
    let world = World::before_engine();
    world
        .dir
        .write("config/ringfence/ringfence.toml", format!("[engine]\n{config}\n"));
    world.start_engine();
    act(&world);
    world.close();
}

#[track_caller]
fn evaluate(world: &World, session: &str, code: &str) -> Run {
    world.json(["--session", session, "-c", code])
}

/// Returns the value of a successful evaluation.
#[track_caller]
fn value(world: &World, session: &str, code: &str) -> Value {
    let run = evaluate(world, session, code);
    run.ended("exited", 0, 0);
    assert_eq!(run.get("stderr"), "");
    run.get("meta.session.value").clone()
}

/// Runs `ringfence session ARGS…`.
fn session(world: &World, args: &[&str]) -> Output {
    let args = ["session"].iter().chain(args);
    finish(&mut world.command(&[], args), b"")
}

#[track_caller]
fn sessions(world: &World) -> Vec<Value> {
    serde_json::from_str(session(world, &["ls", "--json"]).ok()).unwrap()
}

/// Asserts that the session ended, and that this is reported.
#[track_caller]
fn lost(run: &Run, outcome: &str, exit_code: i64, status: i32) {
    run.ended(outcome, exit_code, status);
    assert_eq!(run.get("meta.session.ended"), true, "{run:?}");
    let said = "was ended and its variables are lost\n";
    assert!(run.stderr().ends_with(said), "{run:?}");
}

/// Asserts that the evaluation was interrupted and the session lives on, and that this is reported.
#[track_caller]
fn kept(run: &Run, outcome: &str, exit_code: i64, status: i32) {
    run.ended(outcome, exit_code, status);
    assert_eq!(run.get("meta.session.interrupted"), true, "{run:?}");
    assert!(run.get("meta.session.ended").is_null(), "{run:?}");
    let said = "was interrupted and keeps its variables\n";
    assert!(run.stderr().ends_with(said), "{run:?}");
}

/// Code that no interrupt stops.
const STUBBORN: &str =
    "import time\nwhile True:\n    try: time.sleep(1)\n    except BaseException: print('no')";

/// Begins an evaluation that lasts, and waits until it runs.
fn lasting(world: &World, session: &str) -> Child {
    let code = "print('begun', flush=True)\nimport time; time.sleep(1000)";
    let mut child = world
        .call(["--session", session, "--timeout", "300s", "-c", code])
        .start();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    child
}

#[test]
fn variables_imports_and_files_are_kept() {
    engine(|world| {
        let first = evaluate(
            world,
            "a",
            "import math\nx = 41\nopen('f', 'w').write('kept')\nprint(x)",
        );
        first.ended("exited", 0, 0);
        assert_eq!(
            (first.stdout(), first.get("meta.session")),
            ("41\n", &json!({"id": "a", "evaluations": 1, "value": null}))
        );
        assert_eq!(value(world, "a", "x += 1; math.floor(x + 0.5)"), "42");
        assert_eq!(value(world, "a", "_ * 2"), "84");
        assert_eq!(value(world, "a", "open('f').read()"), "'kept'");
        assert_eq!(
            value(world, "a", "from __future__ import annotations\nNone"),
            Value::Null
        );
        assert_eq!(value(world, "a", "def f(x: nowhere): 'doc'\nf.__doc__"), "'doc'");
        assert_eq!(value(world, "b", "'x' in globals()"), "False");
        assert_eq!(value(world, "a", "import __main__; __main__.x"), "42");
        let listed = sessions(world);
        assert_eq!(listed.len(), 2);
        assert_eq!(
            (&listed[0]["id"], &listed[0]["evaluations"]),
            (&json!("a"), &json!(7))
        );
        let line = session(world, &["ls"]);
        assert!(
            line.ok().starts_with("ID  STATE") && line.ok().contains("\na   idle "),
            "{line:?}"
        );
    });
}

#[test]
fn a_value_is_shown_as_a_prompt_shows_it() {
    engine(|world| {
        let shown = world.run(["--session", "a", "-c", "print('out'); 'va' + 'lue'"]);
        assert_eq!(shown.ok(), "out\n'value'\n");
        assert_eq!(world.run(["--session", "a", "-c", "_"]).ok(), "'value'\n");
        assert_eq!(world.run(["--session", "a", "-c", "None"]).ok(), "");
        let long = evaluate(world, "a", "'é' * 100_000");
        let text = long.get("meta.session.value").as_str().unwrap();
        assert!(text.len() < 11_000, "{}", text.len());
        assert!(
            text.ends_with("é... (output truncated) 189763 bytes left out"),
            "{}",
            &text[text.len() - 80..]
        );
        assert_eq!(long.get("meta.truncated"), true);
        assert_eq!(value(world, "a", "'\\ud800'"), "'\\ud800'");
        let broken = evaluate(world, "a", "class A:\n    def __repr__(self): return 1/0\nA()");
        broken.ended("exited", 1, 1);
        assert!(broken.stderr().contains("line 2, in __repr__"), "{broken:?}");
    });
}

#[test]
fn errors_name_the_lines_of_their_own_code() {
    engine(|world| {
        evaluate(world, "a", "kept = 1\ndef f():\n    # earlier\n    return 1 / 0");
        let called = evaluate(world, "a", "later = 2\nf()");
        called.ended("exited", 1, 1);
        let said = called.stderr();
        assert!(
            said.starts_with(
                "Traceback (most recent call last):\n  File \"<string>#2\", line 2, in <module>\n    f()\n"
            ),
            "{said}"
        );
        assert!(
            said.contains("File \"<string>\", line 4, in f\n    return 1 / 0\n"),
            "{said}"
        );
        assert!(said.ends_with("ZeroDivisionError: division by zero\n"), "{said}");
        // Markers stand below the marked code in the last line too, and only a newline ends a line.
        let marked = evaluate(world, "a", "'\u{2028}'\n1/0").stderr().to_owned();
        assert!(
            marked.contains("line 2, in <module>\n    1/0\n    ~^~\n"),
            "{marked}"
        );
        let malformed = evaluate(world, "a", "kept = 3\nkept =");
        malformed.ended("exited", 1, 1);
        assert!(
            malformed.stderr().contains("line 2\n    kept =\n"),
            "{malformed:?}"
        );
        assert_eq!(value(world, "a", "kept, later"), "(1, 2)");
        let own_hook = "import sys\nsys.excepthook = lambda *_: print('mine')\nraise ValueError";
        assert_eq!(evaluate(world, "a", own_hook).stdout(), "mine\n");
        evaluate(world, "a", "raise KeyboardInterrupt").ended("exited", 130, 130);
        evaluate(world, "a", "raise GeneratorExit").ended("exited", 1, 1);
        assert_eq!(value(world, "a", "kept"), "1");
    });
}

#[test]
fn leaving_by_sys_exit_ends_the_evaluation_alone() {
    engine(|world| {
        evaluate(world, "a", "x = 1; import sys; sys.exit(7)").ended("exited", 7, 7);
        let told = evaluate(world, "a", "exit('no more')");
        told.ended("exited", 1, 1);
        assert_eq!(told.stderr(), "no more\n");
        assert_eq!(value(world, "a", "x"), "1");
    });
}

#[test]
fn arguments_variables_and_input_are_each_evaluations_own() {
    engine(|world| {
        let code = "import sys, os\nprint(sys.argv, os.environ['KIND'], input())";
        let args = [
            "--session",
            "a",
            "--env",
            "KIND=one",
            "--stdin",
            "-",
            "-c",
            code,
            "--",
            "1",
            "2",
        ];
        assert_eq!(
            world.call(args).stdin("first\nrest").output().ok(),
            "['<string>', '1', '2'] one first\n"
        );
        assert_eq!(
            value(world, "a", "sys.argv, os.environ['KIND'], sys.stdin.read()"),
            "(['<string>'], 'one', '')"
        );
        // Without standard input it is empty, in the first evaluation too.
        for session in ["new", "new", "a"] {
            assert_eq!(value(world, session, "import sys; sys.stdin.read()"), "''");
        }
        let args = ["--session", "a", "--stdin", "-", "-c", "sys.stdin.read()"];
        assert_eq!(world.call(args).stdin("second").output().ok(), "'second'\n");
        let big = vec![b'x'; 3 << 20];
        let args = [
            "--session",
            "a",
            "--stdin",
            "-",
            "-c",
            "len(sys.stdin.buffer.read())",
        ];
        assert_eq!(world.call(args).stdin(&big).output().ok(), "3145728\n");
        let args = ["--session", "a", "--stdin", "-", "-c", "1"];
        assert_eq!(world.call(args).stdin(&big).output().ok(), "1\n");
        assert_eq!(value(world, "a", "sys.stdin.read()"), "''");
    });
}

#[test]
fn files_for_the_caller_come_from_each_evaluation() {
    engine(|world| {
        let out = world.dir.path("out");
        let args = [
            "--session",
            "a",
            "-o",
            out.to_str().unwrap(),
            "-c",
            "open('/output/one', 'w').write('1')",
        ];
        world.run(args).ok();
        assert_eq!(std::fs::read_to_string(out.join("one")).unwrap(), "1");
        let listed = evaluate(world, "a", "open('/output/two', 'w').write('22')");
        let files = listed.get("meta.output_files").as_array().unwrap();
        assert_eq!(files.len(), 2, "{files:?}");
    });
}

#[test]
fn a_flood_is_cut_and_the_session_goes_on() {
    engine(|world| {
        let flood = evaluate(world, "a", "x = 1\nfor _ in range(2000): print('y' * 10_000)");
        flood.ended("exited", 0, 0);
        assert_eq!(flood.get("meta.stdout_bytes"), 20_002_000);
        assert_eq!(flood.get("meta.truncated"), true);
        assert!(flood.stdout().len() < 11_000);
        assert_eq!(value(world, "a", "x"), "1");
    });
}

#[test]
fn what_is_printed_in_between_comes_with_the_next_evaluation() {
    engine(|world| {
        let code = "import threading\ngo = threading.Event()\ndef later():\n    go.wait()\n    print('late', flush=True)\n    \
                    done.set()\ndone = threading.Event()\nthreading.Thread(target=later).start()";
        evaluate(world, "a", code).ended("exited", 0, 0);
        let next = evaluate(world, "a", "go.set()\ndone.wait(10)");
        assert_eq!(
            (next.stdout(), next.get("meta.session.value")),
            ("late\n", &json!("True"))
        );
        // Nobody reads between evaluations: the pipe fills up and blocks the thread, and nothing else.
        let flood = "def flood():\n    for _ in range(1000): print('z' * 9_999)\nt = threading.Thread(target=flood)\nt.start()";
        let begun = evaluate(world, "a", flood);
        begun.ended("exited", 0, 0);
        let rest = evaluate(world, "a", "t.join()");
        let printed = |run: &Run| run.get("meta.stdout_bytes").as_u64().unwrap();
        assert!(printed(&rest) > 0, "{rest:?}");
        assert_eq!(printed(&begun) + printed(&rest), 10_000_000);
    });
}

#[test]
fn its_memory_limit_holds_for_the_whole_session() {
    engine(|world| {
        session(world, &["new", "a", "--memory", "64MiB", "--pids", "9"]).ok();
        let kept = world.json([
            "--session",
            "a",
            "--memory",
            "1GiB",
            "-c",
            "kept = b'k' * (30 << 20)",
        ]);
        assert_eq!(kept.get("meta.resource_limits.memory_bytes"), 64 << 20);
        assert_eq!(kept.get("meta.resource_limits.pids"), 9);
        let over = evaluate(world, "a", "more = b'x' * (60 << 20)");
        lost(&over, "memory_exceeded", -9, 137);
        let fresh = evaluate(world, "a", "1");
        assert!(
            fresh
                .get("meta.warnings")
                .to_string()
                .contains("exceeded its memory limit"),
            "{fresh:?}"
        );
        assert_eq!(fresh.get("meta.resource_limits.memory_bytes"), 256 << 20);
    });
}

#[test]
fn a_process_that_ends_takes_the_session_along() {
    engine(|world| {
        lost(&evaluate(world, "a", "import os; os._exit(3)"), "exited", 3, 3);
        lost(
            &evaluate(world, "a", "import ctypes; ctypes.string_at(0)"),
            "signalled",
            -11,
            139,
        );
        lost(
            &evaluate(world, "a", "import os; os.kill(os.getpid(), 9)"),
            "signalled",
            -9,
            137,
        );
        let why = evaluate(world, "a", "1").get("meta.warnings").to_string();
        assert!(why.contains("signal 9 killed its process"), "{why}");
        let idle = "import threading, os, sys\nthreading.Timer(0.05, lambda: os._exit(4)).start()";
        evaluate(world, "a", idle).ended("exited", 0, 0);
        eventually_none("sessions", || sessions(world));
        let why = evaluate(world, "a", "1").get("meta.warnings").to_string();
        assert!(why.contains("its process ended with status 4"), "{why}");
    });
}

#[test]
fn children_do_not_become_the_session() {
    engine(|world| {
        let code = "import os\nr, w = os.pipe()\nchild = os.fork()\nx = 'child' if child == 0 else 'parent'\nif child == 0: os.write(w, b'here')";
        evaluate(world, "a", code).ended("exited", 0, 0);
        assert_eq!(
            value(world, "a", "x, os.read(r, 4), os.waitpid(child, 0)[1]"),
            "('parent', b'here', 0)"
        );
        assert_eq!(
            value(
                world,
                "a",
                "import subprocess; subprocess.run(['sh', '-c', 'ls /proc/self/fd'], stdout=-1, close_fds=False).stdout.split()[3:]"
            ),
            "[b'3']"
        );
    });
}

/// An interpreter's messages on its control channel harm its own session alone.
#[test]
fn nonsense_on_the_control_channel_ends_the_session() {
    engine(|world| {
        let witness = "witness";
        evaluate(world, witness, "x = 1");
        let huge =
            "import os, struct\nos.write(3, struct.pack('<IBQII', 1, 0, 1 << 40, 1 << 31, 0) + b'x' * 9999)";
        for code in [
            "import os; os.write(3, b'x' * 21)",
            "import os; os.write(3, bytes(21))",
            huge,
            "import os, time; os.close(3); time.sleep(1000)",
            "import os, socket; socket.socket(fileno=3).shutdown(2)\nimport time; time.sleep(1000)",
        ] {
            lost(&evaluate(world, "a", code), "unknown", 125, 125);
            let why = evaluate(world, "a", "1").get("meta.warnings").to_string();
            assert!(why.contains("it broke its control channel"), "{why}");
            session(world, &["rm", "a"]).ok();
        }
        // A forged reply gives this session a wrong result, and the next reply, which comes twice, ends it.
        let forged = "import os, struct\nos.write(3, struct.pack('<IBQII', 1, 9, 2, 2, 0) + b'hi')";
        let run = evaluate(world, "a", forged);
        assert_eq!(run.get("exit_code"), 9);
        eventually_none("the forger's session", || {
            sessions(world)
                .into_iter()
                .filter(|session| session["id"] == "a")
                .collect()
        });
        // Between evaluations, too.
        evaluate(
            world,
            "a",
            "import threading, os\nthreading.Timer(0.01, lambda: os.write(3, b'!')).start()",
        );
        eventually_none("the session that spoke unasked", || {
            sessions(world)
                .into_iter()
                .filter(|session| session["id"] == "a")
                .collect()
        });
        assert_eq!(value(world, witness, "x"), "1");
    });
}

/// Stops a session's timer, however often its handler interrupts the attempt.
fn stop_timer(world: &World, session: &str) {
    let stopped = || {
        let run = evaluate(world, session, "signal.setitimer(signal.ITIMER_REAL, 0)");
        !run.get("meta.session.value").is_null()
    };
    assert!((0..100).any(|_| stopped()));
}

#[test]
fn a_signals_handler_does_not_end_the_session() {
    engine(|world| {
        let code = "import signal\ndef stop(*_): raise ValueError('handled')\nsignal.signal(signal.SIGALRM, stop)\n\
                    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)";
        evaluate(world, "a", code);
        for _ in 0..20 {
            // It may hit the evaluation, or the time between.
            let run = evaluate(world, "a", "x = 1");
            assert_eq!(run.get("meta.outcome"), "exited", "{run:?}");
        }
        stop_timer(world, "a");
        assert_eq!(value(world, "a", "x = 2\nx"), "2");
    });
}

#[test]
fn a_signals_handler_does_not_end_a_session_with_threads() {
    let hear = |world: &World| {
        let args = ["--session", "a", "--stdin", "-", "-c", "input()"];
        world.call(args).stdin("heard\n").json()
    };
    engine(|world| {
        // The kernel delivers a signal to any thread that does not block it, whatever the first one blocks.
        let code = "import signal, threading\ndef stop(*_): raise TimeoutError('handled')\n\
                    threading.Thread(target=threading.Event().wait, daemon=True).start()\n\
                    signal.signal(signal.SIGALRM, stop)\nsignal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)";
        evaluate(world, "a", code);
        for _ in 0..20 {
            let run = evaluate(world, "a", "x = 1");
            assert_eq!(run.get("meta.outcome"), "exited", "{run:?}");
            let run = hear(world);
            assert_eq!(run.get("meta.outcome"), "exited", "{run:?}");
        }
        stop_timer(world, "a");
        let run = hear(world);
        assert_eq!(run.get("meta.session.value"), "'heard'", "{run:?}");
    });
}
