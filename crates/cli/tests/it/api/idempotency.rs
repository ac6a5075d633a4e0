//! `Idempotency-Key`: a request that is sent again is not carried out again.

use serde_json::json;

use super::{BEARER, Reply, Surface, world};
use crate::support::eventually;

fn is_replayed(reply: &Reply) -> bool {
    reply.head.contains("idempotent-replayed: true")
}

#[test]
fn a_repetition_gets_the_answer_and_does_nothing() {
    let world = world();
    let (key, owner) = (Surface::loopback(&world), Surface::socket(&world));
    let create = |surface: &Surface, id: &str, body: &str| {
        let header = format!("Idempotency-Key: {id}");
        surface.ask("POST /v1/sandboxes", &[BEARER, &header], body)
    };
    let count = |surface: &Surface| {
        let listed = surface.ask("GET /v1/sandboxes", &[BEARER], "").json();
        listed["sandboxes"].as_array().unwrap().len()
    };
    let first = create(&key, "one", "{}");
    let again = create(&key, "one", "{}");
    assert_eq!((first.status, is_replayed(&first)), (200, false), "{first:?}");
    assert_eq!((again.status, is_replayed(&again)), (200, true), "{again:?}");
    assert_eq!(first.body, again.body);
    assert_eq!(count(&key), 1);
    create(&key, "one", r#"{"name": "other"}"#).refused(409, "conflict");
    assert_eq!(create(&key, "two", "{}").status, 200);
    assert_eq!(count(&key), 2);
    // Errors of the request are answers, too.
    let wrong = create(&key, "three", r#"{"nosuch": 1}"#);
    wrong.refused(422, "invalid_arguments");
    assert!(is_replayed(&create(&key, "three", r#"{"nosuch": 1}"#)));
    // A key is its client's, and for one path.
    let others = create(&owner, "one", "{}");
    assert!(others.status == 200 && !is_replayed(&others), "{others:?}");
    let run = json!({"code": "print(1)"}).to_string();
    let run = key.ask("POST /v1/run", &[BEARER, "Idempotency-Key: one"], &run);
    assert!(run.status == 200 && !is_replayed(&run), "{run:?}");
    world.close();
}

#[test]
fn what_was_begun_goes_on_without_its_client() {
    let world = world();
    let key = Surface::loopback(&world);
    let lab = key.ask("POST /v1/sandboxes", &[BEARER], r#"{"name": "lab"}"#);
    assert_eq!(lab.status, 200, "{lab:?}");
    let exec = |line: &str, headers: &[&str]| {
        let body = json!({ "command": line }).to_string();
        key.send(
            "POST /v1/sandboxes/lab/exec",
            &[&[BEARER], headers].concat(),
            &body,
        )
    };
    let line = "echo on >> log; while [ ! -e go ]; do sleep 0.05; done; wc -l < log";
    let repeated = || super::reply(&mut *exec(line, &["Idempotency-Key: k"]));
    let show = || super::reply(&mut *exec("cat log", &[])).json()["stdout"].clone();
    let left = exec(line, &["Idempotency-Key: k"]);
    eventually("it runs", || show() == "on\n");
    drop(left);
    repeated().refused(409, "in_progress");
    super::reply(&mut *exec("touch go", &[]));
    eventually("it has ended", || repeated().status == 200);
    super::reply(&mut *exec("true", &["Idempotency-Key: k"])).refused(409, "conflict");
    let answer = repeated();
    assert!(is_replayed(&answer), "{answer:?}");
    assert_eq!(answer.json()["stdout"], "1\n");
    // Without a key it ends with its client, and is carried out each time.
    assert_eq!(super::reply(&mut *exec(line, &[])).json()["stdout"], "2\n");
    world.close();
}

#[test]
fn a_key_that_would_have_no_effect_is_refused() {
    let world = world();
    let key = Surface::loopback(&world);
    let run = json!({"code": "print(1)"}).to_string();
    for (line, headers) in [
        (
            "POST /v1/run",
            &["Idempotency-Key: k", "Accept: text/event-stream"][..],
        ),
        ("POST /v1/batch", &["Idempotency-Key: k"]),
        ("POST /v1/run", &["Idempotency-Key: "]),
        ("POST /v1/run", &["Idempotency-Key: a", "Idempotency-Key: b"]),
    ] {
        let reply = key.ask(line, &[&[BEARER], headers].concat(), &run);
        reply.refused(400, "invalid_arguments");
    }
    // What is asked twice anyway ignores it.
    assert_eq!(
        key.ask("GET /v1/sandboxes", &[BEARER, "Idempotency-Key: k"], "")
            .status,
        200
    );
    world.close();
}
