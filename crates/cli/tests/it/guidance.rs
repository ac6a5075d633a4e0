//! Options that do what the user meant, and hints on failures.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Dir, entries, finish};
use crate::world::{SmallDisk, World, here, own_uid};

here!(
    a_host_implies_a_network,
    the_disk_is_as_large_as_asked_for,
    causes_of_failures_have_hints,
    hints_are_part_of_results,
    a_limit_of_processes_that_was_reached_has_a_hint,
    files_that_cannot_be_delivered_are_no_success,
);

mod homes {
    use super::what_programs_keep_in_their_home_is_no_part_of_a_workspace;

    crate::world::everywhere!(what_programs_keep_in_their_home_is_no_part_of_a_workspace);
}

fn a_host_implies_a_network(world: &World) {
    let code = "import os; print('HTTP_PROXY' in os.environ)";
    let run = world.json(["--allow-host", "nowhere.invalid", "-c", code]);
    assert_eq!(run.stdout(), "True\n", "{run:?}");
    assert_eq!(run.get("meta.egress.attempts"), &json!([]));
    assert!(world.json(["-c", code]).stdout().starts_with("False"));
    let ask = "import os, urllib.request as r\nr.urlopen('http://other.invalid/')";
    let hint = "hint: refused: other.invalid:80 (no pattern of the allowed hosts names it); allow it with `--allow-host \
                other.invalid` or `egress.allowed_hosts`";
    let refused = world.run(["--allow-host", "nowhere.invalid", "-c", ask]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stderr.lines().any(|line| line == hint), "{refused:?}");
    let refused = world.json(["--allow-host", "nowhere.invalid", "-c", ask]);
    assert_eq!(refused.get("meta.hints"), &json!([hint.strip_prefix("hint: ")]));
    let warned = world.run(["--network", "allowlist", "-c", "1"]);
    assert!(
        warned.stderr.starts_with("warning: no host is allowed"),
        "{warned:?}"
    );
    for (more, hint) in [
        (
            ["--network", "none"],
            "hint: pass `--network allowlist`, or leave",
        ),
        (["--session", "s"], "hint: leave --session out, or"),
    ] {
        let refused = finish(
            &mut world.command(
                &[],
                [
                    "run",
                    "--allow-host",
                    "nowhere.invalid",
                    "-c",
                    "1",
                    more[0],
                    more[1],
                ],
            ),
            b"",
        );
        refused.refused(2, "");
        assert!(refused.stderr.contains(hint), "{refused:?}");
    }
}

fn the_disk_is_as_large_as_asked_for(world: &World) {
    let code = "open('/tmp/x', 'wb').write(bytes(2 << 20))";
    let full = world.run(["--disk", "1MiB", "-c", code]);
    assert_eq!(full.status, 1, "{full:?}");
    assert!(full.stderr.contains("File too large"), "{full:?}");
    let hint = "hint: the program may write 1MiB (`--disk`, `sandbox.disk`)\n";
    assert!(full.stderr.ends_with(hint), "{full:?}");
    assert_eq!(world.run(["--disk", "4MiB", "-c", code]).ok(), "");
    let run = world.json(["--disk", "4MiB", "-c", code]);
    assert_eq!(run.get("meta.resource_limits.disk_bytes"), 4 << 20);
    assert_eq!(world.run(["--disk", "1", "-c", "1"]).status, 2);
}

fn causes_of_failures_have_hints(world: &World) {
    let threads = "import threading\nfor _ in range(99): threading.Thread(target=threading.Event().wait, daemon=True).start()";
    for (args, hint) in [
        (
            &["-c", "import nowhere.a"][..],
            "the interpreter has no module `nowhere`",
        ),
        (
            &["--pids", "20", "-c", threads],
            "limit of 20 processes and threads once (`--pids`",
        ),
        (
            &["-c", "import socket; socket.getaddrinfo('nowhere.invalid', 80)"],
            "no network; name the hosts that it may reach with `--allow-host HOST`",
        ),
        (
            &[
                "-c",
                "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
            ],
            "no network; name the hosts that it may reach with `--allow-host HOST`",
        ),
        (
            &[
                "-l",
                "javascript",
                "-c",
                "require('net').connect(80, '192.0.2.1')",
            ],
            "no network; name the hosts that it may reach with `--allow-host HOST`",
        ),
        (
            &["--timeout", "300ms", "-c", "while True: pass"],
            "allow more with `--timeout 600ms` (`sandbox.timeout`)",
        ),
        (
            &["--memory", "64MiB", "-c", "x = b'x' * (1 << 30)"],
            "allow more with `--memory 128MiB` (`sandbox.memory`)",
        ),
        (&["-l", "bash", "-c", "kill -SEGV $$"], ""),
    ] {
        let run = world.run(args);
        assert_ne!(run.status, 0, "{run:?}");
        let last = run.stderr.lines().last().unwrap_or_default();
        match hint {
            "" => assert_eq!(last, "error: killed by signal 11 (SIGSEGV)", "{run:?}"),
            hint => assert!(last.starts_with("hint: ") && last.contains(hint), "{run:?}"),
        }
    }
    // A model gets hints about what it can do itself.
    let told = world.tool(&[], "run_python_code", &json!({"code": "import nowhere"}));
    let told = told.as_str().unwrap();
    let hint = "[hint: the module `nowhere` is not installed and cannot be; write the program without it]";
    assert!(told.ends_with(hint) && !told.contains("--python"), "{told}");
    // A successful run has no hints.
    let fine = world.run(["-c", "import sys; print('File too large', file=sys.stderr)"]);
    assert_eq!((fine.status, fine.stderr.as_str()), (0, "File too large\n"));
}

fn hints_are_part_of_results(world: &World) {
    let run = world.json(["-c", "import nowhere"]);
    let hints = run.get("meta.hints").as_array().unwrap();
    assert!(hints[0].as_str().unwrap().contains("--python"), "{run:?}");
    assert!(
        world.json(["-c", "1"]).result["meta"].get("hints").is_none(),
        "{run:?}"
    );
    let events = world.run(["--json-stream", "-c", "import nowhere"]);
    let last: Value = serde_json::from_str(events.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"]["meta"]["hints"], *run.get("meta.hints"));
    // A model's are its own.
    let told = world.tool(&[], "run_code", &json!({"code": "import nowhere"}));
    let model = "the module `nowhere` is not installed and cannot be; write the program without it";
    assert_eq!(told["meta"]["hints"], json!([model]), "{told}");
}

fn a_limit_of_processes_that_was_reached_has_a_hint(world: &World) {
    // Node.js waits for its threads until its time is up.
    let args = ["-l", "javascript", "--timeout", "1s", "--pids", "4", "-c", "1"];
    let run = world.json(args);
    run.ended("timed_out", -1, 124);
    let hint = run.get("meta.hints")[0].as_str().unwrap_or_default();
    assert!(hint.contains(" 4 processes and threads"), "{run:?}");
    // One that goes on after its fork failed, and fails by itself.
    let code = "import os, sys, time\nwhile True:\n    try:\n        if os.fork() == 0: time.sleep(60)\n    \
                except OSError: sys.exit(3)";
    let run = world.json(["--pids", "9", "-c", code]);
    run.ended("exited", 3, 3);
    assert_eq!(run.get("meta.failed_forks"), 1, "{run:?}");
    let hint = "the program reached its limit of 9 processes and threads once (`--pids`, `sandbox.pids`)";
    assert_eq!(run.get("meta.hints"), &json!([hint]));
}

fn files_that_cannot_be_delivered_are_no_success(world: &World) {
    let Some(_disk) = SmallDisk::mount(&world.dir, "work/small", "64k") else {
        return;
    };
    let code = "open('/output/small', 'wb').write(b'x')\nopen('/output/large', 'wb').write(bytes(1 << 20))";
    let run = world.run(["-o", "small", "-c", code]);
    assert_eq!(run.status, 125, "{run:?}");
    assert!(
        run.stderr
            .contains("large could not be copied: No space left on device"),
        "{run:?}"
    );
    assert!(
        run.stderr.contains("hint: make room in the output directory"),
        "{run:?}"
    );
    assert_eq!(entries(&world.dir.path("work/small")), ["small"]);
    let run = world.json(["-o", "small", "-c", code]);
    assert_eq!(run.output.status, 125, "{run:?}");
    assert_eq!(run.get("meta.output_incomplete"), true);
    assert_eq!(run.get("exit_code"), 0);
    // A failed program keeps its own status.
    let failed = world.run(["-o", "small", "-c", &format!("{code}\nraise SystemExit(3)")]);
    assert_eq!(failed.status, 3, "{failed:?}");
    let fine = world.json(["-o", "out", "-c", code]);
    assert_eq!(fine.output.status, 0, "{fine:?}");
    assert!(fine.get("meta.output_incomplete").is_null(), "{fine:?}");
}

fn what_programs_keep_in_their_home_is_no_part_of_a_workspace(world: &World) {
    let project = world.dir.path("work/project");
    fs::create_dir(&project).unwrap();
    // Without namespaces root's guests run as nobody.
    let guest = match world.container() && world.uid() == 0 {
        true => 65_534,
        false => world.uid(),
    };
    if own_uid() != guest {
        std::os::unix::fs::chown(&project, Some(guest), Some(guest)).unwrap();
    }
    let python = "import pathlib; (pathlib.Path.home() / '.cache/x').mkdir(parents=True); open('mine', 'w')";
    world.run(["-w", "project", "-c", python]).ok();
    assert_eq!(entries(&project), ["mine"]);
    world
        .run(["-w", "project", "-l", "bash", "-c", "mkdir ~/.config; touch too"])
        .ok();
    assert_eq!(entries(&project), ["mine", "too"]);
    // The private directory is removed afterwards, and serves as the home directory.
    if !world.container() {
        assert_eq!(world.run(["-l", "bash", "-c", "echo ~"]).ok(), "/workspace\n");
    }
}

#[test]
fn help_is_a_command_too() {
    let dir = Dir::new();
    assert_eq!(dir.run(["help"]).ok(), dir.run(["--help"]).ok());
    assert_eq!(
        dir.run(["help", "sandbox", "create"]).ok(),
        dir.run(["sandbox", "create", "--help"]).ok()
    );
    assert_eq!(dir.run(["help", "nothing"]).status, 2);
}

/// Returns a directory for the PATH in which `python3` differs from the server's.
fn other_python(world: &World) -> String {
    let place = world.dir.path("other");
    let mut make = world.dir.program("python3");
    finish(make.args(["-m", "venv", "--without-pip"]).arg(&place), b"").ok();
    let path = std::env::var_os("PATH").unwrap();
    format!("{}:{}", place.join("bin").display(), path.display())
}

#[test]
fn who_finds_another_python_first_is_told_that_it_starts_cold() {
    let world = World::before_engine();
    world.start_engine();
    let path = other_python(&world);
    let cold = world.call(["-c", "print(1)"]).env("PATH", &path).json();
    assert_eq!(
        (cold.stdout(), cold.get("meta.warm")),
        ("1\n", &json!(false)),
        "{cold:?}"
    );
    let told = cold.get("meta.warnings")[0].as_str().unwrap();
    assert!(
        told.starts_with("the server keeps another Python ready"),
        "{told}"
    );
    assert!(told.contains("other/bin/python"), "{told}");
    // A tool's answer goes to a model, so the person is told on standard error.
    let mut tool = world.command(&[], ["tool", "run_python_code", r#"{"code": "print(1)"}"#]);
    let tool = finish(tool.env("PATH", &path), b"");
    assert_eq!(tool.ok(), "1\n");
    assert!(
        tool.stderr.contains("the server keeps another Python ready"),
        "{tool:?}"
    );
    // A user who has named one needs no warning.
    let python = world.dir.path("other/bin/python3").display().to_string();
    let named = world.json(["--python", &python, "-c", "print(1)"]);
    assert!(named.get("meta.warnings").is_null(), "{named:?}");
    // Other languages are not affected.
    let bash = world.call(["-l", "bash", "-c", "true"]).env("PATH", &path).json();
    assert!(bash.get("meta.warnings").is_null(), "{bash:?}");
    world.close();
}
