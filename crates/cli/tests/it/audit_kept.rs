//! Records that an agent cannot erase: commands on the host, and people's answers.

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::support::{eventually, finish};
use crate::world::World;

/// A log of few and small files, so that it is quickly full.
const CONFIG: &str = "[hostExecution]\nenabled = true\nallowList = ['@read-only']\n[audit]\nmax_file = \"64KiB\"\nmax_files = 2\n";

fn world() -> World {
    let world = World::here();
    world.dir.write("config/ringfence/ringfence.toml", CONFIG);
    world
}

/// Returns the records of the host log.
fn kept(world: &World) -> Vec<Value> {
    let output = world.dir.run(["audit", "tail", "--host", "--json", "-n", "1000"]);
    let lines = output.ok().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Approves a command that needs approval.
fn approve(world: &World, client: &mut Client, command: &str) {
    let id = client.begin("host_exec", &json!({ "command": command }));
    let mut question = String::new();
    eventually("the question waits", || {
        let listed = world.dir.run(["approvals", "ls", "--json"]);
        let waiting: Value = serde_json::from_str(&listed.stdout).unwrap();
        question = waiting[0]["id"].as_str().unwrap_or_default().to_owned();
        !question.is_empty()
    });
    world.dir.run(["approvals", "approve", &question]).ok();
    client.answer(id);
}

#[test]
fn an_agent_pushes_out_no_record_of_the_host() {
    let world = world();
    let mut client = Client::greeted(&world, &[]);
    approve(&world, &mut client, "touch made");
    let before = kept(&world);
    let told = |record: &Value| {
        let answer = record["answer"]["by"].as_str().map(str::to_owned);
        answer.unwrap_or_else(|| format!("{} {}", record["tool"], record["outcome"]))
    };
    assert_eq!(
        before.iter().map(told).collect::<Vec<_>>(),
        [
            "ringfence approvals",
            "\"host_exec\" \"begun\"",
            "\"host_exec\" \"answered\""
        ]
    );
    assert_eq!(before[0]["answer"]["text"], "touch made");
    let long = "x".repeat(8_000);
    // Denied and allowed calls.
    for (tool, arguments, count) in [
        ("host_exec", json!({"command": "touch x", "why": long}), 2_000),
        ("file_list", json!({"path": ".", "why": long}), 200),
        ("file_read", json!({"path": long}), 200),
    ] {
        for _ in 0..count {
            client.call(tool, &arguments);
        }
    }
    drop(client);
    assert_eq!(kept(&world), before);
    let verified = world.dir.run(["audit", "verify"]);
    let text = verified.ok();
    for expected in [
        "removed: records 1 to ",
        "refused uses have no record of their own",
        "commands on the host and answers:\nintact: 3 records, 1 to 3, in 1 file\n",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    let shown = world.dir.run(["audit", "tail", "--host"]);
    assert!(
        shown
            .ok()
            .contains("approved by ringfence approvals, once  command  touch made"),
        "{shown:?}"
    );
}

#[test]
fn what_a_person_refuses_and_what_is_taken_back_is_no_record_of_the_host_that_ran() {
    let world = world();
    let arguments = json!({"command": "touch made"}).to_string();
    let environment = [("RINGFENCE_HOST_EXECUTION_ASK_TIMEOUT_MIN".into(), "1s".into())];
    let output = finish(
        &mut world.command(&environment, ["tool", "host_exec", &arguments, "--json"]),
        b"",
    );
    assert!(output.stdout.contains("approval_timeout"), "{output:?}");
    assert_eq!(kept(&world), [Value::Null; 0]);
    let records = world.dir.run(["audit", "tail", "--json"]);
    let record: Value = serde_json::from_str(records.ok().trim()).unwrap();
    assert_eq!(record["decision"], "refused");
}

#[test]
fn a_full_log_of_the_host_lets_no_command_begin() {
    let world = world();
    world
        .dir
        .write("config/ringfence/ringfence.toml", CONFIG.replace("64KiB", "2KiB"));
    let mut client = Client::greeted(&world, &[]);
    let list = json!({"command": "ls"});
    let mut answer = Value::Null;
    for _ in 0..20 {
        answer = client.call("host_exec", &list);
        if answer["isError"] == true {
            break;
        }
    }
    let text = answer.to_string();
    assert!(
        text.contains("the command was not started") && text.contains("7 days"),
        "{text}"
    );
    // The fenced tools still work, and the message names the command to run.
    assert_ne!(client.call("file_list", &json!({"path": "."}))["isError"], true);
    assert!(text.contains("ringfence audit tail --host"), "{text}");
    world.dir.run(["audit", "verify"]).ok();
}

#[test]
fn padding_hides_no_end_of_a_command() {
    let world = world();
    let mut client = Client::greeted(&world, &[]);
    let padded = |count: usize| json!({ "command": format!("ls {} -- the-end", "a".repeat(count)) });
    for count in [5_000, 9_000] {
        client.call("host_exec", &padded(count));
        let records = kept(&world);
        assert_eq!(records.last().unwrap()["arguments"], padded(count), "{count}");
    }
}
