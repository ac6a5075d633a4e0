//! Stored runs over `/v1/runs`.

use std::io::Read;

use serde_json::{Value, json};

use super::keys::Holder;
use super::{Surface, reply, world};
use crate::support::eventually;

fn ids(page: &Value) -> Vec<String> {
    let runs = page["runs"].as_array().unwrap().iter();
    runs.map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

/// Runs a program that fails, and returns the id of its record.
fn fail(holder: &Holder, code: &str) -> String {
    let result = holder.ok("POST /v1/run", &json!({ "code": code }));
    let artifact = result["meta"]["artifact"].as_str().unwrap();
    artifact.strip_suffix(".json").unwrap().to_owned()
}

#[test]
fn a_tenant_reads_its_own_stored_runs_alone() {
    let world = world();
    let [one, other, two] = ["one", "one", "two"].map(|tenant| Holder::new(&world, &["--tenant", tenant]));
    let none = json!({});
    let first = fail(&one, "print('mine'); raise SystemExit(3)");
    let foreign = fail(&two, "raise SystemExit(4)");
    let second = fail(&other, "raise SystemExit(5)");
    // One of the server's own user.
    world.dir.run(["run", "-c", "raise SystemExit(6)"]);
    one.ok("POST /v1/run", &json!({"code": "print('not kept')"}));

    // The keys of a tenant share its runs.
    let page = one.ok("GET /v1/runs", &none);
    assert_eq!(ids(&page), [second.as_str(), &first]);
    assert_eq!(page["next"], Value::Null);
    assert_eq!(
        (&page["runs"][1]["outcome"], &page["runs"][1]["exit_code"]),
        (&json!("exited"), &json!(3))
    );
    let newest = one.ok("GET /v1/runs?limit=1", &none);
    assert_eq!(
        (ids(&newest), &newest["next"]),
        (vec![second.clone()], &json!(second))
    );
    let rest = one.ok(&format!("GET /v1/runs?limit=1&before={second}"), &none);
    assert_eq!((ids(&rest), &rest["next"]), (vec![first.clone()], &Value::Null));

    for id in [first.clone(), format!("{first}.json")] {
        let run = other.ok(&format!("GET /v1/runs/{id}"), &none);
        assert_eq!(run["result"]["stdout"], "mine\n", "{run}");
        assert!(run["code"].as_str().unwrap().contains("SystemExit(3)"));
    }
    assert_eq!(ids(&two.ok("GET /v1/runs", &none)), [foreign.as_str()]);
    let unknown = "20261121T221500.123Z_000000000000";
    let refusals = [foreign.as_str(), unknown].map(|id| {
        let reply = one.ask(&format!("GET /v1/runs/{id}"), &none);
        reply.refused(404, "not_found");
        reply.body.replace(id, "ID")
    });
    assert_eq!(refusals[0], refusals[1]);
    for id in ["..%2F..%2Fapi-keys%2Fx", &first[..20]] {
        one.ask(&format!("GET /v1/runs/{id}"), &none)
            .refused(404, "not_found");
    }

    // With `admin`, and over the socket, all.
    let operator = Holder::new(&world, &["--rights", "run,admin"]);
    assert_eq!(ids(&operator.ok("GET /v1/runs", &none)).len(), 4);
    let socket = Surface::socket(&world);
    assert_eq!(ids(&socket.ask("GET /v1/runs", &[], "").json()).len(), 4);
    operator.ok(&format!("GET /v1/runs/{foreign}"), &none);

    // A record that names another owner, or none, is not believed to be a tenant's by the mark in its name.
    let file = world
        .dir
        .path(&format!("state/ringfence/artifacts/executions/{first}.json"));
    let mut stored: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    for scope in [json!("somebody"), Value::Null] {
        stored["metadata"]["scope"] = scope;
        std::fs::write(&file, stored.to_string()).unwrap();
        one.ask(&format!("GET /v1/runs/{first}"), &none)
            .refused(404, "not_found");
        assert_eq!(ids(&one.ok("GET /v1/runs", &none)), [second.as_str()]);
    }
    world.close();
}

/// An answer that its client does not read is memory of that client, of which there is only so much.
#[test]
fn unread_answers_take_bounded_memory() {
    let world = world();
    let [one, two] = ["one", "two"].map(|tenant| Holder::new(&world, &["--tenant", tenant]));
    // Six bytes of JSON for each character: a record of 6 MB, of which a client may have 64 MiB.
    let id = fail(
        &one,
        &format!("#{}\nraise SystemExit(1)", "\u{1}".repeat(1_000_000)),
    );
    let line = format!("GET /v1/runs/{id}");
    let mut unread = Vec::new();
    let refused = (0..12).find_map(|_| {
        let mut answer = one.surface.send(&line, &[&one.bearer], "");
        let mut status = [0; 12];
        answer.read_exact(&mut status).unwrap();
        if status == *b"HTTP/1.1 200" {
            unread.push(answer);
            return None;
        }
        Some(reply(&mut (&status[..]).chain(answer)))
    });
    let refused = refused.expect("12 answers of 6 MB were held");
    refused.refused(429, "busy");
    assert!(unread.len() >= 8, "{}", unread.len());
    // Others, and this client once it has gone from its answers, are served.
    let own = fail(&two, "raise SystemExit(1)");
    two.ok(&format!("GET /v1/runs/{own}"), &json!({}));
    drop(unread);
    eventually("an answer has room", || one.ask(&line, &json!({})).status == 200);
    world.close();
}
