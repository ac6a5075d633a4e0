//! Large bodies: in memory within bounds, and nobody waits for those of others.

use std::io::Read;

use serde_json::json;

use super::{BEARER, Connection, Surface, world};
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
    assert_eq!(key.ask("GET /healthz", &[], "").status, 200);
    assert_eq!(owner.ask("POST /v1/run", &[], &run).status, 200);
    drop(held);
    eventually("the bodies are given up", || {
        key.ask("POST /v1/run", &[BEARER], &run).status == 200
    });
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
