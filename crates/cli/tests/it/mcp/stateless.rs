//! Questions to a stateless client, by hand: it repeats its request with the answer.

use serde_json::{Value, json};

use super::elicitation::{ASK, LISTS, answer_elsewhere, chosen, is_there, kind, listed, newest, world};
use super::{Client, text};
use crate::support::eventually;

/// Returns the members of a tool call, with the metadata of each stateless request.
fn call(tool: &str, arguments: &Value) -> Value {
    let about = |name: &str| format!("io.modelcontextprotocol/{name}");
    json!({
        "name": tool,
        "arguments": arguments,
        "_meta": {
            about("protocolVersion"): "2026-07-28",
            about("clientInfo"): {"name": "by hand", "version": "1"},
            about("clientCapabilities"): {"elicitation": {"form": {}}},
        },
    })
}

fn removal() -> Value {
    call("host_exec", &json!({"command": "rm old"}))
}

/// Makes a call, and returns its result, which asks for an approval.
#[track_caller]
fn asked(client: &mut Client, call: &Value) -> Value {
    let answer = client.ask("tools/call", call);
    let result = answer["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{answer}");
    let question = &result["inputRequests"]["approval"];
    assert_eq!(question["method"], "elicitation/create", "{answer}");
    result
}

/// Returns the repeated call, with an answer to its question.
fn again(call: &Value, asked: &Value, answer: &Value) -> Value {
    let mut again = call.clone();
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({"approval": answer});
    again
}

#[test]
fn the_call_goes_on_with_the_answer_and_runs_once() {
    let world = world(LISTS);
    let mut client = Client::start(&world, &["--workspace", "."]);
    let asked = asked(&mut client, &removal());
    let message = asked["inputRequests"]["approval"]["params"]["message"].as_str();
    assert!(message.unwrap().contains("    | rm old\n"), "{asked}");
    assert!(is_there(&world));
    let yes = again(&removal(), &asked, &chosen("approve once"));
    let answer = client.ask("tools/call", &yes);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert!(!is_there(&world));
    assert_eq!(
        newest(&world),
        ("consumed".to_owned(), "MCP client by hand".to_owned())
    );
    // An answer holds once.
    world.dir.write("work/old", "x");
    let replayed = client.ask("tools/call", &yes);
    assert_eq!(kind(&replayed), "invalid_arguments");
    assert!(is_there(&world));
    client.leave().well();
    world.close();
}

#[test]
fn an_answer_counts_for_exactly_what_was_asked() {
    let world = world(LISTS);
    world.dir.write("work/other", "x");
    let mut client = Client::start(&world, &["--workspace", "."]);
    let asked = asked(&mut client, &removal());
    let state = asked["requestState"].as_str().unwrap().to_owned();
    let yes = again(&removal(), &asked, &chosen("approve once"));
    let mut forged = Vec::new();
    for other in [
        "",
        "apr_00000000000000000000000000000000",
        &state[..36],
        &state[..state.len() - 1],
        &format!("{state}0"),
        &state.to_uppercase(),
    ] {
        let mut guess = yes.clone();
        guess["requestState"] = json!(other);
        forged.push(guess);
    }
    let mut other = yes.clone();
    other["arguments"]["command"] = json!("rm other");
    forged.push(other);
    let mut other = yes.clone();
    other["name"] = json!("shell");
    forged.push(other);
    let mut other = yes.clone();
    other["arguments"]["more"] = json!(1);
    forged.push(other);
    for forged in forged {
        let answer = client.ask("tools/call", &forged);
        assert_eq!(kind(&answer), "invalid_arguments", "{forged}");
        assert!(
            text(&answer["result"]).contains("hint: call the tool again"),
            "{answer}"
        );
    }
    // None of them has changed anything.
    assert_eq!(listed(&world, &[]).len(), 1);
    assert!(is_there(&world) && world.dir.path("work/other").exists());
    let answer = client.ask("tools/call", &yes);
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert!(!is_there(&world) && world.dir.path("work/other").exists());
    client.leave().well();
    world.close();
}

#[test]
fn nothing_but_a_yes_is_a_yes() {
    let world = world(LISTS);
    let mut client = Client::start(&world, &["--workspace", "."]);
    for (answer, expected) in [
        (json!({"action": "decline"}), "rejected"),
        (chosen("reject"), "rejected"),
        (json!({"action": "cancel"}), "approval_timeout"),
        (json!({"action": "accept"}), "approval_timeout"),
        (chosen("yes"), "approval_timeout"),
        (json!("approve once"), "approval_timeout"),
        (json!({"decision": "approve once"}), "approval_timeout"),
        (json!(null), "approval_timeout"),
    ] {
        let asked = asked(&mut client, &removal());
        let told = client.ask("tools/call", &again(&removal(), &asked, &answer));
        assert_eq!(kind(&told), expected, "{answer}");
    }
    let asked = asked(&mut client, &removal());
    let mut silent = removal();
    silent["requestState"] = asked["requestState"].clone();
    assert_eq!(kind(&client.ask("tools/call", &silent)), "approval_timeout");
    assert!(is_there(&world));
    client.leave().well();
    world.close();
}

#[test]
fn another_may_answer_while_the_client_asks() {
    let world = world(LISTS);
    let mut client = Client::start(&world, &["--workspace", "."]);
    let refused = asked(&mut client, &removal());
    answer_elsewhere(&world, "deny");
    let late = client.ask(
        "tools/call",
        &again(&removal(), &refused, &chosen("approve once")),
    );
    assert_eq!(kind(&late), "rejected");
    assert!(is_there(&world));
    // An approved command runs, even if the client does not come back.
    let approved = asked(&mut client, &removal());
    answer_elsewhere(&world, "approve");
    eventually("the command has run", || !is_there(&world));
    let late = client.ask(
        "tools/call",
        &again(&removal(), &approved, &json!({"action": "decline"})),
    );
    assert_eq!(late["result"]["isError"], false, "{late}");
    client.leave().well();
    world.close();
}

#[test]
fn a_client_that_does_not_come_back_has_approved_nothing() {
    let patient = format!("{LISTS}askTimeoutMin = '300ms'\n");
    let world = world(&patient);
    let mut client = Client::start(&world, &["--workspace", "."]);
    let late = asked(&mut client, &removal());
    eventually("the time is up", || newest(&world).0 == "expired");
    let late = client.ask("tools/call", &again(&removal(), &late, &chosen("approve once")));
    assert_eq!(kind(&late), "approval_timeout");
    // Above the capacity: the oldest are dropped, and the others continue.
    let mut calls: Vec<Value> = Vec::new();
    for _ in 0..2 {
        // The maximum of pending calls in one session.
        calls.extend((0..10).map(|_| asked(&mut client, &removal())));
        eventually("all have ended", || listed(&world, &[]).is_empty());
    }
    let mut came_to = |asked: &Value| {
        let yes = again(&removal(), asked, &chosen("approve once"));
        kind(&client.ask("tools/call", &yes))
    };
    assert_eq!(came_to(&calls[0]), "invalid_arguments");
    assert_eq!(came_to(&calls[19]), "approval_timeout");
    assert!(is_there(&world));
    client.leave().well();
    world.close();
}

#[test]
fn a_question_does_not_outlive_the_connection() {
    let world = world(LISTS);
    let mut client = Client::start(&world, &["--workspace", "."]);
    asked(&mut client, &removal());
    client.leave().well();
    assert_eq!(newest(&world).0, "abandoned");
    assert!(is_there(&world));
    world.close();
}

#[test]
fn a_program_runs_on_while_its_limit_is_asked_about() {
    let world = world(ASK);
    let mut client = Client::start(&world, &["--workspace", "."]);
    let code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')";
    let call = call("run_code", &json!({"code": code}));
    let question = asked(&mut client, &call);
    let yes = again(&call, &question, &chosen("approve once"));
    let id = client.request("tools/call", &yes);
    eventually("the approval is taken", || newest(&world).0 == "consumed");
    world.dir.write("work/go", "");
    let answer = client.answer(id);
    assert_eq!(
        answer["result"]["structuredContent"]["stdout"], "done\n",
        "{answer}"
    );
    client.leave().well();
    world.close();
}

#[test]
fn a_call_that_went_on_can_be_taken_back() {
    let world = world(ASK);
    let mut client = Client::start(&world, &["--workspace", "."]);
    let call = call("run_code", &json!({"code": "while True: pass"}));
    let question = asked(&mut client, &call);
    let yes = again(&call, &question, &chosen("approve once"));
    let id = client.request("tools/call", &yes);
    eventually("the approval is taken", || newest(&world).0 == "consumed");
    client.tell("notifications/cancelled", &json!({"requestId": id}));
    // Its record is written at its end, which only the cancellation reaches in time.
    let recorded = || {
        let log = world.dir.run(["audit", "tail", "--json"]);
        log.stdout.contains("run_code")
    };
    eventually("it has ended", recorded);
    client.leave().well();
    world.close();
}
