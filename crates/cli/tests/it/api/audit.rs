//! The audit log over `/v1/audit`.

use serde_json::{Value, json};

use super::keys::Holder;
use super::world;

#[test]
fn the_operator_reads_and_verifies_the_audit_log_and_nobody_else() {
    let world = world();
    let operator = Holder::new(&world, &["--rights", "admin"]);
    let [one, two] = ["one", "two"].map(|tenant| Holder::new(&world, &["--tenant", tenant]));
    let none = json!({});
    one.ok("POST /v1/run", &json!({"code": "print(1)"}));
    two.ok("POST /v1/run", &json!({"code": "print(2)"}));
    one.ok("POST /v1/sandboxes", &json!({"name": "own"}));
    for line in ["GET /v1/audit", "GET /v1/audit/verify"] {
        one.ask(line, &none).refused(403, "permission_denied");
    }
    let records = |query: &str| {
        let tail = operator.ok(&format!("GET /v1/audit{query}"), &none);
        tail["records"].as_array().unwrap().clone()
    };
    let newest = records("?limit=2");
    let tools: Vec<&Value> = newest.iter().map(|record| &record["tool"]).collect();
    assert_eq!(tools, ["sandbox.create", "run_code"]);
    assert_eq!(newest[0]["who"]["client"], one.id.as_str());
    let log = world.dir.run(["audit", "tail", "--json", "--lines", "1"]);
    assert_eq!(serde_json::from_str::<Value>(log.ok()).unwrap(), newest[0]);
    let of_two = records("?tenant=two&tool=run_code");
    assert!(
        of_two.len() == 1 && of_two[0]["who"]["client"] == two.id.as_str(),
        "{of_two:?}"
    );
    let options = ["--json", "--tenant", "two", "--tool", "run_code"];
    let log = world.dir.run(["audit", "tail"].iter().chain(&options));
    assert_eq!(serde_json::from_str::<Value>(log.ok()).unwrap(), of_two[0]);
    let of_one = records(&format!("?client={}&outcome=answered", one.id));
    assert_eq!(of_one.len(), 2, "{of_one:?}");
    assert!(records("?client=nobody").is_empty());
    operator
        .ask("GET /v1/audit?tenant=Not%20one", &none)
        .refused(422, "invalid_arguments");

    let verified = operator.ok("GET /v1/audit/verify", &none);
    assert_eq!(
        (&verified["intact"], &verified["broken"]),
        (&json!(true), &Value::Null)
    );
    let head = verified["head"].as_str().unwrap();
    one.ok("POST /v1/run", &json!({"code": "print(3)"}));
    let with_head = format!("GET /v1/audit/verify?head={head}");
    assert_eq!(operator.ok(&with_head, &none)["intact"], true);
    operator
        .ask("GET /v1/audit/verify?head=1", &none)
        .refused(422, "invalid_arguments");
    assert_eq!(
        operator.ok("GET /v1/audit/verify?host=true", &none)["intact"],
        true
    );

    let file = world.dir.path("state/ringfence/audit/audit.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("print(2)", "print(9)", 1)).unwrap();
    let verified = operator.ok("GET /v1/audit/verify", &none);
    assert_eq!(
        (&verified["intact"], &verified["head"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(verified["broken"]["file"], "audit.jsonl", "{verified}");
    assert!(!world.dir.run(["audit", "verify"]).stderr.is_empty());
    world.close();
}
