//! The official clients for Python and TypeScript, each in its own program that reports its results.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::finish;
use crate::world::{World, repository};

const PYTHON: &str = include_str!("clients/contract.py");
const TYPESCRIPT: &str = include_str!("clients/contract.mjs");

/// Returns the calls of each client in order, with the names of the checks.
fn calls() -> Value {
    let call = |check: &str, tool: &str, arguments: Value| json!({"check": check, "tool": tool, "arguments": arguments});
    json!([
        call("python", "run_python_code", json!({"code": "print(6 * 7)"})),
        call("exception", "run_python_code", json!({"code": "1 / 0"})),
        call(
            "code",
            "run_code",
            json!({"code": "echo $((6 * 7)); exit 3", "language": "bash"})
        ),
        call(
            "shell",
            "shell",
            json!({"command": "echo", "args": ["a  b", "$HOME"]})
        ),
        call(
            "write",
            "file_write",
            json!({"path": "notes/a.txt", "content": "one\ntwo\n"})
        ),
        call("read", "file_read", json!({"path": "notes/a.txt"})),
        call("list", "file_list", json!({"path": "notes"})),
        call(
            "shared",
            "run_python_code",
            json!({"code": "print(open('notes/a.txt').read())"})
        ),
        call("delete", "file_delete", json!({"path": "notes/a.txt"})),
        call("fetch", "http_fetch", json!({"url": "http://127.0.0.1:1/"})),
        call(
            "timed_out",
            "run_code",
            json!({"code": "while True: pass", "timeout": 0.3})
        ),
        call(
            "timeout",
            "shell",
            json!({"command": "sleep", "args": ["600"], "timeout": 0.3})
        ),
        call(
            "invalid_arguments",
            "run_code",
            json!({"code": 5, "colour": "red"})
        ),
        call("not_found", "file_read", json!({"path": "nowhere.txt"})),
        call(
            "permission_denied",
            "file_read",
            json!({"path": "../../../etc/passwd"})
        ),
        call("unavailable", "run_code", json!({"code": "", "runtime": "e2b"})),
        call("unknown", "no_such_tool", json!({})),
    ])
}

/// A client's report, by the name of the check.
pub(crate) struct Told(BTreeMap<String, Value>);

impl Told {
    #[track_caller]
    pub(crate) fn get(&self, check: &str) -> &Value {
        assert!(self.0.contains_key(check), "the client did not come to `{check}`");
        &self.0[check]
    }

    /// Asserts that a call succeeded with this text.
    #[track_caller]
    fn answered(&self, check: &str, text: &str) {
        let told = self.get(check);
        assert_eq!(
            (&told["error"], &told["text"]),
            (&json!(false), &json!(text)),
            "{check}"
        );
    }

    /// Asserts that a call failed with this type of error, for a program and for a model.
    #[track_caller]
    pub(crate) fn failed(&self, check: &str, kind: &str) {
        let told = self.get(check);
        assert_eq!(told["error"], true, "{check}: {told}");
        let error = &told["structured"]["error"];
        assert_eq!(error["type"], kind, "{check}: {told}");
        let text = told["text"].as_str().unwrap();
        for part in ["message", "hint"] {
            let part = error[part].as_str().unwrap();
            assert!(!part.is_empty() && text.contains(part), "{check}: {told}");
        }
    }
}

/// Runs a client's program with these calls, and returns its report.
pub(crate) fn told(mut client: Command, calls: &Value) -> Told {
    let output = finish(&mut client, calls.to_string().as_bytes());
    assert_eq!(output.status, 0, "{}", output.stderr);
    let lines = output.stdout.lines();
    let told = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let told = told.map(|fact| (fact["check"].as_str().unwrap().to_owned(), fact));
    Told(told.collect())
}

pub(crate) fn installed(path: &str) -> PathBuf {
    let place = repository(path);
    assert!(place.exists(), "no {path} (`cargo xtask setup` makes it)");
    // The directory is resolved, a link in it is not.
    let parent = place.parent().unwrap().canonicalize().unwrap();
    parent.join(place.file_name().unwrap())
}

/// Has a client, made by `command` for a binary and a directory, run all checks, and verifies its report.
fn check(protocol: Option<&str>, command: impl FnOnce(&World, &Path, &Path) -> Command) {
    let world = World::here();
    let offered = world.dir.path("offered");
    for name in ["one", "two"] {
        fs::create_dir_all(offered.join(name)).unwrap();
    }
    let client = command(&world, &world.dir.path("ringfence"), &offered);
    let told = told(client, &calls());
    greeting(&told, protocol);
    tools(&told);
    answers(&told);
    errors(&told);
    attention(&told);
    roots(&told, &offered);
    world.close();
}

fn greeting(told: &Told, protocol: Option<&str>) {
    let greeting = told.get("greeting");
    assert_eq!(greeting["server"], "ringfence", "{greeting}");
    if let Some(protocol) = protocol {
        assert_eq!(greeting["protocol"], protocol, "{greeting}");
    }
    let instructions = greeting["instructions"].as_str().unwrap();
    assert!(instructions.contains("run_python_code"), "{greeting}");
}

fn tools(told: &Told) {
    let tools = told.get("tools")["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in [
        "run_python_code",
        "run_code",
        "shell",
        "file_read",
        "file_write",
        "file_list",
        "file_delete",
        "http_fetch",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    for tool in tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(!tool["description"].as_str().unwrap().is_empty(), "{tool}");
        assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
    }
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap();
    assert_eq!(tool("file_read")["annotations"]["readOnlyHint"], true);
    assert_eq!(tool("file_delete")["annotations"]["destructiveHint"], true);
    assert_eq!(tool("http_fetch")["annotations"]["openWorldHint"], true);
    assert_eq!(tool("run_code")["outputSchema"]["type"], "object");
}

fn answers(told: &Told) {
    told.answered("python", "42\n");
    assert!(
        told.get("exception")["text"]
            .as_str()
            .unwrap()
            .contains("ZeroDivisionError")
    );
    assert_eq!(told.get("exception")["error"], false);
    let code = &told.get("code")["structured"];
    assert_eq!((&code["stdout"], &code["exit_code"]), (&json!("42\n"), &json!(3)));
    let shell = &told.get("shell")["structured"];
    assert_eq!(shell["stdout"], "a  b $HOME\n", "{shell}");
    assert_eq!(told.get("write")["error"], false);
    assert!(told.get("read")["text"].as_str().unwrap().contains("one\ntwo"));
    assert!(told.get("list")["text"].as_str().unwrap().contains("a.txt"));
    told.answered("shared", "one\ntwo\n\n");
    assert_eq!(told.get("delete")["error"], false);
    let timed_out = &told.get("timed_out")["structured"]["meta"];
    assert_eq!(timed_out["outcome"], "timed_out", "{timed_out}");
    let timeout = &told.get("timeout")["structured"];
    assert_eq!(timeout["timed_out"], true, "{timeout}");
}

fn errors(told: &Told) {
    told.failed("invalid_arguments", "invalid_arguments");
    let message = told.get("invalid_arguments")["text"].as_str().unwrap();
    assert!(
        message.contains("/code") && message.contains("colour"),
        "{message}"
    );
    told.failed("not_found", "not_found");
    told.failed("permission_denied", "permission_denied");
    told.failed("fetch", "permission_denied");
    told.failed("unavailable", "runtime_unavailable");
    assert_eq!(told.get("unknown")["protocol_error"], -32602);
}

fn attention(told: &Told) {
    assert_eq!(told.get("fifty")["right"], 50);
    let progress = told.get("progress");
    let heard = progress["heard"].as_array().unwrap();
    let values: Vec<f64> = heard.iter().map(|told| told[0].as_f64().unwrap()).collect();
    assert!(values.len() >= 2 && values.is_sorted(), "{progress}");
    let first = heard[0][1].as_str().unwrap();
    assert!(first.contains("half way"), "{progress}");
    let cancel = told.get("cancel");
    for part in ["started", "cancelled", "gone"] {
        assert_eq!(cancel[part], true, "{cancel}");
    }
    assert_eq!(cancel["after"], "still here\n");
    let log = told.get("log");
    assert_eq!(log["heard"][0][0], "warning", "{log}");
    let heard = log["heard"][0][1].as_str().unwrap();
    assert!(
        heard.contains("not the workspace") && heard.contains("/proc"),
        "{log}"
    );
    assert_eq!(log["text"], "all the same\n");
}

fn roots(told: &Told, offered: &Path) {
    let read = |path: &str| fs::read_to_string(offered.join(path)).unwrap();
    assert_eq!(told.get("root_write")["error"], false);
    assert_eq!(read("one/tool.txt"), "from a tool");
    told.answered("root_code", "from a tool\n");
    assert_eq!(read("one/code.txt"), "from code");
    if let Some(changed) = told.0.get("root_changed") {
        assert_eq!(changed["error"], false, "{changed}");
        assert_eq!(read("two/tool.txt"), "from a tool");
    }
}

fn python(mode: &'static str, protocol: &str) {
    check(Some(protocol), |world, binary, offered| {
        let program = world.dir.write("work/contract.py", PYTHON);
        let mut command = world.dir.program(installed("target/mcp-venv").join("bin/python"));
        command.arg(program).arg(binary).arg(mode).arg(offered);
        command
    });
}

#[test]
fn the_python_client_of_today() {
    python("auto", "2026-07-28");
}

#[test]
fn the_python_client_that_introduces_itself() {
    python("legacy", "2025-11-25");
}

#[test]
fn the_typescript_client() {
    check(None, |world, binary, offered| {
        let program = world.dir.write("work/contract.mjs", TYPESCRIPT);
        let modules = installed("target/mcp-node").join("node_modules");
        symlink(modules, world.dir.path("work/node_modules")).unwrap();
        let mut command = world.dir.program("node");
        command.arg(program).arg(binary).arg("initialize").arg(offered);
        command
    });
}
