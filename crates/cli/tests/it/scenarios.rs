//! The scenarios of the specification, in every place where they apply.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::entries;
use crate::world::{World, everywhere};

everywhere!(
    prints_hello,
    the_result_has_every_key_of_the_contract,
    an_endless_loop_is_timed_out,
    a_sleeping_program_with_children_is_timed_out,
    a_flood_is_cut_in_the_middle,
    an_exception_shows_its_whole_traceback,
    a_syntax_error_names_its_line,
    exit_codes_come_through,
    a_blocked_import_never_runs,
    files_stay_in_the_fence,
    artifacts_follow_the_policy,
    the_other_languages_have_the_same_shape,
    memory_is_limited,
    a_signal_is_told,
    processes_are_limited,
    there_is_no_network,
);

/// Scenario 1.
fn prints_hello(world: &World) {
    let run = world.json(["-c", "print('Hello')"]);
    run.ended("exited", 0, 0);
    assert_eq!((run.stdout(), run.stderr()), ("Hello\n", ""));
    assert!(run.seconds() > 0.0 && run.seconds() < 1.0, "{run:?}");
    let streamed = world.run(["-c", "print('Hello')"]);
    assert_eq!((streamed.status, streamed.stdout.as_str()), (0, "Hello\n"));
    assert_eq!(streamed.stderr, world.warning());
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn the_result_has_every_key_of_the_contract(world: &World) {
    let run = world.json([
        "--timeout",
        "7s",
        "--max-output",
        "1KiB",
        "--cpus",
        "0.5",
        "--pids",
        "20",
        "-c",
        "held = b'x' * (4 << 20)",
    ]);
    let known = ["duration", "exit_code", "meta", "stderr", "stdout"];
    assert_eq!(keys(&run.result), known.into());
    for key in [
        "runtime",
        "language",
        "truncated",
        "timed_out",
        "blocked_imports",
        "resource_limits",
        "isolation",
        "outcome",
        "stdout_bytes",
        "stderr_bytes",
        "peak_memory_bytes",
        "cpu_seconds",
        "artifact",
        "warm",
    ] {
        assert!(keys(run.get("meta")).contains(key), "{key}: {run:?}");
    }
    for key in [
        "user_ns",
        "pid_ns",
        "mount_ns",
        "net_ns",
        "seccomp",
        "landlock_abi",
        "cgroup",
        "no_new_privs",
    ] {
        assert!(keys(run.get("meta.isolation")).contains(key), "{key}: {run:?}");
    }
    assert_eq!(run.get("meta.runtime"), "local");
    assert_eq!(run.get("meta.blocked_imports"), &json!([]));
    let limits = run.get("meta.resource_limits");
    assert_eq!(
        (&limits["timeout"], &limits["max_output_bytes"]),
        (&json!(7.0), &json!(1024))
    );
    assert_eq!(limits["pids"], json!(20));
    let peak = run.get("meta.peak_memory_bytes");
    // Only a control group limits and measures these for all processes together.
    match run.get("meta.isolation.cgroup").is_string() {
        true => {
            assert_eq!(
                (&limits["cpus"], &limits["memory_bytes"]),
                (&json!(0.5), &json!(256 << 20))
            );
            assert!(peak.as_u64().unwrap() > 4 << 20, "{run:?}");
        }
        false => assert!(
            limits["cpus"].is_null() && limits["memory_bytes"].is_null() && peak.is_null(),
            "{run:?}"
        ),
    }
    assert!(run.get("meta.cpu_seconds").as_f64().unwrap() > 0.0, "{run:?}");
}

/// Scenario 3.
fn an_endless_loop_is_timed_out(world: &World) {
    let run = world.json([
        "--timeout",
        "700ms",
        "-c",
        "print('begun', flush=True)\nwhile True:\n    pass",
    ]);
    run.ended("timed_out", -1, 124);
    assert_eq!(
        (run.stdout(), run.get("meta.timed_out")),
        ("begun\n", &json!(true))
    );
    assert_eq!(run.stderr(), "execution timed out after 700ms\n");
    assert!((0.7..1.7).contains(&run.seconds()), "{run:?}");
    let streamed = world.run(["--timeout", "300ms", "-c", "while True: pass"]);
    assert_eq!(streamed.status, 124, "{streamed:?}");
    assert!(
        streamed.stderr.contains("error: execution timed out after"),
        "{streamed:?}"
    );
}

fn a_sleeping_program_with_children_is_timed_out(world: &World) {
    let code = "import subprocess, time\nfor _ in range(3): subprocess.Popen(['setsid', 'sleep', '1000'])\n\
                print('started', flush=True)\ntime.sleep(1000)";
    let run = world.json(["--timeout", "2s", "-c", code]);
    run.ended("timed_out", -1, 124);
    assert_eq!(run.stdout(), "started\n");
}

/// Scenario 4.
fn a_flood_is_cut_in_the_middle(world: &World) {
    let code = "for i in range(100000):\n    print(f\"Line {i}: \" + 'X' * 100)";
    let whole: u64 = (0..100_000_u64)
        .map(|i| format!("Line {i}: ").len() as u64 + 101)
        .sum();
    let run = world.json(["-c", code]);
    run.ended("exited", 0, 0);
    assert_eq!(
        (run.get("meta.truncated"), run.get("meta.stdout_bytes")),
        (&json!(true), &json!(whole))
    );
    let text = run.stdout();
    assert!(text.starts_with("Line 0: XX") && text.ends_with("X\n"), "{text}");
    assert!(
        text.contains("\n... (output truncated)") && text.contains("Line 99999: "),
        "{text}"
    );
    assert!((10_000..10_400).contains(&text.len()), "{}", text.len());
    let limited = world
        .call(["-c", "print('é' * 3000)"])
        .env("SANDBOX_MAX_OUTPUT_KB", "2")
        .json();
    assert_eq!(limited.get("meta.stdout_bytes"), 6001);
    assert!(
        (1900..2200).contains(&limited.stdout().len()) && !limited.stdout().contains('\u{fffd}'),
        "{limited:?}"
    );
    let short = world.json(["-c", "print('x' * 10239)"]);
    assert_eq!(
        (short.get("meta.truncated"), short.stdout().len()),
        (&json!(false), 10_240)
    );
}

/// Scenario 5.
fn an_exception_shows_its_whole_traceback(world: &World) {
    let code = "def divide(a, b):\n    return a / b\n\n\ntry:\n    divide(1, 0)\nexcept ZeroDivisionError as error:\n    \
                raise ValueError('Something went wrong') from error\n";
    world.dir.write("work/report.py", code);
    let run = world.json(["report.py"]);
    run.ended("exited", 1, 1);
    let text = run.stderr();
    for line in [
        "  File \"report.py\", line 6, in <module>\n    divide(1, 0)\n",
        "  File \"report.py\", line 2, in divide\n    return a / b\n",
        "ZeroDivisionError: division by zero\n",
        "The above exception was the direct cause of the following exception:",
        "  File \"report.py\", line 8, in <module>\n    raise ValueError('Something went wrong') from error\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(
        text.starts_with("Traceback (most recent call last):\n  File \"report.py\", line 6"),
        "{text}"
    );
    assert!(text.ends_with("ValueError: Something went wrong\n"), "{text}");
    assert_eq!(text.matches("  File ").count(), 3, "{text}");
}

fn a_syntax_error_names_its_line(world: &World) {
    let run = world.json(["-c", "ok = 1\n\nif ok\n    print(ok)\n"]);
    run.ended("exited", 1, 1);
    assert!(
        run.stderr()
            .starts_with("  File \"<string>\", line 3\n    if ok\n"),
        "{run:?}"
    );
    assert!(
        run.stderr().contains("SyntaxError: ") && run.stdout().is_empty(),
        "{run:?}"
    );
}

fn exit_codes_come_through(world: &World) {
    for (code, status, stderr) in [
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('no luck')", 1, "no luck\n"),
        ("import sys; sys.exit(True)", 1, ""),
        ("import sys; sys.exit(256 + 3)", 3, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("exit(4)", 4, ""),
        ("quit()", 0, ""),
        ("raise SystemExit(5)", 5, ""),
        ("import os; os._exit(6)", 6, ""),
    ] {
        let run = world.json(["-c", code]);
        run.ended("exited", status.into(), status);
        assert_eq!(run.stderr(), stderr, "{code}");
    }
}

/// Scenario 6.
fn a_blocked_import_never_runs(world: &World) {
    let code = "open('/output/ran', 'w').close()\nimport subprocess as s\nfrom os import path\n\
                __import__('socket')\nimport importlib\nimportlib.import_module('shutil')\n";
    let run = world
        .call(["-c", code])
        .env("SANDBOX_BLOCK_DANGEROUS_IMPORTS", "true")
        .json();
    run.ended("blocked", 126, 126);
    assert_eq!(
        run.get("meta.blocked_imports"),
        &json!(["os", "shutil", "socket", "subprocess"])
    );
    for (module, line, alternative) in [
        ("subprocess", 2, "in bash"),
        ("os", 3, "pathlib"),
        ("socket", 4, "no network"),
        ("shutil", 6, "pathlib"),
    ] {
        let said = format!("import of `{module}` is blocked (line {line})");
        let line = run.stderr().lines().find(|line| line.starts_with(&said));
        assert!(
            line.is_some_and(|line| line.contains(alternative)),
            "{module}: {run:?}"
        );
    }
    assert!(
        run.stdout().is_empty() && run.get("meta.output_files").is_null(),
        "{run:?}"
    );
    let harmless = world.call(["-c", "import json; print(json.dumps('import os'))"]);
    assert_eq!(
        harmless.env("SANDBOX_BLOCK_DANGEROUS_IMPORTS", "1").output().ok(),
        "\"import os\"\n"
    );
}

/// Scenario 8.
fn files_stay_in_the_fence(world: &World) {
    let before = entries(&world.dir.path("work"));
    let code = "import os, tempfile\nopen('test.txt', 'w').write('data')\nprint(os.listdir())\n\
                print(tempfile.NamedTemporaryFile(delete=False).name.startswith(tempfile.gettempdir()))";
    assert_eq!(world.python(code), "['test.txt']\nTrue\n");
    assert_eq!(world.python("import os; print(os.listdir())"), "[]\n");
    assert_eq!(entries(&world.dir.path("work")), before);
}

/// Scenario 9.
fn artifacts_follow_the_policy(world: &World) {
    let stored = |policy: &str, code: &str| {
        let run = world.call(["-c", code]).env("SANDBOX_STORE_CODE", policy).json();
        run.get("meta.artifact").as_str().map(str::to_owned)
    };
    assert_eq!(stored("on_error", "print(1)"), None);
    assert_eq!(stored("never", "1/0"), None);
    let directory = world.dir.path("state/ringfence/artifacts/executions");
    assert!(!directory.exists() || entries(&directory).is_empty());
    let failed = stored("on_error", "1/0").unwrap();
    let always = stored("always", "print('kept')").unwrap();
    let names = entries(&directory);
    assert_eq!(names.len(), 2, "{names:?}");
    for (path, code, exit_code) in [(failed, "1/0", 1), (always, "print('kept')", 0)] {
        let text = std::fs::read_to_string(&path).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (
                document["code"].as_str(),
                document["result"]["exit_code"].as_i64()
            ),
            (Some(code), Some(exit_code))
        );
        assert!(
            !document["timestamp"].is_null() && !document["result"]["meta"].is_null(),
            "{document}"
        );
    }
}

/// Scenario 10.
fn the_other_languages_have_the_same_shape(world: &World) {
    let python = world.json(["-c", "print('Hi')"]);
    for (language, code) in [("javascript", "console.log('Hi')"), ("bash", "echo Hi")] {
        if language == "javascript" && world.container() {
            // The image has no Node.js: this is the error of such a machine.
            let refused = world.run(["-l", language, "-c", code]);
            refused.refused(125, "node");
            continue;
        }
        let run = world.json(["-l", language, "-c", code]);
        run.ended("exited", 0, 0);
        assert_eq!(
            (run.stdout(), run.get("meta.language")),
            ("Hi\n", &json!(language))
        );
        assert_eq!(keys(&run.result), keys(&python.result));
        assert_eq!(keys(run.get("meta")), keys(python.get("meta")));
    }
    for (language, code, status) in [("bash", "echo no >&2; exit 3", 3), ("bash", "kill -9 $$", 137)] {
        assert_eq!(world.run(["-l", language, "-c", code]).status, status);
    }
}

fn memory_is_limited(world: &World) {
    // A control group makes the kernel kill; an rlimit makes Python raise.
    let run = world.json([
        "--memory",
        "100MiB",
        "-c",
        "data = bytearray(300 << 20)\nprint(len(data))",
    ]);
    if *run.get("meta.isolation.cgroup") == false {
        run.ended("exited", 1, 1);
        assert!(run.stderr().contains("MemoryError"), "{run:?}");
    } else {
        run.ended("memory_exceeded", -9, 137);
        assert!(
            run.stderr()
                .ends_with("killed: the memory limit of 100MiB was exceeded\n"),
            "{run:?}"
        );
    }
    let enough = world.json([
        "--memory",
        "600MiB",
        "-c",
        "data = bytearray(300 << 20)\nprint(len(data))",
    ]);
    enough.ended("exited", 0, 0);
}

fn a_signal_is_told(world: &World) {
    for (signal, number) in [("SIGSEGV", 11), ("SIGTERM", 15), ("SIGKILL", 9)] {
        let code =
            format!("import os, signal\nprint('x', flush=True)\nos.kill(os.getpid(), signal.{signal})");
        let run = world.json(["-c", &code]);
        run.ended("signalled", -number, 128 + i32::try_from(number).unwrap());
        assert_eq!(run.stdout(), "x\n");
    }
}

fn processes_are_limited(world: &World) {
    let code = "import os, time\nmade = 0\ntry:\n    for _ in range(100):\n        if os.fork() == 0:\n            \
                time.sleep(100)\n        made += 1\nexcept OSError as error:\n    print(type(error).__name__, 5 < made < 25)";
    let run = world.json(["--pids", "20", "-c", code]);
    run.ended("exited", 0, 0);
    assert_eq!(run.stdout(), "BlockingIOError True\n", "{run:?}");
    let bomb = world.json([
        "--timeout",
        "1s",
        "--pids",
        "20",
        "-l",
        "bash",
        "-c",
        "b() { b | b & }; b; sleep 100",
    ]);
    assert!(bomb.seconds() < 5.0, "{bomb:?}");
    assert_eq!(world.python("print('still well')"), "still well\n");
}

fn there_is_no_network(world: &World) {
    let code = "import urllib.request\ntry:\n    urllib.request.urlopen('http://127.0.0.1:9/', timeout=2)\n\
                except OSError as error:\n    print('refused')";
    assert_eq!(world.python(code), "refused\n");
}
