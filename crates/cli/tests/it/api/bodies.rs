//! Large bodies: in memory within bounds, and nobody waits for those of others.

use std::io::{Read, Write};

use serde_json::{Value, json};

use super::{BEARER, Connection, KEY, Surface, world};
use crate::support::eventually;

const LARGE: usize = 32 << 20;

/// Announces a large body, and sends it never. Returns once the server reads it.
fn announce(surface: &Surface) -> Box<dyn Connection> {
    let length = format!("Content-Length: {LARGE}");
    let mut stream = surface.send("POST /v1/run", &[BEARER, "Expect: 100-continue", &length], "");
    let mut told = [0; 12];
    stream.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 100");
    stream
}

#[test]
fn bodies_of_a_key_are_bounded_and_leave_room_for_others() {
    let world = world();
    let (key, owner) = (Surface::loopback(&world), Surface::socket(&world));
    let run = json!({"code": "print(1)"}).to_string();
    let held = [announce(&key), announce(&key)];
    let reply = key.ask("POST /v1/run", &[BEARER], &run);
    reply.refused(429, "busy");
    assert!(reply.head.contains("retry-after: "), "{reply:?}");
    // Neither do E2B's routes have more.
    let of_e2b = key.ask("POST /v2/sandboxes", &[BEARER], r#"{"templateID": "base"}"#);
    assert_eq!(of_e2b.status, 429, "{of_e2b:?}");
    assert!(of_e2b.head.contains("retry-after: "), "{of_e2b:?}");
    assert_eq!(key.ask("GET /healthz", &[], "").status, 200);
    assert_eq!(owner.ask("POST /v1/run", &[], &run).status, 200);
    drop(held);
    eventually("the bodies are given up", || {
        key.ask("POST /v1/run", &[BEARER], &run).status == 200
    });
    world.close();
}

/// A client that reads nothing cannot fill the memory with answers.
#[test]
fn answers_that_nobody_reads_are_bounded() {
    let world = world();
    let (key, owner) = (Surface::loopback(&world), Surface::socket(&world));
    let made = key.ask("POST /v1/sandboxes", &[BEARER], r#"{"name": "full"}"#);
    assert_eq!(made.status, 200, "{made:?}");
    let fill = "mkdir d; cd d; n=$(printf x%.0s {1..200}); for i in {1..9999}; do : > $n$i; done";
    let fill = json!({"command": ["bash", "-c", fill], "cwd": "/workspace"}).to_string();
    let filled = key.ask("POST /v1/sandboxes/full/exec", &[BEARER], &fill);
    assert_eq!(filled.json()["exit_code"], 0, "{filled:?}");
    let list = "GET /v1/sandboxes/full/files/list?path=/workspace/d";
    let whole = key.ask(list, &[BEARER], "");
    assert!(
        whole.status == 200 && whole.body.len() > 4 << 20,
        "{}",
        whole.body.len()
    );
    let mut unread: Vec<_> = (0..12).map(|_| key.send(list, &[BEARER], "")).collect();
    let refused = super::reply(&mut *unread.pop().unwrap());
    refused.refused(429, "busy");
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    assert_eq!(key.ask("GET /v1/sandboxes", &[BEARER], "").status, 200);
    assert_eq!(owner.ask("GET /v1/sandboxes", &[], "").status, 200);
    // What has effects says that it had them.
    let print = json!({"command": ["head", "-c", "1000000", "/dev/zero"]}).to_string();
    let exec = "POST /v1/sandboxes/full/exec";
    unread.extend((0..3).map(|_| key.send(exec, &[BEARER], &print)));
    eventually("there is no room for an answer", || {
        let done = key.ask(exec, &[BEARER], &print);
        done.status != 200 && {
            done.refused(500, "internal");
            assert!(done.body.contains("it was carried out"), "{done:?}");
            true
        }
    });
    drop(unread);
    eventually("the answers are given up", || {
        key.ask(list, &[BEARER], "").status == 200
    });
    world.close();
}

/// Each value of JSON takes many times its bytes once it is parsed.
#[test]
fn a_body_has_a_number_of_values() {
    let world = world();
    let key = Surface::loopback(&world);
    let run = |values: usize| json!({"code": "print(1)", "files": {}, "x": vec![0; values]}).to_string();
    key.ask("POST /v1/run", &[BEARER], &run(100_000))
        .refused(422, "invalid_arguments");
    for line in ["POST /v1/run", "POST /v1/sandboxes"] {
        let reply = key.ask(line, &[BEARER], &run(140_000));
        reply.refused(429, "limit_exceeded");
        assert!(reply.body.contains("more than 131072 values"), "{reply:?}");
    }
    let lines = format!("{}\n{}\n", run(140_000), json!({"code": "print(2)"}));
    let batch = [BEARER, "Content-Type: application/x-ndjson"];
    let told = key.ask("POST /v1/batch", &batch, &lines);
    assert!(told.body.contains("more than 131072 values"), "{told:?}");
    assert!(told.body.contains(r#""stdout":"2\n""#), "{told:?}");
    let of_e2b = key.ask("POST /v2/sandboxes", &[BEARER], &run(140_000));
    assert_eq!(of_e2b.status, 413, "{of_e2b:?}");
    let metadata = json!({"metadata": {"a": "x".repeat(17 << 10)}}).to_string();
    let reply = key.ask("POST /v1/sandboxes", &[BEARER], &metadata);
    reply.refused(422, "invalid_arguments");
    assert!(reply.body.contains("`metadata` has at most 16KiB"), "{reply:?}");
    world.close();
}

/// Values that command lines and SDKs refuse beforehand are refused by the server, too.
#[test]
fn values_that_nothing_can_use_are_refused() {
    let world = world();
    let socket = Surface::socket(&world);
    let ask = |line: &str, body: Value| socket.ask(line, &[], &body.to_string());
    assert_eq!(ask("POST /v1/sandboxes", json!({"name": "lab"})).status, 200);
    let plain = ask(
        "POST /v1/sandboxes/lab/processes",
        json!({"command": "cat", "stdin": true}),
    );
    let process = format!("/v1/sandboxes/lab/processes/{}", plain.json()["pid"]);
    let exec = "POST /v1/sandboxes/lab/exec";
    let size = json!({"columns": 80, "rows": 24});
    for (line, body, status, words) in [
        (exec, json!({"command": "echo \0"}), 422, "has a NUL character"),
        (
            exec,
            json!({"command": "true", "env": {"A": "\0"}}),
            422,
            "has a NUL character",
        ),
        (
            exec,
            json!({"command": "true", "cwd": "/a\0"}),
            422,
            "has a NUL character",
        ),
        (
            "GET /v1/sandboxes/lab/files/list?path=/&depth=0",
            json!({}),
            422,
            "depth",
        ),
        ("GET /v1/runs?limit=0", json!({}), 422, "limit"),
        (
            "POST /v1/sandboxes",
            json!({"env": {"A": "x".repeat(129 << 10)}}),
            422,
            "`env` has at most 128KiB",
        ),
        (
            "POST /v1/run",
            json!({"code": 1}),
            422,
            "the body does not match the schema",
        ),
        (
            &format!("POST {process}/resize"),
            size,
            409,
            "the process has no terminal",
        ),
    ] {
        let reply = ask(line, body);
        assert_eq!(reply.status, status, "{line}: {reply:?}");
        assert!(
            reply.body.contains(words) && !reply.body.contains("run_code"),
            "{line}: {reply:?}"
        );
    }
    // One that has ended takes no input.
    assert_eq!(ask(&format!("DELETE {process}"), json!({})).status, 200);
    let late = ask(&format!("POST {process}/stdin"), json!({}));
    assert!(late.status == 409 && late.body.contains("has ended"), "{late:?}");
    world.close();
}

#[test]
fn a_large_program_runs_on_both_surfaces() {
    let world = world();
    // A comment, as long as a program may be with its escapes.
    let code = format!("print(1) #{}", "a".repeat(4 << 20));
    for surface in [Surface::loopback(&world), Surface::socket(&world)] {
        let reply = surface.ask("POST /v1/run", &[BEARER], &json!({ "code": code }).to_string());
        assert_eq!((reply.status, &reply.json()["stdout"]), (200, &json!("1\n")));
    }
    world.close();
}

/// Sends the head of a request that announces a body, then `body`, and returns the head of the answer with its connection.
fn answered(surface: &Surface, line: &str, length: usize, body: &str) -> (String, Box<dyn Connection>) {
    let mut stream = surface.connect();
    let host = surface.host();
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    (String::from_utf8(answer).unwrap().to_ascii_lowercase(), stream)
}

#[test]
fn an_answer_before_the_body_says_that_its_connection_ends() {
    let world = world();
    let body = json!({"code": "print(1)"}).to_string();
    for surface in [Surface::loopback(&world), Surface::socket(&world)] {
        let ends = |line: &str, body: &str, length: usize| {
            let (head, stream) = answered(&surface, line, length, body);
            (head.contains("\r\nconnection: close\r\n"), stream)
        };
        // As a client whose body comes a moment later: the answer is there before.
        let (told, mut stream) = ends("POST /v1/sandboxes/none/exec", "", body.len());
        assert!(told);
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        // Who read the body keeps the connection.
        let (told, _) = ends("POST /v1/run", &body, body.len());
        assert!(!told);
    }
    world.close();
}
