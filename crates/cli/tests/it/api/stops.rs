//! The end of the server, as its clients see it.

use std::io::{Read, Write};

use serde_json::json;

use super::run::lives;
use super::{BEARER, CONFIG, KEY, Surface, reply, world};
use crate::support::{eventually, start};
use crate::world::World;

/// Starts a server that waits so long for what is under way when it is told to end.
fn draining(time: &str) -> World {
    let world = World::before_engine();
    let config = format!("{CONFIG}drain_timeout = '{time}'\n");
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
    world
}

#[test]
fn a_server_that_is_told_to_end_waits_for_what_is_under_way_and_begins_nothing_more() {
    let world = draining("10m");
    let surface = Surface::loopback(&world);
    let ask = |route: &str, body: &str| surface.ask(route, &[BEARER], body);
    let new = ask("POST /v1/sandboxes", r#"{"name": "old"}"#);
    assert_eq!(new.status, 200, "{new:?}");
    let wait = json!({"command": ["bash", "-c", "touch /tmp/begun; until [ -e /tmp/end ]; do sleep .01; done; echo whole"]});
    let mut waiting = surface.send("POST /v1/sandboxes/old/exec", &[BEARER], &wait.to_string());
    eventually("the command runs", || {
        ask("GET /v1/sandboxes/old/files?path=/tmp/begun", "").status == 200
    });
    let server = world.ask_engine("TERM");
    eventually("the server drains", || ask("GET /readyz", "").status == 503);

    assert_eq!(ask("GET /healthz", "").status, 200);
    let socket = Surface::socket(&world);
    let begins = [
        (&surface, "POST /v1/run", r#"{"code": "print(1)"}"#),
        (&surface, "POST /v1/batch", r#"{"runs": [{"code": "print(1)"}]}"#),
        (&surface, "POST /v1/sandboxes", "{}"),
        (
            &surface,
            "POST /v1/sandboxes/old/exec",
            r#"{"command": ["true"]}"#,
        ),
        (&surface, "POST /v1/sandboxes/old/run", r#"{"code": "1"}"#),
        (
            &socket,
            "POST /v1/tools/run_code",
            r#"{"arguments": {"code": "print(1)"}}"#,
        ),
    ];
    for (door, route, body) in begins {
        let refused = door.ask(route, &[BEARER], body);
        refused.refused(503, "runtime_unavailable");
        assert!(
            refused.head.to_lowercase().contains("retry-after: 1\r"),
            "{refused:?}"
        );
    }
    let session = world.dir.run(["session", "new", "late"]);
    assert!(
        session.status == 125 && session.stderr.contains("the server is about to end"),
        "{session:?}"
    );
    // A run of the server's own user takes place without it.
    let own = world.json(["-c", "print(1)"]);
    assert_eq!(
        (own.get("stdout"), own.get("meta.warm")),
        (&json!("1\n"), &json!(false))
    );

    let end = ask("PUT /v1/sandboxes/old/files?path=/tmp/end", "");
    assert_eq!(end.status, 200, "{end:?}");
    let whole = reply(&mut *waiting).json();
    assert_eq!(
        (&whole["exit_code"], &whole["stdout"]),
        (&json!(0), &json!("whole\n"))
    );
    assert_eq!(server.wait(), Some(0));
    let log = world.engine_log();
    assert!(
        log.contains("waits up to 600s for the runs, calls, transfers and builds under way: 1;")
            && !log.contains("cancelled calls"),
        "{log}"
    );
    world.close();
}

#[test]
fn a_server_that_is_told_to_end_sends_the_answer_that_a_client_is_slow_to_read() {
    let world = World::before_engine();
    let config = format!("{CONFIG}drain_timeout = '10m'\n[sandbox]\nmax_output = '1MiB'\n");
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
    let surface = Surface::loopback(&world);
    // Each byte is six in JSON: more than the kernel takes of a client that does not read.
    let program = json!({"code": "head -c 1000000 /dev/zero", "language": "bash"}).to_string();
    let mut answer = surface.send("POST /v1/run", &[BEARER], &program);
    let mut begun = [0; 12];
    answer.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    let server = world.ask_engine("TERM");
    eventually("the server drains", || {
        surface.ask("GET /readyz", &[], "").status == 503
    });
    let mut rest = String::new();
    answer.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches("\\u0000").count(), 1_000_000);
    assert_eq!(server.wait(), Some(0));
    world.close();
}

#[test]
fn a_server_that_is_told_to_end_takes_the_rest_of_an_upload() {
    let world = draining("10m");
    let surface = Surface::loopback(&world);
    let ask = |route: &str, body: &str| surface.ask(route, &[BEARER], body);
    assert_eq!(ask("POST /v1/sandboxes", r#"{"name": "lab"}"#).status, 200);
    let bytes = [
        BEARER,
        "Content-Type: application/octet-stream",
        "Content-Length: 10",
    ];
    let mut upload = surface.send("PUT /v1/sandboxes/lab/files?path=/output/late", &bytes, "begun");
    eventually("the upload arrives", || {
        let listed = ask("GET /v1/sandboxes/lab/files/list?path=/output", "");
        listed.body.contains(".ringfence-")
    });
    let server = world.ask_engine("TERM");
    eventually("the server drains", || ask("GET /readyz", "").status == 503);
    // What a program under way may wait for begins all the same.
    let another = ask("PUT /v1/sandboxes/lab/files?path=/output/another", "");
    assert_eq!(another.status, 200, "{another:?}");
    upload.write_all(b" ends").unwrap();
    assert_eq!(reply(&mut *upload).json()["size"], 10);
    assert_eq!(server.wait(), Some(0));
    assert!(
        world.engine_log().contains("under way: 1;"),
        "{}",
        world.engine_log()
    );
    world.close();
}

#[test]
fn a_second_signal_cancels_what_a_server_waits_for() {
    let world = draining("10m");
    let mark = format!("rf-http-drained-{}", std::process::id());
    let program = json!({"code": format!("exec -a {mark} sleep 1000"), "language": "bash"});
    let surface = Surface::loopback(&world);
    let mut answer = surface.send("POST /v1/run", &[BEARER], &program.to_string());
    eventually("the program runs", || lives(&mark));
    let server = world.ask_engine("TERM");
    eventually("the server drains", || {
        surface.ask("GET /readyz", &[], "").status == 503
    });
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    reply(&mut *answer).refused(499, "cancelled");
    world.close();
}

#[test]
fn calls_under_way_are_told_that_the_server_stops() {
    let world = draining("10ms");
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
    world.dir.run(["sandbox", "create", "--name", "left"]).ok();
    let line = "echo begun; sleep 1000";
    let mut left = start(
        &mut world
            .dir
            .command(["sandbox", "exec", "left", "--", "bash", "-c", line]),
    );
    left.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    assert_eq!(world.stop_engine("TERM"), Some(0));
    let left = left.wait_with_output().unwrap();
    let told = String::from_utf8(left.stderr).unwrap();
    assert_eq!(left.status.code(), Some(125), "{told}");
    assert!(
        told.starts_with("error: the server has ended, and its sandboxes with it"),
        "{told}"
    );

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
    let world = draining("10ms");
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
