//! Questions that a call's client answers for its user, with a handwritten client.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::{Client, text};
use crate::support::eventually;
use crate::world::World;

pub(super) const LISTS: &str =
    "[hostExecution]\nenabled = true\nallowList = ['@read-only']\nnotifyList = ['touch *']\n";

/// A tool timeout that asks a person.
pub(super) const ASK: &str =
    "[permissions.tool_limits]\nat_limit = 'ask'\nrun_code_timeout_secs = 0.2\nhard_timeout_secs = 60\n";

/// Creates a world with a file `old` in its working directory, and this configuration.
pub(super) fn world(config: &str) -> World {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.dir.write("work/old", "x");
    world
}

/// Connects a client that can show a form.
fn asked(world: &World) -> Client {
    let mut client = Client::start(world, &["--workspace", "."]);
    client.greet(&json!({"elicitation": {"form": {}}}));
    client
}

/// Starts to remove the file; returns the request's id.
fn remove(client: &mut Client) -> i64 {
    client.begin("host_exec", &json!({"command": "rm old"}))
}

/// Returns the server's question to the client.
#[track_caller]
fn question(client: &mut Client) -> Value {
    client.until(|message| message["method"] == "elicitation/create")
}

fn respond(client: &mut Client, question: &Value, result: &Value) {
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
}

fn choose(client: &mut Client, question: &Value, decision: &str) {
    respond(client, question, &chosen(decision));
}

pub(super) fn chosen(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

/// Returns the error type of a call.
#[track_caller]
fn error(client: &mut Client, id: i64) -> String {
    kind(&client.answer(id))
}

#[track_caller]
pub(super) fn kind(answer: &Value) -> String {
    let kind = answer["result"]["structuredContent"]["error"]["type"].as_str();
    assert!(kind.is_some(), "{answer}");
    kind.unwrap().to_owned()
}

pub(super) fn is_there(world: &World) -> bool {
    world.dir.path("work/old").exists()
}

pub(super) fn listed(world: &World, options: &[&str]) -> Vec<Value> {
    let output = world.dir.run([&["approvals", "ls", "--json"], options].concat());
    serde_json::from_str(output.ok()).unwrap()
}

/// Returns the outcome of the newest question, and its author.
pub(super) fn newest(world: &World) -> (String, String) {
    let all = listed(world, &["--all"]);
    let newest = all.last().unwrap();
    let word = |name: &str| newest[name].as_str().unwrap_or_default().to_owned();
    (word("state"), word("by"))
}

/// Answers the only question from outside.
pub(super) fn answer_elsewhere(world: &World, verdict: &str) {
    let waiting = listed(world, &[]);
    assert_eq!(waiting.len(), 1, "{waiting:?}");
    let id = waiting[0]["id"].as_str().unwrap();
    world.dir.run(["approvals", verdict, id]).ok();
}

/// Connects a gateway, until the reader is dropped.
fn gateway(world: &World) -> BufReader<UnixStream> {
    let socket = world.dir.path("run/ringfence/gateway.sock");
    let mut gateway = BufReader::new(UnixStream::connect(socket).unwrap());
    assert_eq!(said(&mut gateway)["type"], "hello");
    gateway
}

fn said(gateway: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    gateway.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
fn the_client_is_asked_in_full_and_its_yes_runs_the_command() {
    let world = world(LISTS);
    let mut client = asked(&world);
    let id = client.begin("host_exec", &json!({"command": "rm old # \u{202e}\u{7}x"}));
    let asked = question(&mut client);
    let message = asked["params"]["message"].as_str().unwrap();
    for part in [
        "A command asks to run on this machine",
        "of 10",
        "    | rm old # \\u{202e}\\u{7}x\n",
        "    - ",
        "For local. Expires in 5m 00s.",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let schema = &asked["params"]["requestedSchema"];
    assert_eq!(schema["required"], json!(["decision"]), "{asked}");
    let choices = &schema["properties"]["decision"]["enum"];
    assert_eq!(
        choices[0], "reject",
        "what is preselected must do no harm: {asked}"
    );
    assert!(
        choices.as_array().unwrap().contains(&json!("approve once")),
        "{asked}"
    );
    assert!(is_there(&world));
    choose(&mut client, &asked, "approve once");
    let answer = client.answer(id);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert!(!is_there(&world));
    assert_eq!(
        newest(&world),
        ("consumed".to_owned(), "MCP client by hand".to_owned())
    );
    // An approval holds once: the next call asks again, and a denial prevents it.
    world.dir.write("work/old", "x");
    let id = remove(&mut client);
    let asked = question(&mut client);
    choose(&mut client, &asked, "reject");
    assert_eq!(error(&mut client, id), "rejected");
    assert!(is_there(&world));
    client.leave().well();
    world.close();
}

#[test]
fn what_is_chosen_for_the_session_holds_for_it() {
    let world = world(LISTS);
    let mut client = asked(&world);
    let id = remove(&mut client);
    let asked = question(&mut client);
    choose(&mut client, &asked, "approve for the session");
    assert_eq!(client.answer(id)["result"]["isError"], false);
    world.dir.write("work/old", "x");
    let again = client.call("host_exec", &json!({"command": "rm old"}));
    assert_eq!(again["isError"], false, "{again}");
    assert!(!is_there(&world));
    client.leave().well();
    world.close();
}

#[test]
fn nothing_but_a_yes_as_the_form_has_it_is_a_yes() {
    let world = world(LISTS);
    let mut client = asked(&world);
    let mut check = |result: Value, expected: &str| {
        let id = remove(&mut client);
        let asked = question(&mut client);
        respond(&mut client, &asked, &result);
        assert_eq!(error(&mut client, id), expected, "{result}");
        assert!(is_there(&world), "{result}");
    };
    check(json!({"action": "decline"}), "rejected");
    check(
        json!({"action": "decline", "content": {"decision": "approve once"}}),
        "rejected",
    );
    let accept = |content: Value| json!({"action": "accept", "content": content});
    // Without a gateway, nobody else can answer.
    for malformed in [
        json!({"action": "cancel"}),
        json!({"action": "cancel", "content": {"decision": "approve once"}}),
        json!({"action": "accept"}),
        accept(json!(null)),
        accept(json!("approve once")),
        accept(json!({})),
        accept(json!({"decision": true})),
        accept(json!({"decision": ["approve once"]})),
        accept(json!({"decision": "Approve once"})),
        accept(json!({"decision": "approve once", "remember": "always"})),
        json!({"action": "approve", "content": {"decision": "approve once"}}),
        json!({"decision": "approve once"}),
        json!({}),
    ] {
        check(malformed, "approval_timeout");
    }
    let id = remove(&mut client);
    let asked = question(&mut client);
    client.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}}));
    let answer = client.answer(id);
    assert_eq!(kind(&answer), "approval_timeout");
    let words = text(&answer["result"]);
    assert!(
        words.contains("MCP client by hand was asked and gave no answer"),
        "{words}"
    );
    assert_eq!(newest(&world).0, "expired");
    client.leave().well();
    world.close();
}

#[test]
fn what_is_not_offered_cannot_be_chosen() {
    let world = world(LISTS);
    let mut client = asked(&world);
    let always = "always approve exactly this";
    let id = client.begin(
        "host_exec",
        &json!({"command": "python3 -c 'import os; os.remove(\"old\")'"}),
    );
    let asked = question(&mut client);
    let choices = &asked["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert!(!choices.as_array().unwrap().contains(&json!(always)), "{asked}");
    choose(&mut client, &asked, always);
    assert_eq!(error(&mut client, id), "approval_timeout");
    assert!(is_there(&world));
    client.leave().well();
    world.close();
}

#[test]
fn a_client_that_cannot_or_may_not_be_asked_is_not() {
    let off = format!("{LISTS}[gateway]\nmcp_elicitation = false\n");
    for (config, capabilities) in [
        (LISTS, json!({})),
        (LISTS, json!({"elicitation": {"url": {}}})),
        (&off, json!({"elicitation": {}})),
    ] {
        let world = world(config);
        let mut client = Client::start(&world, &["--workspace", "."]);
        client.greet(&capabilities);
        let id = remove(&mut client);
        eventually("a question", || !listed(&world, &[]).is_empty());
        answer_elsewhere(&world, "approve");
        assert_eq!(client.answer(id)["result"]["isError"], false);
        assert!(!is_there(&world));
        // It was told of the question, and not asked.
        client.leave().announced(1);
        world.close();
    }
}

#[test]
fn another_answer_ends_the_question_and_a_later_one_changes_nothing() {
    let world = world(LISTS);
    let mut client = asked(&world);
    let id = remove(&mut client);
    let asked = question(&mut client);
    answer_elsewhere(&world, "deny");
    let cancelled = client.until(|message| message["method"] == "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    choose(&mut client, &asked, "approve once");
    assert_eq!(error(&mut client, id), "rejected");
    assert!(is_there(&world));
    assert_eq!(newest(&world).0, "rejected");
    client.leave().well();
    world.close();
}

#[test]
fn gateways_see_the_question_and_what_the_client_answered() {
    let world = world(LISTS);
    world.start_engine();
    let mut gateway = gateway(&world);
    let mut client = asked(&world);
    let id = remove(&mut client);
    let asked = question(&mut client);
    let shown = said(&mut gateway);
    assert_eq!(
        (&shown["type"], &shown["command"]),
        (&json!("approval_request"), &json!("rm old"))
    );
    choose(&mut client, &asked, "approve once");
    assert_eq!(client.answer(id)["result"]["isError"], false);
    let closed = said(&mut gateway);
    assert_eq!(
        closed,
        json!({"type": "approval_closed", "id": shown["id"], "outcome": "approved", "by": "MCP client by hand"})
    );
    client.leave().well();
    world.close();
}

#[test]
fn a_question_that_is_dismissed_waits_for_the_gateways_that_there_are() {
    let world = world(LISTS);
    world.start_engine();
    let mut gateway = gateway(&world);
    let mut client = asked(&world);
    for (dismissal, verdict) in [("cancel", "deny"), ("accept", "approve")] {
        let id = remove(&mut client);
        let asked = question(&mut client);
        assert_eq!(said(&mut gateway)["type"], "approval_request");
        respond(&mut client, &asked, &json!({"action": dismissal}));
        // Answered in order, after the dismissal.
        client.ask("ping", &json!({}));
        assert_eq!(listed(&world, &[]).len(), 1);
        answer_elsewhere(&world, verdict);
        let answer = client.answer(id);
        assert_eq!(answer["result"]["isError"], verdict == "deny", "{answer}");
        assert_eq!(said(&mut gateway)["type"], "approval_closed");
    }
    assert!(!is_there(&world));
    client.leave().well();
    world.close();
}

#[test]
fn a_client_that_never_answers_is_no_longer_asked_when_the_time_is_up() {
    let world = world(&format!("{LISTS}askTimeoutMin = '300ms'\n"));
    let mut client = asked(&world);
    let id = remove(&mut client);
    let asked = question(&mut client);
    let cancelled = client.until(|message| message["method"] == "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    assert_eq!(error(&mut client, id), "approval_timeout");
    choose(&mut client, &asked, "approve once");
    assert_eq!(newest(&world).0, "expired");
    client.leave().well();
    assert!(is_there(&world));
    world.close();
}

#[test]
fn a_call_that_is_taken_back_takes_its_question_back() {
    let world = world(LISTS);
    let mut client = asked(&world);
    let id = remove(&mut client);
    let asked = question(&mut client);
    client.tell("notifications/cancelled", &json!({"requestId": id}));
    let cancelled = client.until(|message| message["method"] == "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    choose(&mut client, &asked, "approve once");
    eventually("the question is taken back", || newest(&world).0 == "abandoned");
    // A client that disconnects abandons the question too.
    remove(&mut client);
    question(&mut client);
    client.leave();
    assert_eq!(newest(&world).0, "abandoned");
    assert!(is_there(&world));
    world.close();
}

#[test]
fn a_limit_is_extended_by_the_client_while_progress_is_told() {
    let world = world(ASK);
    let mut client = asked(&world);
    let code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')";
    let id = client.request(
        "tools/call",
        &json!({"name": "run_code", "arguments": {"code": code}, "_meta": {"progressToken": "p"}}),
    );
    let asked = question(&mut client);
    let message = asked["params"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("A tool has reached its time limit:\n\n    | `run_code` has run for 200ms"),
        "{message}"
    );
    client.until(|message| message["method"] == "notifications/progress");
    choose(&mut client, &asked, "approve once");
    eventually("the approval is taken", || newest(&world).0 == "consumed");
    world.dir.write("work/go", "");
    let answer = client.answer(id);
    let result = &answer["result"]["structuredContent"];
    assert_eq!(result["stdout"], "done\n", "{answer}");
    let warnings = result["meta"]["warnings"].to_string();
    assert!(warnings.contains("extended by MCP client by hand"), "{warnings}");

    let id = client.begin("run_code", &json!({"code": "while True: pass"}));
    let asked = question(&mut client);
    choose(&mut client, &asked, "reject");
    let answer = client.answer(id);
    let result = &answer["result"]["structuredContent"];
    assert_eq!(result["meta"]["outcome"], "timed_out", "{answer}");
    let words = result["stderr"].as_str().unwrap();
    assert!(
        words.contains("MCP client by hand was asked to extend it and said no"),
        "{words}"
    );

    // Without a valid answer, and nobody else to ask, the limit is not extended.
    let id = client.begin("run_code", &json!({"code": "while True: pass"}));
    let asked = question(&mut client);
    respond(&mut client, &asked, &json!({"action": "cancel"}));
    let answer = client.answer(id);
    let words = answer["result"]["structuredContent"]["stderr"].as_str().unwrap();
    assert!(words.contains("gave no answer"), "{words}");
    drop(client.leave());
    world.close();
}

#[test]
fn a_program_that_ends_while_its_limit_is_asked_about_ends_the_question() {
    let world = world(ASK);
    let mut client = asked(&world);
    let code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')";
    let id = client.begin("run_code", &json!({"code": code}));
    let asked = question(&mut client);
    world.dir.write("work/go", "");
    let cancelled = client.until(|message| message["method"] == "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    let answer = client.answer(id);
    assert_eq!(
        answer["result"]["structuredContent"]["stdout"], "done\n",
        "{answer}"
    );
    client.leave().well();
    world.close();
}

#[test]
fn what_ran_by_the_notify_list_is_told_to_clients_that_want_to_hear() {
    let world = world(LISTS);
    let mut client = asked(&world);
    let touch = json!({"command": "touch made"});
    client.call("host_exec", &touch);
    assert!(client.early.is_empty(), "{:?}", client.early);
    client.ask("logging/setLevel", &json!({"level": "info"}));
    client.call("host_exec", &touch);
    let told = client.until(|message| message["method"] == "notifications/message");
    assert_eq!(
        (&told["params"]["level"], &told["params"]["data"]),
        (&json!("notice"), &json!("runs on the host: touch made")),
        "{told}"
    );
    client.leave().well();
    world.close();
}

#[test]
fn a_long_text_is_shown_in_full_and_no_more_forms_are_open_than_calls_run() {
    let world = world(LISTS);
    let mut client = asked(&world);
    let long = format!("rm old # {}", "\u{202e}".repeat(9_000));
    let id = client.begin("host_exec", &json!({"command": long}));
    let shown = question(&mut client);
    let message = shown["params"]["message"].as_str().unwrap();
    assert_eq!(message.matches("\\u{202e}").count(), 9_000 + 1);
    choose(&mut client, &shown, "reject");
    assert_eq!(error(&mut client, id), "rejected");

    let ids: Vec<i64> = (0..17).map(|_| remove(&mut client)).collect();
    let shown: Vec<Value> = (0..16).map(|_| question(&mut client)).collect();
    client.ask("ping", &json!({}));
    assert_eq!(listed(&world, &[]).len(), 16);
    assert!(client.early.is_empty(), "{:?}", client.early);
    for asked in &shown {
        choose(&mut client, asked, "reject");
    }
    let last = question(&mut client);
    choose(&mut client, &last, "reject");
    for id in ids {
        assert_eq!(error(&mut client, id), "rejected");
    }
    client.leave().well();
    world.close();
}
