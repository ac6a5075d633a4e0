//! Keys of one tenant, which share what they make and how much they use.

use serde_json::{Value, json};

use super::keys::Holder;
use super::world;
use crate::world::World;

fn runs(holder: &Holder) -> Value {
    holder.ok("GET /v1/usage", &json!({}))["keys"][0]["today"]["runs"].clone()
}

/// Ends a key, and removes it.
fn remove(world: &World, holder: &Holder) {
    for command in ["revoke", "rm"] {
        world.dir.run(["keys", command, &holder.id]).ok();
    }
}

#[test]
fn keys_of_a_tenant_share_what_they_make_until_the_last_is_removed() {
    let world = world();
    let [old, new] = [(); 2].map(|()| Holder::new(&world, &["--tenant", "team-a", "--quota-runs", "2"]));
    let stranger = Holder::new(&world, &["--tenant", "team-b"]);
    let none = json!({});
    old.ok("POST /v1/sandboxes", &json!({"name": "shared"}));
    old.ok("POST /v1/run", &json!({"code": "x = 1", "session": "own"}));
    let seen = new.ok("POST /v1/run", &json!({"code": "print(x)", "session": "own"}));
    assert_eq!(seen["stdout"], "1\n");
    new.ok("GET /v1/sandboxes/shared", &none);
    stranger
        .ask("GET /v1/sandboxes/shared", &none)
        .refused(404, "not_found");

    // The quota of either key is for what both have used.
    assert_eq!(
        (runs(&old), runs(&new), runs(&stranger)),
        (2.into(), 2.into(), 0.into())
    );
    new.ask("POST /v1/run", &json!({"code": "print(1)"}))
        .refused(429, "limit_exceeded");
    let usage = world.dir.run(["keys", "usage"]);
    assert!(usage.ok().contains("team-a: a name"), "{usage:?}");

    remove(&world, &old);
    old.ask("GET /v1/sandboxes/shared", &none)
        .refused(401, "unauthenticated");
    new.ok("GET /v1/sandboxes/shared", &none);
    assert_eq!(runs(&new), 2);
    remove(&world, &new);
    let heir = Holder::new(&world, &["--tenant", "team-a"]);
    heir.ask("GET /v1/sandboxes/shared", &none)
        .refused(404, "not_found");
    assert_eq!(runs(&heir), 0);
    let wrong = world.dir.run(["keys", "create", "k", "--tenant", "Team A"]);
    assert!(wrong.stderr.contains("lowercase letters"), "{wrong:?}");
    world.close();
}

#[test]
fn clients_of_e2b_have_tokens_for_each_key_of_their_tenant() {
    let world = world();
    let [old, new] = [(); 2].map(|()| Holder::new(&world, &["--tenant", "team"]));
    let key = |holder: &Holder| holder.bearer.replace("Authorization: Bearer", "X-API-Key:");
    let ask = |line: &str, headers: &[&str], body: &str| new.surface.ask(line, headers, body);
    let made = ask("POST /v2/sandboxes", &[&key(&old)], r#"{"templateID": "base"}"#).json();
    let id = made["sandboxID"].as_str().unwrap();
    let connect = format!("POST /v2/sandboxes/{id}/connect");
    let connected = |holder: &Holder| ask(&connect, &[&key(holder)], r#"{"timeout": 60}"#).json();
    let status = |opened: &Value| {
        let token = format!("X-Access-Token: {}", opened["envdAccessToken"].as_str().unwrap());
        let named = format!("E2b-Sandbox-Id: {id}");
        let headers = [&named, "E2b-Sandbox-Port: 49983", &token];
        ask("POST /process.Process/List", &headers, "{}").status
    };
    // What a token opens is done in the name of the key that got it.
    let third = Holder::new(&world, &["--tenant", "team"]);
    let opened = [connected(&new), connected(&third)];
    assert_eq!(connected(&old)["envdAccessToken"], made["envdAccessToken"]);
    assert_eq!([status(&made), status(&opened[0]), status(&opened[1])], [200; 3]);
    world.dir.run(["keys", "revoke", &third.id]).ok();
    assert_eq!(
        [status(&made), status(&opened[0]), status(&opened[1])],
        [200, 200, 401]
    );
    world.dir.run(["keys", "revoke", &old.id]).ok();
    assert_eq!([status(&made), status(&opened[0])], [401, 200]);
    world.close();
}

#[test]
fn the_operator_lists_the_sandboxes_of_all_and_removes_one() {
    let world = world();
    let team = Holder::new(&world, &["--tenant", "team-a"]);
    let alone = Holder::new(&world, &[]);
    let create = json!({"name": "work", "metadata": {"team": "a"}});
    let of_team = team.ok("POST /v1/sandboxes", &create)["id"].clone();
    let of_key = alone.ok("POST /v1/sandboxes", &create)["id"].clone();
    world
        .dir
        .run(["sandbox", "create", "--name", "own", "--user", "bob"])
        .ok();

    let all = world.dir.run(["sandbox", "ls", "--all", "--json"]);
    let all: Vec<Value> = serde_json::from_str(all.ok()).unwrap();
    let owners: Vec<(&Value, &Value)> = all.iter().map(|one| (&one["id"], &one["account"])).collect();
    assert_eq!(owners[0], (&of_team, &json!("tenant:team-a")));
    assert_eq!(owners[1], (&of_key, &json!(alone.id)));
    assert_eq!(
        (&all[2]["user"], &all[2]["account"]),
        (&json!("bob"), &Value::Null)
    );
    let lines = world.dir.run(["sandbox", "ls", "-a"]);
    let user = all[0]["user"].as_str().unwrap();
    assert!(
        lines.ok().contains(&format!("tenant:team-a  {user}\n")),
        "{lines:?}"
    );
    assert!(lines.stdout.ends_with(" bob\n"), "{lines:?}");
    assert_eq!(world.dir.run(["sandbox", "ls", "--quiet"]).ok(), "");

    // A key sees its own, whatever it asks for, and nobody's owner.
    let none = json!({});
    let listed = team.ok("GET /v1/sandboxes", &none);
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1);
    assert_eq!(listed["sandboxes"][0]["user"], Value::Null);
    team.ask("GET /v1/sandboxes?all=true", &none)
        .refused(403, "permission_denied");
    // In the words of people, and of clients that are made of the document.
    for filter in ["metadata.team=", "metadata%5Bteam%5D="] {
        let line = |value: &str| format!("GET /v1/sandboxes?{filter}{value}");
        assert_eq!(team.ok(&line("other"), &none)["sandboxes"], json!([]));
        assert_eq!(team.ok(&line("a"), &none)["sandboxes"], listed["sandboxes"]);
    }
    let document = team.ok("GET /openapi.json", &none);
    let parameters = document["paths"]["/v1/sandboxes"]["get"]["parameters"]
        .as_array()
        .unwrap();
    let described = parameters
        .iter()
        .find(|parameter| parameter["name"] == "metadata");
    assert_eq!(described.unwrap()["style"], "deepObject", "{described:?}");
    // A mistyped filter would select everything.
    for line in [
        "GET /v1/sandboxes?team=other",
        "DELETE /v1/sandboxes/work?force=true",
    ] {
        let reply = team.ask(line, &none);
        reply.refused(422, "invalid_arguments");
        assert!(reply.body.contains("there is no parameter"), "{reply:?}");
    }

    world.dir.run(["sandbox", "rm", "--user", user, "work"]).ok();
    team.ask("GET /v1/sandboxes/work", &none)
        .refused(404, "not_found");
    alone.ok("GET /v1/sandboxes/work", &none);
    world.close();
}
