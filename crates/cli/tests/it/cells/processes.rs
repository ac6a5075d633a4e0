//! Commands: status, streams, environment, limits, logs.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Value, json};

use super::{Lab, everywhere, everywhere_with};
use crate::support::eventually;

/// Forks until it cannot.
const FORKS: &str = "
import os, time
pids = []
try:
    for _ in range(12):
        pid = os.fork()
        if pid == 0: time.sleep(600)
        pids.append(pid)
except OSError as error:
    print(error.strerror)
for pid in pids: os.kill(pid, 9)
for pid in pids: os.waitpid(pid, 0)
";

/// Leaves a process that takes every room for another.
const FILL: &str = "
import os, time
if os.fork() == 0:
    while True:
        try:
            if os.fork() == 0: time.sleep(600)
        except OSError: pass
";

#[test]
fn a_command_has_its_status_streams_and_directory() {
    everywhere(|lab| {
        let ended = lab.bash("pwd; echo aside >&2; exit 3");
        assert_eq!(
            (ended.status, ended.stdout.as_str(), ended.stderr.as_str()),
            (3, "/workspace\n", "aside\n")
        );
        assert_eq!(lab.bash("kill -SEGV $$").status, 139);
        lab.bash("echo kept > /workspace/x; cd /tmp; mkdir -p a").ok();
        let elsewhere = lab.sandbox(&[
            "exec",
            "-w",
            "/tmp/a",
            "-e",
            "N=1 2",
            "lab",
            "--",
            "bash",
            "-c",
            "pwd; echo $N",
        ]);
        assert_eq!(elsewhere.ok(), "/tmp/a\n1 2\n");
        assert_eq!(
            lab.sandbox(&["exec", "lab", "--", "cat", "/workspace/x"]).ok(),
            "kept\n"
        );
        for verb in ["exec", "run"] {
            let missing = lab.sandbox(&[verb, "lab", "--", "nosuch"]);
            missing.refused(127, "there is no program `nosuch` in the sandbox");
        }
        for verb in ["exec", "run"] {
            let missing = lab.sandbox(&[verb, "--json", "lab", "--", "nosuch"]);
            assert_eq!(missing.status, 127, "{missing:?}");
            let told: Value = serde_json::from_str(&missing.stdout).unwrap();
            assert_eq!(told["error"]["type"], "not_found", "{told}");
        }
        let closed = lab.bash("echo 'echo x' > s.sh; exec ./s.sh");
        assert_eq!(closed.status, 126, "{closed:?}");
        let closed = lab.sandbox(&["exec", "lab", "--", "./s.sh"]);
        closed.refused(125, "Permission denied");
        assert!(closed.stderr.contains("chmod +x"), "{closed:?}");
        lab.bash("chmod +x s.sh").ok();
        let no_interpreter = lab.sandbox(&["exec", "lab", "--", "./s.sh"]);
        assert!(no_interpreter.stderr.contains("#!/bin/sh"), "{no_interpreter:?}");
        lab.sandbox(&["exec", "-w", "/nosuch", "lab", "--", "true"])
            .refused(125, "/nosuch");
        assert_eq!(lab.sandbox(&["exec", "lab"]).status, 2);
        assert_eq!(lab.sandbox(&["exec", "-e", "N", "lab", "--", "true"]).status, 2);
    });
}

#[test]
fn standard_input_reaches_a_command_that_asks_for_it() {
    everywhere(|lab| {
        let long: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let count = lab.sandbox_with(&["exec", "-i", "lab", "--", "sha256sum"], &long);
        let whole = lab.sandbox_with(&["exec", "-i", "lab", "--", "wc", "-c"], &long);
        assert_eq!((count.ok().len(), whole.ok()), (68, "3000000\n"));
        // A command that reads no more ends all the same.
        assert_eq!(
            lab.sandbox_with(&["exec", "-i", "lab", "--", "head", "-c", "3"], b"abcdef")
                .ok(),
            "abc"
        );
        assert_eq!(
            lab.sandbox_with(&["exec", "-i", "lab", "--", "true"], &long).ok(),
            ""
        );
        assert_eq!(
            lab.sandbox_with(&["exec", "lab", "--", "cat"], b"unasked").ok(),
            ""
        );
        let refused = lab.sandbox(&["exec", "-it", "lab", "--", "bash"]);
        refused.refused(2, "`-t` needs a terminal");
        assert_eq!(lab.sandbox(&["exec", "-t", "lab", "--", "bash"]).status, 2);
        assert_eq!(
            lab.sandbox_with(&["shell", "lab"], b"echo $((6 * 7))\n").ok(),
            "42\n"
        );
    });
}

#[test]
fn a_command_is_killed_at_its_limits() {
    everywhere_with(&["--memory", "64MiB", "--disk", "8MiB", "--pids", "8"], |lab| {
        let late = lab.sandbox(&["exec", "--timeout", "300ms", "lab", "--", "sleep", "600"]);
        assert_eq!((late.status, late.stdout.as_str()), (124, ""));
        assert!(
            late.stderr.starts_with("error: it went past its time"),
            "{late:?}"
        );
        let large = lab.sandbox(&["exec", "lab", "--", "python3", "-c", "x = b'x' * (1 << 30)"]);
        if lab.is_in_gvisor() {
            // The kernel kills its container as a whole.
            assert!(large.stderr.contains("the container ended"), "{large:?}");
            return assert_eq!(large.status, 125, "{large:?}");
        }
        assert_eq!(large.status, 137, "{large:?}");
        assert!(large.stderr.contains("memory limit"), "{large:?}");
        let full = lab.bash(
            "head -c 5M /dev/zero > /tmp/a; head -c 5M /dev/zero > b; wc -c < /tmp/a; wc -c < b; rm /tmp/a b",
        );
        let sizes: Vec<u64> = full.stdout.lines().map(|size| size.parse().unwrap()).collect();
        match lab.runtime {
            "local" => {
                assert!(full.stderr.contains("No space left on device"), "{full:?}");
                assert!(sizes[0] == 5 << 20 && sizes[0] + sizes[1] <= 8 << 20, "{full:?}");
            }
            // Each directory has the limit.
            _ => {
                assert_eq!(sizes, [5 << 20; 2], "{full:?}");
                let full = lab.bash("head -c 10M /dev/zero > b; wc -c < b; rm b");
                assert!(full.stderr.contains("No space left on device"), "{full:?}");
                assert_eq!(full.stdout, format!("{}\n", 8 << 20));
            }
        }
        let forks = lab.sandbox(&["exec", "lab", "--", "python3", "-c", FORKS]);
        assert_eq!(forks.ok(), "Resource temporarily unavailable\n");
        assert_eq!(lab.bash("echo lives").ok(), "lives\n");
        lab.sandbox(&["exec", "lab", "--", "python3", "-c", FILL]).ok();
        let mut more = lab.bash("true");
        eventually("there is no room for a process", || {
            more = lab.bash("true");
            more.status != 0
        });
        more.refused(125, "in the sandbox: Resource temporarily unavailable");
        assert!(more.stderr.contains("end some of its processes"), "{more:?}");
    });
}

#[test]
fn results_of_commands_have_a_shape() {
    everywhere(|lab| {
        let told = lab.json(&[
            "exec",
            "lab",
            "--",
            "bash",
            "-c",
            "echo out; echo err >&2; exit 4",
        ]);
        assert_eq!(
            (
                &told["stdout"],
                &told["stderr"],
                &told["exit_code"],
                &told["outcome"],
                &told["truncated"]
            ),
            (
                &json!("out\n"),
                &json!("err\n"),
                &json!(4),
                &json!("exited"),
                &json!(false)
            ),
            "{told}"
        );
        assert!(told["duration"].as_f64() > Some(0.0), "{told}");
        let late = lab.json(&["exec", "--timeout", "200ms", "lab", "--", "sleep", "600"]);
        assert_eq!(
            (&late["exit_code"], &late["outcome"]),
            (&json!(-1), &json!("timed_out"))
        );
        let command = lab.json(&["run", "lab", "--", "echo", "same"]);
        assert_eq!(command["stdout"], "same\n");
        assert_eq!(
            lab.sandbox(&["run", "lab", "--", "bash", "-c", "exit 5"]).status,
            5
        );
        let long = lab.json(&["exec", "lab", "--", "bash", "-c", "yes | head -c 3000000"]);
        assert_eq!(long["truncated"], true);
    });
}

#[test]
fn logs_show_what_commands_have_printed() {
    everywhere(|lab| {
        lab.bash("echo first; echo aside >&2").ok();
        let mut running = lab.start(&["exec", "lab", "--", "bash", "-c", "echo second; exec sleep 600"]);
        eventually("both are told", || {
            let logs = lab.sandbox(&["logs", "lab"]);
            let titled: Vec<&str> = logs
                .ok()
                .lines()
                .filter(|line| line.starts_with("==> "))
                .collect();
            let is_titled = titled.len() == 2
                && titled[0].ends_with("(status 0) <==")
                && titled[1].ends_with("(running) <==");
            let output: Vec<&str> = logs
                .ok()
                .lines()
                .filter(|line| !line.starts_with("==> "))
                .collect();
            logs.stderr == "aside\n" && is_titled && output == ["first", "", "second"]
        });
        let logs = lab.sandbox(&["logs", "--json", "lab"]);
        let lines: Vec<Value> = logs
            .ok()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            (&lines[0]["type"], &lines[0]["end"]["exit_code"]),
            (&json!("process"), &json!(0))
        );
        assert!(
            lines
                .iter()
                .any(|line| line["type"] == "stdout" && line["text"] == "first\n"),
            "{logs:?}"
        );
        let used = lab.json(&["stats", "--once", "lab"]);
        assert!(used["memory_bytes"].as_u64() > Some(0), "{used}");
        assert!(used["pids"].as_u64() > Some(1), "{used}");
        lab.bash("head -c 3M /dev/zero > three").ok();
        let filled = lab.json(&["stats", "--once", "lab"]);
        let (before, after) = (used["disk_bytes"].as_u64(), filled["disk_bytes"].as_u64());
        assert_eq!(after, before.map(|bytes| bytes + (3 << 20)), "{filled}");
        assert!(
            lab.sandbox(&["stats", "--once", "lab"])
                .ok()
                .contains(" of 512 MiB")
        );
        // Ctrl-C reaches the command.
        lab.world.signal(&running, "INT");
        assert_eq!(running.wait().unwrap().code(), Some(130));
    });
}

#[test]
fn logs_go_on_without_a_process_that_is_forgotten_meanwhile() {
    let lab = Lab::with_sandbox();
    let mut running = lab.start(&[
        "exec",
        "lab",
        "--",
        "bash",
        "-c",
        "echo waits; until [ -e go ]; do :; done",
    ]);
    let mut first = BufReader::new(running.stdout.take().unwrap()).lines();
    assert_eq!(first.next().unwrap().unwrap(), "waits");
    lab.bash("echo forgotten").ok();
    let mut logs = lab.start(&["logs", "--follow", "lab"]);
    let mut lines = BufReader::new(logs.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().starts_with("==> process "));
    assert_eq!(lines.next().unwrap().unwrap(), "waits");
    for _ in 0..17 {
        lab.bash("echo later").ok();
    }
    lab.bash("touch go").ok();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.len() == 2 && rest[1].contains("echo forgotten"), "{rest:?}");
    let mut told = String::new();
    logs.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert!(told.contains("is no longer kept"), "{told}");
    assert_eq!(logs.wait().unwrap().code(), Some(0), "{told}");
    running.wait().unwrap();
    lab.close();
}

#[test]
fn a_command_whose_output_nobody_reads_is_killed() {
    everywhere(|lab| {
        let mut running = lab.start(&["exec", "lab", "--", "yes"]);
        drop(running.stdout.take());
        assert_eq!(running.wait().unwrap().code(), Some(141));
        eventually("it is gone", || lab.json(&["get", "lab"])["processes"] == 0);
    });
}
