//! Calls whose client cancels, is slow, or disconnects.

use std::fs;

use serde_json::{Value, json};

use super::{Client, text};
use crate::leftovers::processes;
use crate::support::{eventually, eventually_none};
use crate::world::World;

/// Starts a long call, and waits until its process runs. The mark is among the process's arguments.
fn lasting(client: &mut Client, mark: &str) -> i64 {
    let id = client.begin("shell", &json!({"command": "sleep", "args": [mark]}));
    eventually("the program runs", || !marked(mark).is_empty());
    id
}

/// Returns the processes that have the mark among their arguments.
fn marked(mark: &str) -> Vec<u32> {
    let has = |command: &str| command.split(' ').any(|word| word == mark);
    let all = processes().into_iter();
    all.filter(|process| has(&process.command))
        .map(|process| process.pid)
        .collect()
}

/// Returns a unique number of seconds to sleep.
fn mark(client: &Client, nth: u32) -> String {
    format!("8{}.{nth}", client.pid())
}

#[test]
fn a_call_that_is_taken_back_ends_and_is_not_answered() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let mark = mark(&client, 1);
    let id = lasting(&mut client, &mark);
    let cancel = json!({"requestId": id, "reason": "no longer wanted"});
    client.tell("notifications/cancelled", &cancel);
    eventually_none("processes", || marked(&mark));
    assert_eq!(client.python("print('next')"), "next\n");
    let left = client.leave();
    assert!(
        left.messages.iter().all(|message| message["id"] != id),
        "{left:?}"
    );
    left.well();
    world.close();
}

#[test]
fn a_client_that_leaves_takes_its_calls_along() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let marks = [mark(&client, 1), mark(&client, 2)];
    for mark in &marks {
        lasting(&mut client, mark);
    }
    let left = client.leave();
    assert_eq!((left.status, left.stderr.as_str()), (0, ""), "{left:?}");
    for mark in &marks {
        assert_eq!(marked(mark), [0; 0]);
    }
    world.close();
}

#[test]
fn a_signal_ends_it_as_leaving_does() {
    let world = World::here();
    for signal in ["TERM", "INT", "HUP"] {
        let mut client = Client::greeted(&world, &[]);
        let mark = mark(&client, 1);
        lasting(&mut client, &mark);
        world.signal(&client.child, signal);
        let left = client.end();
        assert_eq!((left.status, left.stderr.as_str()), (0, ""), "{signal}: {left:?}");
        assert_eq!(marked(&mark), [0; 0], "{signal}");
    }
    world.close();
}

#[test]
fn a_client_that_stops_reading_and_is_gone_leaves_nothing() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let mark = mark(&client, 1);
    lasting(&mut client, &mark);
    let code = "print('x' * 9000)";
    for _ in 0..50 {
        client.begin("run_python_code", &json!({"code": code}));
    }
    let Client {
        mut child,
        stdin,
        stdout,
        ..
    } = client;
    drop(stdout);
    // Standard input stays open: closing the reading end of the answers is enough.
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(stdin);
    assert_eq!(marked(&mark), [0; 0]);
    world.close();
}

#[test]
fn what_a_killed_server_ran_is_gone_and_the_next_clears_up() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let mark = mark(&client, 1);
    lasting(&mut client, &mark);
    world.signal(&client.child, "KILL");
    assert_eq!(client.end().status, 137);
    eventually_none("processes", || marked(&mark));
    let mut client = Client::greeted(&world, &[]);
    assert_eq!(client.python("print('again')"), "again\n");
    client.leave().well();
    world.close();
}

#[test]
fn pings_are_answered_while_every_turn_is_taken_and_what_has_no_room_is_refused() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let mark = mark(&client, 1);
    let arguments = json!({"command": "sleep", "args": [mark]});
    let ids: Vec<i64> = (0..140).map(|_| client.begin("shell", &arguments)).collect();
    // 128 may be queued or running.
    for id in &ids[128..] {
        let refused = client.answer(*id);
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        assert_eq!(
            refused["result"]["structuredContent"]["error"]["type"],
            "limit_exceeded"
        );
    }
    assert_eq!(client.ask("ping", &json!({}))["result"], json!({}));
    eventually("sixteen run", || marked(&mark).len() == 16);
    // Queued calls are cancelled first, so that none of them starts.
    for id in ids[..128].iter().rev() {
        client.tell("notifications/cancelled", &json!({"requestId": id}));
    }
    eventually_none("processes", || marked(&mark));
    assert_eq!(client.python("print('room again')"), "room again\n");
    client.leave().well();
    world.close();
}

#[test]
fn many_calls_at_once_are_all_answered_rightly() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let ids: Vec<i64> = (0..50)
        .map(|n| client.begin("run_python_code", &json!({"code": format!("print({n} * {n})")})))
        .collect();
    for (n, id) in (0..50).zip(ids) {
        let answer = client.answer(id);
        assert_eq!(text(&answer["result"]), format!("{}\n", n * n));
    }
    client.leave().well();
    world.close();
}

#[test]
fn progress_is_told_to_those_who_ask_and_is_bounded() {
    let world = World::here();
    let mut client = Client::greeted(&world, &[]);
    let code = "import time\nprint('y' * 100000, 'begun', flush=True)\ntime.sleep(1.2)";
    let call = |token: Value| {
        let mut params = json!({"name": "run_python_code", "arguments": {"code": code}});
        if !token.is_null() {
            params["_meta"] = json!({"progressToken": token});
        }
        params
    };
    let id = client.request("tools/call", &call(json!("mine")));
    client.answer(id);
    let told: Vec<Value> = client.early.drain(..).collect();
    assert!(!told.is_empty());
    let mut last = 0.0;
    for message in &told {
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(message["params"]["progressToken"], "mine");
        let progress = message["params"]["progress"].as_f64().unwrap();
        assert!(progress > last, "{told:?}");
        last = progress;
    }
    let first = told[0]["params"]["message"].as_str().unwrap();
    assert!(first.ends_with("begun\n") && first.len() < 3000, "{first}");
    let id = client.request("tools/call", &call(Value::Null));
    client.answer(id);
    client.leave().well();
    world.close();
}

#[test]
fn a_user_has_what_the_command_line_says() {
    let world = World::here();
    let mut client = Client::greeted(&world, &["--user", "ann"]);
    assert_eq!(client.python("print(1)"), "1\n");
    client.leave().well();
    let refused = world.dir.run(["mcp", "--user", "../bob"]);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(fs::metadata(world.dir.path("state")).is_ok());
    world.close();
}
