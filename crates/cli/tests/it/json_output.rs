//! Standard output as programs read it: one JSON object, or one per line, for every outcome.

use serde_json::{Value, json};

use crate::support::{Dir, Output, finish};
use crate::world::{World, here};

here!(output_comes_as_events_and_the_result_last);

/// Returns the one object that was printed, on any number of lines.
#[track_caller]
fn object(output: &Output) -> Value {
    let objects: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&output.stdout)
        .into_iter()
        .collect();
    let objects = objects.unwrap_or_default();
    assert_eq!(objects.len(), 1, "{output:?}");
    objects[0].clone()
}

/// Returns the objects that were printed, one per line.
#[track_caller]
fn lines(output: &Output) -> Vec<Value> {
    let lines = output.stdout.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

/// Failing command lines, with exit status, error type and part of the message.
const FAILING: &[(&[&str], i32, &str, &str)] = &[
    (
        &["run", "missing.py"],
        2,
        "invalid_arguments",
        "cannot read missing.py",
    ),
    (
        &["run", "-c", "1", "--no-such"],
        2,
        "invalid_arguments",
        "--no-such",
    ),
    (
        &["run", "-c", "1", "--timeout", "0"],
        2,
        "invalid_arguments",
        "--timeout",
    ),
    (
        &["run", "-c", "1", "x.py"],
        2,
        "invalid_arguments",
        "cannot be used with",
    ),
    (
        &["run", "-r", "e2b", "-c", "1"],
        125,
        "runtime_unavailable",
        "the runtime `e2b`",
    ),
    (
        &["run", "--session", "a", "-c", "1"],
        125,
        "runtime_unavailable",
        "none is running",
    ),
    (
        &["sandbox", "get", "lab"],
        125,
        "runtime_unavailable",
        "none is running",
    ),
    (
        &["artifacts", "show", "nosuch"],
        125,
        "not_found",
        "no stored run",
    ),
    (
        &["--config", "wrong.toml", "run", "-c", "1"],
        2,
        "invalid_arguments",
        "`sandbox.timout`",
    ),
    (
        &["run", "-c", "1", "-o", "wrong.toml"],
        2,
        "invalid_arguments",
        "not a directory",
    ),
    (
        &["tool", "shell", "--user", "a b"],
        2,
        "invalid_arguments",
        "--user",
    ),
    (
        &["--config", "wrong.toml", "tool", "shell"],
        2,
        "invalid_arguments",
        "`sandbox.pids`",
    ),
];

fn dir() -> Dir {
    let dir = Dir::new();
    dir.write("work/wrong.toml", "[sandbox]\ntimout = 5\npids = 'many'\n");
    dir
}

#[test]
fn whatever_fails_there_is_one_object() {
    let dir = dir();
    for (args, status, kind, message) in FAILING {
        let output = dir.run(args.iter().chain(&["--json"]));
        assert_error(&output, *status, kind, message);
    }
}

/// Checks that a command has failed with one error on standard output.
#[track_caller]
pub(crate) fn assert_error(output: &Output, status: i32, kind: &str, message: &str) {
    assert_eq!(output.status, status, "{output:?}");
    let error = &object(output)["error"];
    assert_eq!(error["type"], kind, "{output:?}");
    let text = error["message"].as_str().unwrap();
    assert!(text.contains(message) && !text.starts_with(kind), "{error}");
    let hint = error["hint"].as_str().unwrap();
    assert!(!hint.is_empty() && !hint.contains("openapi"), "{error}");
    // Standard error has the same message.
    assert!(output.stderr.contains(message), "{output:?}");
}

#[test]
fn without_being_asked_for_there_is_none() {
    let dir = dir();
    for (args, status, ..) in FAILING {
        let output = dir.run(*args);
        assert_eq!(
            (output.status, output.stdout.as_str()),
            (*status, ""),
            "{output:?}"
        );
    }
    assert!(
        dir.run(["run", "--json", "--help"])
            .ok()
            .contains("--json-stream")
    );
}

#[test]
fn events_end_with_the_error_where_nothing_ran() {
    let dir = dir();
    for (args, status, kind, message) in FAILING.iter().filter(|(args, ..)| args.contains(&"run")) {
        let output = dir.run(args.iter().chain(&["--json-stream"]));
        assert_eq!(output.status, *status, "{output:?}");
        let events = lines(&output);
        assert_eq!(
            (events.len(), &events[0]["type"]),
            (1, &json!("error")),
            "{output:?}"
        );
        assert_eq!(events[0]["error"]["type"], *kind);
        assert!(events[0]["error"]["message"].as_str().unwrap().contains(message));
    }
    let both = dir.run(["run", "--json", "--json-stream", "-c", "1"]);
    assert_eq!((both.status, lines(&both).len()), (2, 1));
}

#[test]
fn what_was_blocked_is_a_result() {
    let dir = dir();
    let mut command = dir.command(["run", "--no-engine", "--json-stream", "-c", "import os"]);
    command.env("SANDBOX_BLOCK_DANGEROUS_IMPORTS", "true");
    let output = finish(&mut command, b"");
    assert_eq!(output.status, 126, "{output:?}");
    let events = lines(&output);
    assert_eq!(events[0]["result"]["meta"]["outcome"], "blocked", "{output:?}");
}

fn output_comes_as_events_and_the_result_last(world: &World) {
    let code = "import os, sys\nos.write(1, b'a\\xc3')\nos.write(1, b'\\xa9\\n')\nos.write(2, b'\\xff')\nsys.exit(3)";
    let output = world.run(["--json-stream", "-c", code]);
    assert_eq!(output.status, 3, "{output:?}");
    let events = lines(&output);
    let text = |stream: &str| -> String {
        let of = events.iter().filter(|event| event["type"] == stream);
        of.map(|event| event["text"].as_str().unwrap()).collect()
    };
    assert_eq!(
        (text("stdout"), text("stderr")),
        ("a\u{e9}\n".to_owned(), "\u{fffd}".to_owned())
    );
    let last = events.last().unwrap();
    assert_eq!(last["type"], "result", "{output:?}");
    assert_eq!(last["result"]["exit_code"], 3);
    assert_eq!(last["result"]["stdout"], "a\u{e9}\n");
    // Each chunk is printed on arrival: the program reads our reply to the first.
    let mut echo = world
        .call([
            "--json-stream",
            "--stdin",
            "-",
            "-c",
            "print('go', flush=True)\nprint(input())",
        ])
        .start();
    let mut reader = std::io::BufReader::new(echo.stdout.take().unwrap());
    let mut next = || -> Value {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(next(), json!({"type": "stdout", "text": "go\n"}));
    std::io::Write::write_all(&mut echo.stdin.take().unwrap(), b"answer\n").unwrap();
    assert_eq!(next(), json!({"type": "stdout", "text": "answer\n"}));
    assert_eq!(next()["type"], "result");
    assert_eq!(echo.wait().unwrap().code(), Some(0));
}
