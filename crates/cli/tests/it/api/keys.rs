//! `ringfence keys`, beside a server that runs.

use serde_json::{Value, json};

use super::{Reply, Surface, world};
use crate::world::World;

pub(crate) fn create(world: &World, options: &[&str]) -> (String, Value) {
    let output = world
        .dir
        .run([&["keys", "create", "a name", "--json"], options].concat());
    let made: Value = serde_json::from_str(output.ok()).unwrap();
    (made["key"].as_str().unwrap().to_owned(), made)
}

/// Creates a key that has expired.
pub(crate) fn create_expired(world: &World) -> (String, Value) {
    let (key, made) = create(world, &["--days", "1"]);
    let id = made["id"].as_str().unwrap();
    let file = format!("state/ringfence/api-keys/{id}.json");
    let text = std::fs::read_to_string(world.dir.path(&file)).unwrap();
    let mut stored: Value = serde_json::from_str(&text).unwrap();
    stored["expires"] = stored["created"].clone();
    world.dir.write(&file, stored.to_string());
    (key, made)
}

/// The holder of a key, who talks to the loopback address.
pub(crate) struct Holder {
    pub(crate) surface: Surface,
    pub(crate) id: String,
    pub(crate) bearer: String,
}

impl Holder {
    pub(crate) fn new(world: &World, options: &[&str]) -> Self {
        let (key, made) = create(world, options);
        Self {
            surface: Surface::loopback(world),
            id: made["id"].as_str().unwrap().to_owned(),
            bearer: format!("Authorization: Bearer {key}"),
        }
    }

    pub(crate) fn ask(&self, line: &str, body: &Value) -> Reply {
        self.surface.ask(line, &[&self.bearer], &body.to_string())
    }

    /// Asks, and returns the JSON of a success.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str, body: &Value) -> Value {
        let reply = self.ask(line, body);
        assert_eq!(reply.status, 200, "{line}: {reply:?}");
        match reply.head.contains("application/json\r\n") {
            true => reply.json(),
            false => Value::Null,
        }
    }
}

const RUN: &str = r#"{"code": "print(1)"}"#;

#[test]
fn a_key_opens_what_it_has_rights_to_until_it_is_revoked() {
    let world = world();
    let surface = Surface::loopback(&world);
    let ask = |key: &str, line: &str| surface.ask(line, &[&format!("Authorization: Bearer {key}")], RUN);
    let (run, made) = create(&world, &[]);
    let (tools, _) = create(&world, &["--rights", "tools", "--days", "7"]);
    let (sandboxes, _) = create(&world, &["--rights", "sandboxes"]);
    let (expired, _) = create_expired(&world);
    assert_eq!(ask(&run, "POST /v1/run").json()["stdout"], "1\n");
    ask(&run, "GET /v1/tools").refused(403, "permission_denied");
    assert_eq!(ask(&tools, "GET /v1/tools").status, 200);
    ask(&tools, "POST /v1/run").refused(403, "permission_denied");
    ask(&sandboxes, "POST /v1/run").refused(403, "permission_denied");
    ask(&expired, "POST /v1/run").refused(401, "unauthenticated");
    let id = made["id"].as_str().unwrap();
    assert!(run.starts_with(id) && run.len() > id.len() + 40, "{made}");
    let listed = world.dir.run(["keys", "ls", "--json"]);
    let keys: Vec<Value> = serde_json::from_str(listed.ok()).unwrap();
    assert_eq!(keys.len(), 4);
    assert!(
        !listed.stdout.contains(&run) && !listed.stdout.contains("digest"),
        "{listed:?}"
    );
    // Whoever has found a leaked key has the key, and not its id.
    let revoked = world.dir.run(["keys", "revoke", &run]);
    assert_eq!(revoked.ok(), format!("revoked {id}\n"));
    ask(&run, "POST /v1/run").refused(401, "unauthenticated");
    let again = world.dir.run(["keys", "revoke", id]);
    assert!(again.ok().contains("was revoked before"), "{again:?}");
    world
        .dir
        .run(["keys", "revoke", "rf_00000000"])
        .refused(125, "there is no key");
    let told = world.dir.run(["audit", "tail"]);
    let is_run = |line: &str| line.contains(&format!("  {id} (http)")) && line.contains("  run_code ");
    assert!(told.ok().lines().any(is_run), "{told:?}");
    let made = world
        .dir
        .run(["keys", "create", "agent", "--e2b=http://127.0.0.1:8080/"]);
    let (key, rest) = made.ok().split_once('\n').unwrap();
    let key = key.strip_prefix("export E2B_API_KEY=").unwrap();
    let expected = "export E2B_API_URL=http://127.0.0.1:8080\nexport E2B_SANDBOX_URL=http://127.0.0.1:8080\n\
                    export E2B_DOMAIN=ringfence.invalid\n";
    assert_eq!(rest, expected);
    let listed = surface.ask("GET /v2/sandboxes", &[&format!("X-API-Key: {key}")], "");
    assert_eq!((listed.status, &*listed.body), (200, "[]"), "{listed:?}");
    assert_eq!(ask(&tools, "GET /v1/tools").status, 200);
    let log = world.dir.run(["audit", "tail", "--json"]);
    assert!(log.ok().contains(&format!("\"client\":\"{id}\"")), "{log:?}");
    assert!(!log.stdout.contains(&run) && !world.engine_log().contains(&run));
    world.close();
}

#[test]
fn no_key_both_asks_and_answers() {
    let world = World::before_engine();
    for rights in [
        "tools,approvals",
        "approvals,run",
        "approvals,run,tools",
        "",
        "root",
    ] {
        let output = world.dir.run(["keys", "create", "x", "--rights", rights]);
        assert_eq!(output.status, 2, "{rights}: {output:?}");
    }
    // A key of no days would have expired before it is used.
    let expired = world.dir.run(["keys", "create", "x", "--days", "0"]);
    assert_eq!(expired.status, 2, "{expired:?}");
    assert_eq!(world.dir.run(["keys", "ls"]).ok(), "");
    world.close();
}

#[test]
fn a_key_with_admin_sees_and_revokes_keys_and_makes_none() {
    let world = world();
    let operator = Holder::new(&world, &["--rights", "admin"]);
    let team = Holder::new(&world, &["--tenant", "team-a", "--days", "7"]);
    let none = json!({});
    let listed = operator.ok("GET /v1/keys", &none);
    let command: Value = serde_json::from_str(world.dir.run(["keys", "ls", "--json"]).ok()).unwrap();
    assert_eq!(listed["keys"], command);
    let keys = listed["keys"].as_array().unwrap();
    let found = keys.iter().find(|key| key["id"] == team.id);
    assert_eq!(found.unwrap()["tenant"], "team-a");
    assert!(!listed.to_string().contains("digest"), "{listed}");
    let revoke = format!("POST /v1/keys/{}/revoke", team.id);
    for line in ["GET /v1/keys", &revoke] {
        team.ask(line, &none).refused(403, "permission_denied");
    }
    operator
        .ask("POST /v1/keys", &json!({"name": "more"}))
        .refused(405, "method_not_allowed");
    team.ok("GET /v1/sandboxes", &none);
    operator.ok(&revoke, &none);
    team.ask("GET /v1/sandboxes", &none)
        .refused(401, "unauthenticated");
    operator.ok(&revoke, &none);
    operator
        .ask("POST /v1/keys/rf_00000000/revoke", &none)
        .refused(404, "not_found");
    let log = world.dir.run(["audit", "tail", "--json"]);
    assert!(log.ok().contains("key.revoke"), "{log:?}");
    world.close();
}

#[test]
fn the_command_line_records_keys_and_warns_of_those_without_a_quota() {
    let world = World::before_engine();
    let create = |options: &[&str]| world.dir.run([&["keys", "create"], options].concat());
    let limited = create(&["limited", "--tenant", "team-a", "--quota-runs", "5"]);
    assert!(
        limited.ok().starts_with("rf_") && limited.stderr.is_empty(),
        "{limited:?}"
    );
    let unlimited = create(&["unlimited", "--tenant", "team-a"]);
    assert!(
        unlimited.ok().starts_with("rf_") && unlimited.stderr.contains("team-a` have a quota"),
        "{unlimited:?}"
    );
    let other = create(&["other", "--tenant", "team-b"]);
    assert!(
        other.ok().starts_with("rf_") && other.stderr.is_empty(),
        "{other:?}"
    );
    create(&[" "]).refused(2, "expected a name for the key");
    let wrong = create(&["x", "--quota-runs", "many"]);
    let told = "expected a number of runs, such as 500, got `many`";
    assert!(wrong.status == 2 && wrong.stderr.contains(told), "{wrong:?}");

    let id = &unlimited.stdout[..11];
    world.dir.run(["keys", "revoke", id]).ok();
    world.dir.run(["keys", "revoke", id]).ok();
    world.dir.run(["keys", "rm", id]).ok();
    let log = world.dir.run(["audit", "tail", "--json"]);
    let records: Vec<Value> = log
        .ok()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = records
        .iter()
        .map(|record| record["tool"].as_str().unwrap())
        .collect();
    let made = ["key.create"; 3];
    assert_eq!(
        names,
        [&made[..], &["key.revoke", "key.remove"]].concat(),
        "{log:?}"
    );
    let removed = &records[4];
    assert_eq!(
        (&removed["arguments"]["id"], &removed["who"]["surface"]),
        (&json!(id), &json!("cli"))
    );
    // The log has the public parts of keys alone.
    assert!(!log.stdout.contains(unlimited.stdout.trim()), "{log:?}");
    world.close();
}
