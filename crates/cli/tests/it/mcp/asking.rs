//! The official clients with approval requests, and the errors that follow.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::process::Command;

use serde_json::{Value, json};

use super::elicitation::{LISTS, chosen, listed};
use super::official::{Told, installed, told};
use crate::support::eventually;
use crate::world::World;

const PYTHON: &str = include_str!("clients/asking.py");
const TYPESCRIPT: &str = include_str!("clients/asking.mjs");

/// Returns a configuration of low limits, and a server that never answers.
fn config(port: u16) -> String {
    format!(
        "{LISTS}[permissions.tool_limits]\nat_limit = 'ask'\nrun_code_timeout_secs = 0.2\nhard_timeout_secs = 60\n\
         http_timeout_secs = 0.5\nask_timeout_secs = 30\n\
         [sandbox]\nblock_dangerous_imports = true\n\
         [egress]\nallowed_hosts = ['127.0.0.1:{port}']\nprivate_networks = ['127.0.0.0/8']\n"
    )
}

fn remove(check: &str, file: &str, rest: Value) -> Value {
    let mut step =
        json!({"check": check, "tool": "host_exec", "arguments": {"command": format!("rm {file}")}});
    step.as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    step
}

fn slow(check: &str, code: &str, answer: &str) -> Value {
    json!({"check": check, "tool": "run_code", "arguments": {"code": code}, "answer": chosen(answer)})
}

fn steps(world: &World, port: u16) -> Value {
    let answered = world.dir.path("work/answered");
    let code =
        |check: &str, code: &str| json!({"check": check, "tool": "run_code", "arguments": {"code": code}});
    json!([
        remove("approve", "first", json!({"answer": chosen("approve once")})),
        remove("reject", "kept", json!({"answer": chosen("reject")})),
        remove("decline", "kept", json!({"answer": {"action": "decline"}})),
        remove("cancel", "kept", json!({"answer": {"action": "cancel"}})),
        remove("wrong", "kept", json!({"answer": chosen("approve")})),
        remove("empty", "kept", json!({"answer": {"action": "accept"}})),
        remove("elsewhere", "elsewhere", json!({"wait": answered})),
        slow(
            "extended",
            "import time\ntime.sleep(1)\nprint('done')",
            "approve once"
        ),
        slow("not_extended", "while True: pass", "reject"),
        code("blocked", "import subprocess"),
        {
            "check": "timeout",
            "tool": "http_fetch",
            "arguments": {"url": format!("http://127.0.0.1:{port}/")},
            "answer": chosen("reject"),
        },
        remove("plain", "elsewhere", json!({"plain": true})),
    ])
}

/// Denies the one pending command twice, as the person at the machine.
fn deny_elsewhere(world: &World) {
    deny(world);
    world.dir.write("work/answered", "");
    deny(world);
}

fn deny(world: &World) {
    let mut id = String::new();
    eventually("the question", || {
        let waiting = listed(world, &[]);
        let left = waiting.iter().find(|request| request["text"] == "rm elsewhere");
        id = left.map_or_else(String::new, |request| request["id"].as_str().unwrap().to_owned());
        !id.is_empty()
    });
    world.dir.run(["approvals", "deny", &id]).ok();
}

/// Has a client, made by `command`, answer every kind of question, and checks its report.
fn check(is_told_of_the_end: bool, command: impl FnOnce(&World) -> Command) {
    let world = World::before_engine();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    world.dir.write("config/ringfence/ringfence.toml", config(port));
    for file in ["first", "kept", "elsewhere"] {
        world.dir.write(&format!("work/{file}"), "x");
    }
    let client = command(&world);
    let steps = steps(&world, port);
    let told = std::thread::scope(|scope| {
        scope.spawn(|| deny_elsewhere(&world));
        told(client, &steps)
    });
    answers(&told);
    limits(&told);
    assert_eq!(told.get("elsewhere")["taken_back"], is_told_of_the_end);
    let is_there = |file: &str| world.dir.path(&format!("work/{file}")).exists();
    assert!(!is_there("first"));
    assert!(is_there("kept") && is_there("elsewhere"));
    world.close();
}

fn answers(told: &Told) {
    assert_eq!(told.get("approve")["error"], false, "{}", told.get("approve"));
    let asked = &told.get("approve")["asked"][0];
    assert!(
        asked["message"].as_str().unwrap().contains("    | rm first\n"),
        "{asked}"
    );
    assert_eq!(
        asked["requestedSchema"]["properties"]["decision"]["enum"][0],
        "reject"
    );
    for check in ["reject", "decline", "elsewhere", "plain"] {
        told.failed(check, "rejected");
    }
    for check in ["cancel", "wrong", "empty"] {
        told.failed(check, "approval_timeout");
    }
    assert_eq!(told.get("plain")["asked"], json!([]));
}

fn limits(told: &Told) {
    let extended = &told.get("extended")["structured"];
    assert_eq!(extended["stdout"], "done\n", "{extended}");
    let ended = &told.get("not_extended")["structured"]["meta"];
    assert_eq!(ended["outcome"], "timed_out", "{ended}");
    let blocked = &told.get("blocked")["structured"]["meta"];
    assert_eq!(blocked["outcome"], "blocked", "{blocked}");
    told.failed("timeout", "timeout");
}

/// Has a client request an approval while the store is broken.
fn check_broken(command: impl FnOnce(&World) -> Command) {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", LISTS);
    let mut private = fs::DirBuilder::new();
    let in_the_way = world.dir.path("state/ringfence/approvals.db");
    private.recursive(true).mode(0o700).create(in_the_way).unwrap();
    world.dir.write("work/kept", "x");
    let client = command(&world);
    let told = told(client, &json!([remove("internal", "kept", json!({}))]));
    told.failed("internal", "internal");
    assert_eq!(told.get("internal")["asked"], json!([]));
    assert!(world.dir.path("work/kept").exists());
    world.close();
}

fn python(mode: &'static str) -> impl FnOnce(&World) -> Command {
    move |world| {
        let program = world.dir.write("work/asking.py", PYTHON);
        let mut command = world.dir.program(installed("target/mcp-venv").join("bin/python"));
        command.arg(program).arg(world.dir.path("ringfence")).arg(mode);
        command
    }
}

fn typescript(world: &World) -> Command {
    let program = world.dir.write("work/asking.mjs", TYPESCRIPT);
    let modules = installed("target/mcp-node").join("node_modules");
    symlink(modules, world.dir.path("work/node_modules")).unwrap();
    let mut command = world.dir.program("node");
    command.arg(program).arg(world.dir.path("ringfence"));
    command
}

#[test]
fn the_python_client_of_today_comes_back_with_the_answer() {
    check(false, python("auto"));
    check_broken(python("auto"));
}

#[test]
fn the_python_client_that_introduces_itself_is_asked() {
    check(true, python("legacy"));
    check_broken(python("legacy"));
}

#[test]
fn the_typescript_client_is_asked() {
    check(true, typescript);
    check_broken(typescript);
}
