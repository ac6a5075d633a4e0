//! Many programs in one request.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use super::{BEARER, Surface, world};
use crate::leftovers::processes;
use crate::support::eventually;

fn lines(body: &str) -> Vec<Value> {
    let mut lines: Vec<Value> = body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    lines.sort_by_key(|line| line["index"].as_u64());
    lines
}

#[test]
fn every_program_of_a_batch_has_its_line() {
    let world = world();
    let surface = Surface::loopback(&world);
    let runs: Vec<Value> = (0..60).map(|i| json!({"code": format!("print({i})")})).collect();
    let as_lines: String = runs.iter().map(|run| format!("{run}\n")).collect();
    let as_one = json!({ "runs": runs }).to_string();
    for (media, body) in [("application/json", as_one), ("application/x-ndjson", as_lines)] {
        let reply = surface.ask(
            "POST /v1/batch",
            &[BEARER, &format!("Content-Type: {media}")],
            &body,
        );
        assert!(
            reply.status == 200 && reply.head.contains("application/x-ndjson"),
            "{reply:?}"
        );
        let lines = lines(&reply.body);
        assert_eq!(lines.len(), 60, "{media}");
        for (i, line) in lines.iter().enumerate() {
            assert_eq!(
                (&line["index"], &line["result"]["stdout"]),
                (&json!(i), &json!(format!("{i}\n")))
            );
        }
    }
    world.close();
}

#[test]
fn a_bad_line_costs_itself_only() {
    let world = world();
    let surface = Surface::socket(&world);
    let body = "{\"code\": \"print(0)\"}\nnot\n{\"kode\": 1}\n\n{\"code\": \"1/0\"}";
    let reply = surface.ask("POST /v1/batch", &["Content-Type: application/x-ndjson"], body);
    let lines = lines(&reply.body);
    assert_eq!(lines.len(), 4, "{reply:?}");
    assert_eq!(lines[0]["result"]["stdout"], "0\n");
    assert_eq!(lines[1]["error"]["type"], "invalid_arguments");
    assert_eq!(lines[2]["error"]["type"], "invalid_arguments");
    assert_eq!(lines[3]["result"]["exit_code"], 1);
    surface
        .ask("POST /v1/batch", &[], r#"{"runs": 1}"#)
        .refused(422, "invalid_arguments");
    world.close();
}

#[test]
fn a_client_that_goes_away_ends_its_batch() {
    let world = world();
    let mark = format!("rf-http-batch-{}", std::process::id());
    let sleep = json!({"language": "bash", "code": format!("exec -a {mark} sleep 1000")});
    let runs = json!({"runs": [{"code": "print(0)"}, sleep, sleep, sleep, sleep, sleep, sleep]});
    let surface = Surface::socket(&world);
    let mut connection = BufReader::new(surface.send("POST /v1/batch", &[], &runs.to_string()));
    let lives = || {
        processes()
            .iter()
            .filter(|process| process.command.contains(&mark))
            .count()
    };
    // A result is delivered while others run.
    let mut line = String::new();
    while !line.contains("\"index\":0") {
        line.clear();
        connection.read_line(&mut line).unwrap();
    }
    eventually("the others run", || lives() > 1);
    drop(connection);
    eventually("all are killed", || lives() == 0);
    world.close();
}

#[test]
fn health_does_not_wait_for_a_batch_that_nobody_reads() {
    let world = world();
    let surface = Surface::loopback(&world);
    let runs: Vec<Value> = (0..200).map(|_| json!({"code": "print('x' * 10000)"})).collect();
    let batch = surface.send("POST /v1/batch", &[BEARER], &json!({ "runs": runs }).to_string());
    for _ in 0..20 {
        assert_eq!(
            surface.ask("GET /healthz", &[], "").json(),
            json!({"status": "ok"})
        );
        assert_eq!(
            surface
                .ask("POST /v1/run", &[BEARER], r#"{"code": "print(1)"}"#)
                .json()["stdout"],
            "1\n"
        );
    }
    drop(batch);
    world.close();
}
