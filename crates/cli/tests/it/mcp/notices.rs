//! Notices of questions that the client cannot answer, while their call blocks.

use serde_json::{Value, json};

use super::elicitation::{LISTS, is_there, kind, world};
use super::{Client, text};

/// Starts to remove the file; returns the request's id.
fn remove(client: &mut Client) -> i64 {
    let arguments = json!({"command": "rm old"});
    let meta = json!({"progressToken": "p"});
    let params = json!({"name": "host_exec", "arguments": arguments, "_meta": meta});
    client.request("tools/call", &params)
}

fn is_log(message: &Value) -> bool {
    message["method"] == "notifications/message"
}

/// Returns the id in a notice, which says how to answer.
#[track_caller]
fn id_in(notice: &str) -> String {
    let (what, how) = notice
        .split_once(" waits for your answer (`ringfence approvals approve ")
        .unwrap();
    assert!(what.starts_with("a command of risk 9 in /"), "{notice}");
    let (id, rest) = how.split_once('`').unwrap();
    assert_eq!(rest, format!(", or `ringfence approvals deny {id}`): | rm old"));
    id.to_owned()
}

#[test]
fn a_question_that_waits_elsewhere_is_announced() {
    for (verdict, removed) in [("approve", true), ("deny", false)] {
        let world = world(LISTS);
        let mut client = Client::greeted(&world, &["--workspace", "."]);
        let call = remove(&mut client);
        let log = client.until(is_log);
        assert_eq!(log["params"]["level"], "warning");
        let notice = log["params"]["data"].as_str().unwrap().to_owned();
        let id = id_in(&notice);
        let progress = client.until(|message| message["method"] == "notifications/progress");
        assert_eq!(progress["params"]["message"], notice.as_str());
        world.dir.run(["approvals", verdict, &id]).ok();
        let answer = client.answer(call);
        match removed {
            true => assert_eq!(text(&answer["result"]), "[no output]"),
            false => assert_eq!(kind(&answer), "rejected"),
        }
        assert_eq!(is_there(&world), !removed);
        let left = client.leave();
        assert_eq!(left.stderr, format!("note: {notice}\n"));
        assert_eq!(left.status, 0);
        world.close();
    }
}

/// A client whose user is asked by a form gets no notice, and a call that asks nothing neither.
#[test]
fn nothing_is_announced_that_the_client_answers() {
    let world = world(LISTS);
    let mut client = Client::start(&world, &["--workspace", "."]);
    client.greet(&json!({"elicitation": {"form": {}}}));
    let call = remove(&mut client);
    let question = client.until(|message| message["method"] == "elicitation/create");
    let declined = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}});
    client.send(&declined);
    assert_eq!(kind(&client.answer(call)), "rejected");
    client.call("host_exec", &json!({"command": "cat old"}));
    let left = client.leave();
    assert!(!left.messages.iter().any(is_log), "{left:?}");
    assert_eq!(left.stderr, "");
    world.close();
}
