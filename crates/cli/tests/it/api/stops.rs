//! The end of the server, as its clients see it.

use serde_json::json;

use super::run::lives;
use super::{BEARER, KEY, Surface, reply, world};
use crate::support::eventually;

#[test]
fn calls_under_way_are_told_that_the_server_stops() {
    let world = world();
    let (socket, loopback) = (Surface::socket(&world), Surface::loopback(&world));
    let calls = [
        (&socket, &[BEARER][..]),
        (&loopback, &[BEARER]),
        (&loopback, &[BEARER, "Idempotency-Key: a-call-that-is-stopped"]),
        (&loopback, &[BEARER, "Accept: text/event-stream"]),
    ];
    let mut answers = Vec::new();
    for (number, (surface, headers)) in calls.iter().enumerate() {
        let mark = format!("rf-http-stopped-{number}-{}", std::process::id());
        let program = json!({"code": format!("exec -a {mark} sleep 1000"), "language": "bash"});
        answers.push(surface.send("POST /v1/run", headers, &program.to_string()));
        eventually("the program runs", || lives(&mark));
    }
    assert_eq!(world.stop_engine("TERM"), Some(0));

    let events = reply(&mut *answers.pop().unwrap());
    let (_, last) = events.body.rsplit_once("event: ").unwrap();
    assert!(
        last.starts_with("error") && last.contains("\"cancelled\""),
        "{events:?}"
    );
    for answer in &mut answers {
        reply(&mut **answer).refused(499, "cancelled");
    }
    assert!(
        world.engine_log().contains("has cancelled calls of clients: 4"),
        "{}",
        world.engine_log()
    );
    let records = world.dir.run(["audit", "tail"]).stdout;
    let cancelled = records
        .lines()
        .filter(|line| line.contains("run_code") && line.contains("cancelled"));
    assert_eq!(cancelled.count(), 4, "{records}");
    world.close();
}

#[test]
fn a_hangup_ends_the_server_in_order() {
    let world = world();
    assert_eq!(world.stop_engine("HUP"), Some(0));
    world.close();
}

#[test]
fn a_server_that_is_started_while_the_former_one_ends_takes_its_place() {
    let world = world();
    let mark = format!("rf-http-exchanged-{}", std::process::id());
    let program = json!({"code": format!("exec -a {mark} sleep 1000"), "language": "bash"});
    let mut answer = Surface::loopback(&world).send("POST /v1/run", &[BEARER], &program.to_string());
    eventually("the program runs", || lives(&mark));
    world.exchange_engine(KEY);
    reply(&mut *answer).refused(499, "cancelled");
    let run = Surface::loopback(&world).ask("POST /v1/run", &[BEARER], r#"{"code": "print(1)"}"#);
    assert_eq!(run.json()["stdout"], "1\n", "{}", world.engine_log());
    world.close();
}
