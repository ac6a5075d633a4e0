//! Running a program: its result, its events, its end with the client.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use super::{BEARER, CONFIG, KEY, Surface, world};
use crate::leftovers::processes;
use crate::support::eventually;
use crate::world::World;

#[test]
fn a_program_runs_on_both_surfaces_and_its_failure_is_no_error() {
    let world = world();
    for surface in [Surface::socket(&world), Surface::loopback(&world)] {
        let run = |body: Value| surface.ask("POST /v1/run", &[BEARER], &body.to_string());
        let reply = run(json!({"code": "print(input())", "stdin": "x\n"}));
        assert_eq!(reply.status, 200, "{reply:?}");
        let result = reply.json();
        assert_eq!(result["stdout"], "x\n");
        assert_eq!(result["meta"]["outcome"], "exited");
        assert_eq!(result["meta"]["isolation"]["seccomp"], "fence");
        let reply = run(json!({"code": "import sys; print('é', file=sys.stderr); sys.exit(3)"}));
        assert_eq!((reply.status, &reply.json()["exit_code"]), (200, &json!(3)));
        let reply = run(json!({"code": "while True: pass", "timeout": "300ms"}));
        assert_eq!(
            (reply.status, &reply.json()["meta"]["outcome"]),
            (200, &json!("timed_out"))
        );
        let files = json!({"code": "cat a", "language": "bash", "files": {"a": "of a file"}});
        assert_eq!(run(files).json()["stdout"], "of a file");
    }
    let log = world.dir.run(["audit", "tail", "--json"]);
    let lines = log
        .ok()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let clients: Vec<String> = lines
        .filter(|line| line["who"]["surface"] == "http" && line["tool"] == "run_code")
        .map(|line| line["who"]["client"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(clients.len(), 8, "{log:?}");
    assert!(clients[..4].iter().all(|client| client == "socket"));
    assert!(clients[4..].iter().all(|client| client == "RINGFENCE_API_KEY"));
    assert!(!log.stdout.contains(KEY) && !world.engine_log().contains(KEY));
    world.close();
}

#[test]
fn an_artifact_is_named_without_its_directory() {
    let world = World::before_engine();
    let config = format!("{CONFIG}[artifacts]\nstore = 'always'\n");
    world.dir.write("config/ringfence/ringfence.toml", &config);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
    let surface = Surface::loopback(&world);
    let answer = surface.ask(
        "POST /v1/run",
        &[BEARER],
        &json!({"code": "print(1)"}).to_string(),
    );
    let name = answer.json()["meta"]["artifact"].as_str().unwrap().to_owned();
    assert!(!name.contains('/'), "{name}");
    let stored = world.dir.run(["artifacts", "show", &name, "--json"]);
    assert!(stored.ok().contains("print(1)"), "{stored:?}");
    // A caller on this machine gets the path.
    let local = world.json(["-c", "print(2)"]);
    assert!(
        local.get("meta.artifact").as_str().unwrap().starts_with('/'),
        "{local:?}"
    );
    world.close();
}

#[test]
fn a_request_cannot_name_a_path_or_a_weaker_fence() {
    let world = world();
    let surface = Surface::socket(&world);
    for member in [
        "mounts",
        "fence",
        "unfenced",
        "python",
        "workspace",
        "network",
        "scope",
        "user",
    ] {
        let mut body = json!({"code": "print(1)"});
        body[member] = json!("x");
        let reply = surface.ask("POST /v1/run", &[], &body.to_string());
        reply.refused(422, "invalid_arguments");
        assert!(reply.body.contains(member), "{reply:?}");
    }
    world.close();
}

#[test]
fn events_come_as_the_program_prints() {
    let world = world();
    let surface = Surface::loopback(&world);
    let events = ["Accept: text/event-stream", BEARER];
    let code = "import sys, time\nprint('one €', flush=True)\nprint('two', file=sys.stderr, flush=True)\ntime.sleep(1000)";
    let body = json!({"code": code, "timeout": 1}).to_string();
    let mut lines = BufReader::new(surface.send("POST /v1/run", &events, &body)).lines();
    let mut next = |start: &str| {
        let found = lines.find_map(|line| line.unwrap().strip_prefix(start).map(str::to_owned));
        found.unwrap_or_else(|| panic!("no {start}"))
    };
    assert_eq!(next("content-type: "), "text/event-stream");
    let mut printed = [0; 2].map(|_| (next("event: "), next("data: ")));
    // Two pipes have no order.
    printed.sort_unstable();
    let expected = [
        ("stderr", r#"{"text":"two\n"}"#),
        ("stdout", r#"{"text":"one €\n"}"#),
    ];
    assert_eq!(
        printed,
        expected.map(|(name, data)| (name.to_owned(), data.to_owned()))
    );
    assert_eq!(next("event: "), "result");
    let result: Value = serde_json::from_str(&next("data: ")).unwrap();
    assert_eq!(result["meta"]["outcome"], "timed_out");
    assert_eq!(result["stdout"], "one €\n");
    let refused = surface.ask("POST /v1/run", &events, r#"{"code": 1}"#);
    let data = refused.body.strip_prefix("event: error\ndata: ").unwrap();
    let error: Value = serde_json::from_str(data.trim()).unwrap();
    assert_eq!(error["error"]["type"], "invalid_arguments");
    world.close();
}

/// A program whose processes are known by their argument.
fn lasting(mark: &str) -> String {
    json!({"language": "bash", "code": format!("echo begun; exec -a {mark} sleep 1000")}).to_string()
}

pub(super) fn lives(mark: &str) -> bool {
    processes().iter().any(|process| process.command.contains(mark))
}

#[test]
fn a_client_that_goes_away_ends_its_program() {
    let world = world();
    for (surface, mark) in [
        (Surface::socket(&world), "rf-http-gone-socket"),
        (Surface::loopback(&world), "rf-http-gone-loopback"),
    ] {
        for events in [&[BEARER][..], &[BEARER, "Accept: text/event-stream"]] {
            let mark = format!("{mark}-{}-{}", events.len(), std::process::id());
            let connection = surface.send("POST /v1/run", events, &lasting(&mark));
            eventually("the program runs", || lives(&mark));
            drop(connection);
            eventually("the program is killed", || !lives(&mark));
        }
    }
    eventually("every end is recorded", || cancelled(&world) == 4);
    world.close();
}

/// Returns the number of programs that ended as their clients went away.
fn cancelled(world: &World) -> usize {
    let log = world.dir.run(["audit", "tail", "--json"]);
    log.ok()
        .lines()
        .filter(|line| line.contains("run_code") && line.contains("\"surface\":\"http\""))
        .count()
}

#[test]
fn the_end_of_the_server_ends_programs() {
    let world = world();
    let mark = format!("rf-http-end-{}", std::process::id());
    let connection = Surface::loopback(&world).send("POST /v1/run", &[BEARER], &lasting(&mark));
    eventually("the program runs", || lives(&mark));
    assert_eq!(world.stop_engine("TERM"), Some(0));
    assert!(!lives(&mark));
    assert_eq!(cancelled(&world), 1);
    drop(connection);
    world.close();
}

#[test]
fn what_a_client_gets_wrong_is_said_in_one_form() {
    let world = world();
    for surface in [Surface::socket(&world), Surface::loopback(&world)] {
        let ask = |line: &str, header: &str, body: &str| surface.ask(line, &[BEARER, header], body);
        ask("POST /v1/run", "X: y", "{").refused(400, "invalid_arguments");
        ask("POST /v1/run", "X: y", "").refused(400, "invalid_arguments");
        ask("POST /v1/run", "X: y", "[1]").refused(422, "invalid_arguments");
        ask("POST /v1/run", "X: y", "{}").refused(422, "invalid_arguments");
        ask("POST /v1/run", "Content-Type: text/plain", "{}").refused(415, "invalid_arguments");
        ask("POST /v1/run", "Content-Length: 99999999", "").refused(413, "limit_exceeded");
        ask("POST /v1/nothing", "X: y", "").refused(404, "not_found");
        ask("GET /v1", "X: y", "").refused(404, "not_found");
        let reply = ask("PUT /v1/run", "X: y", "{}");
        reply.refused(405, "method_not_allowed");
        assert!(reply.head.contains("allow: post"), "{reply:?}");
        let runtime = r#"{"code": "", "runtime": "e2b"}"#;
        ask("POST /v1/run", "X: y", runtime).refused(503, "runtime_unavailable");
        let given = ask("GET /healthz", "X-Request-Id: abc-1.2", "");
        assert!(given.head.contains("x-request-id: abc-1.2"), "{given:?}");
        let made = ask("GET /healthz", "X-Request-Id: <foreign>", "");
        assert!(
            made.head.contains("x-request-id: ") && !made.head.contains("foreign"),
            "{made:?}"
        );
    }
    world.close();
}

#[test]
fn tools_of_the_host_are_closed_and_the_others_are_offered() {
    let world = world();
    let surface = Surface::socket(&world);
    let listed = surface.ask("GET /v1/tools", &[], "").json();
    let tools = listed["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"run_python_code") && names.contains(&"run_code"),
        "{names:?}"
    );
    for (tool, arguments) in [
        ("host_exec", json!({"command": "id"})),
        ("shell", json!({"command": "id"})),
        ("file_read", json!({"path": "a"})),
        ("file_write", json!({"path": "a", "content": "x"})),
        ("file_list", json!({"path": "."})),
        ("file_delete", json!({"path": "a"})),
    ] {
        assert!(!names.contains(&tool), "{names:?}");
        let reply = surface.ask(&format!("POST /v1/tools/{tool}"), &[], &arguments.to_string());
        reply.refused(403, "permission_denied");
    }
    let reply = surface.ask("POST /v1/tools/run_python_code", &[], r#"{"code": "print(6*7)"}"#);
    assert_eq!(reply.json(), json!({"text": "42\n", "structured": null}));
    surface
        .ask("POST /v1/tools/nothing", &[], "{}")
        .refused(404, "not_found");
    world.close();
}
