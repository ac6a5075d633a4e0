//! MCP servers that change their tools after a person has consented to them.

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::support::eventually;
use crate::world::World;

const SERVER: &str = include_str!("turncoat.py");

const SEND: &str = "print(device.mail.send_mail('ann'))";

/// Creates a world with the server, whose function `send_mail` needs approval.
fn world() -> (World, Client) {
    let world = World::here();
    let config = format!(
        "[skills]\nask = ['mail.send_mail']\nask_timeout = '60s'\ncall_timeout = '60s'\nstart_timeout = '60s'\n\
         [skills.servers.mail]\ncommand = ['python3', '-c', '''{SERVER}''']\n"
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    let client = Client::greeted(&world, &[]);
    (world, client)
}

/// Starts a program.
fn begin(client: &mut Client, code: &str) -> i64 {
    client.begin("run_python_code", &json!({"code": code, "timeout": 120}))
}

/// Waits for the pending question.
fn question(world: &World) -> Value {
    let mut waiting = Value::Null;
    eventually("a question waits", || {
        let listed = world.dir.run(["approvals", "ls", "--json"]);
        let listed: Value = serde_json::from_str(listed.ok()).unwrap();
        waiting = listed[0].clone();
        !waiting.is_null()
    });
    waiting
}

fn approve(world: &World, question: &Value, options: &[&str]) {
    let id = question["id"].as_str().unwrap();
    world
        .dir
        .run([&["approvals", "approve", id], options].concat())
        .ok();
}

/// Returns the first output of a program.
fn printed(client: &mut Client, id: i64) -> String {
    let answer = client.answer(id);
    let text = answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn turn(client: &mut Client, offer: &str) {
    let id = begin(client, &format!("print(device.mail.turn('{offer}'))"));
    assert_eq!(printed(client, id), "turned");
}

#[test]
fn a_tool_that_changed_is_asked_about_again() {
    let (world, mut client) = world();
    let mut definitions = Vec::new();
    for (offer, sent) in [
        ("honest", "send-mail to ann"),
        ("described", "send-mail to ann"),
        ("schema", "send-mail to ann"),
        ("named", "send_mail to ann"),
    ] {
        turn(&mut client, offer);
        let id = begin(&mut client, SEND);
        let asked = question(&world);
        assert_eq!(asked["changed"], offer != "honest", "{offer}: {asked}");
        definitions.push(asked["definition"].clone());
        approve(&world, &asked, &["--session"]);
        assert_eq!(printed(&mut client, id), sent, "{offer}");
        // The same again asks no question: nobody would answer.
        let id = begin(&mut client, SEND);
        assert_eq!(printed(&mut client, id), sent, "{offer}");
    }
    // An earlier consent still holds.
    turn(&mut client, "described");
    let id = begin(&mut client, SEND);
    assert_eq!(printed(&mut client, id), "send-mail to ann");
    definitions.sort_by_key(ToString::to_string);
    definitions.dedup();
    assert_eq!(definitions.len(), 4, "{definitions:?}");
    client.leave().announced(4);
    world.close();
}

#[test]
fn a_tool_that_changes_under_a_question_is_not_called() {
    let (world, mut client) = world();
    let id = begin(&mut client, SEND);
    let asked = question(&world);
    turn(&mut client, "described");
    approve(&world, &asked, &[]);
    let answer = client.answer(id).to_string();
    assert!(
        answer.contains("changed after a person was asked about it"),
        "{answer}"
    );
    let records = world.dir.run(["audit", "tail", "--json"]);
    let told: Vec<&str> = records
        .ok()
        .lines()
        .filter(|line| line.contains("changed since"))
        .collect();
    assert!(
        told.len() == 1 && told[0].contains("\"decision\":\"refused\""),
        "{told:?}"
    );
    client.leave().announced(1);
    world.close();
}

#[test]
fn a_tool_with_another_name_is_asked_about_as_well() {
    let (world, mut client) = world();
    turn(&mut client, "renamed");
    let id = begin(&mut client, "print(device.mail.deliver('ann'))");
    let asked = question(&world);
    assert!(
        asked["text"].as_str().unwrap().starts_with("mail.deliver {"),
        "{asked}"
    );
    approve(&world, &asked, &[]);
    let answer = client.answer(id).to_string();
    assert!(answer.contains("deliver to ann"), "{answer}");
    assert!(
        answer.contains("names `mail.send_mail`, which `mail` does not offer"),
        "{answer}"
    );
    client.leave().announced(1);
    world.close();
}
