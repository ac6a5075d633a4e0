//! Address ranges that the configuration opens, which sandboxes reach as runs do.

use serde_json::{Value, json};

use super::keys::Holder;
use super::{KEY, Surface};
use crate::network::{OPEN, Server};
use crate::support::eventually;
use crate::world::World;

/// Fetches a page in a sandbox that may reach its host, by a server with this configuration.
fn fetched(page: &Server, config: &str) -> String {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine_with(&[], &[]);
    let user = Surface::socket(&world);
    let host = format!("127.0.0.1:{}", page.port);
    let new = json!({"name": "near", "allowed_hosts": [host]}).to_string();
    assert_eq!(user.ask("POST /v1/sandboxes", &[], &new).status, 200);
    let fetch = json!({"command": ["curl", "--silent", "--show-error", page.url()]}).to_string();
    let answer = user.ask("POST /v1/sandboxes/near/exec", &[], &fetch).body;
    world.close();
    answer
}

#[test]
fn sandboxes_reach_the_ranges_that_the_configuration_opens() {
    let page = Server::new();
    let answer = fetched(&page, "");
    assert!(answer.contains("has a loopback address"), "{answer}");
    assert_eq!(page.visits(), 0);
    let answer = fetched(&page, OPEN);
    assert!(answer.contains("hello"), "{answer}");
    assert_eq!(page.visits(), 1);
}

#[test]
fn a_sandbox_of_the_servers_user_reaches_its_hosts_alone_and_one_of_a_key_none() {
    let (page, other) = (Server::new(), Server::new());
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", OPEN);
    world.start_engine();
    let host = format!("127.0.0.1:{}", page.port);
    let with_network = json!({"name": "near", "allowed_hosts": [host]});
    let fetch = |page: &Server| json!({"command": ["curl", "--silent", "--fail", page.url()]});

    let user = Surface::socket(&world);
    assert_eq!(
        user.ask("POST /v1/sandboxes", &[], &with_network.to_string())
            .status,
        200
    );
    let asked = |page: &Server| {
        let answer = user.ask("POST /v1/sandboxes/near/exec", &[], &fetch(page).to_string());
        answer.json()["exit_code"].clone()
    };
    assert_eq!((asked(&page), page.visits()), (json!(0), 1));
    // The proxy refuses it.
    assert_eq!((asked(&other), other.visits()), (json!(22), 0));

    let key = Holder::new(&world, &[]);
    key.ask("POST /v1/sandboxes", &with_network)
        .refused(403, "permission_denied");
    key.ok("POST /v1/sandboxes", &json!({"name": "own"}));
    // It cannot connect, by the proxy's name or without.
    let code = key.ok("POST /v1/sandboxes/own/exec", &fetch(&page))["exit_code"].clone();
    assert_eq!((code, page.visits()), (json!(7), 1));
    world.close();
}

/// Returns a server whose operator opens a page's host and the indexes of packages to sandboxes of keys, and that host.
fn opened(page: &Server) -> (World, String) {
    let host = format!("127.0.0.1:{}", page.port);
    let world = World::before_engine();
    let config = format!("[engine]\nlisten = '127.0.0.1:0'\nsandbox_hosts = ['{host}', 'packages']\n{OPEN}");
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
    (world, host)
}

fn fetch(page: &Server) -> Value {
    json!({"command": ["curl", "--silent", "--fail", page.url()]})
}

#[test]
fn sandboxes_of_keys_reach_the_hosts_that_the_operator_opens() {
    let (page, other) = (Server::new(), Server::new());
    let (world, host) = opened(&page);
    let far = format!("127.0.0.1:{}", other.port);
    let key = Holder::new(&world, &["--quota-egress", "1KiB"]);
    let visited = |name: &str, page: &Server| {
        let line = format!("POST /v1/sandboxes/{name}/exec");
        key.ok(&line, &fetch(page))["exit_code"].clone()
    };
    let egress = || key.usage()["today"]["egress_bytes"].as_u64().unwrap();

    // Whoever asks for no host has no network.
    key.ok("POST /v1/sandboxes", &json!({"name": "plain"}));
    assert_eq!((visited("plain", &page), page.visits()), (json!(7), 0));
    let closed = json!({"name": "far", "allowed_hosts": [host, far]});
    let reply = key.ask("POST /v1/sandboxes", &closed);
    reply.refused(403, "permission_denied");
    assert!(reply.body.contains(&far), "{reply:?}");
    // The indexes of packages are open, too.
    for index in ["pypi.org", "files.pythonhosted.org", "registry.npmjs.org"] {
        let new = json!({"allowed_hosts": [index]});
        assert_eq!(
            key.ok("POST /v1/sandboxes", &new)["allowed_hosts"],
            json!([index])
        );
    }
    key.ok(
        "POST /v1/sandboxes",
        &json!({"name": "near", "allowed_hosts": [host]}),
    );
    assert_eq!(egress(), 0);
    assert_eq!((visited("near", &page), page.visits()), (json!(0), 1));
    assert_eq!((visited("near", &other), other.visits()), (json!(22), 0));
    eventually("what one page takes is counted", || {
        (50..1024).contains(&egress())
    });

    let many = json!({"command": ["bash", "-c", format!("for i in {{1..20}}; do curl --silent {}; done", page.url())]});
    key.ok("POST /v1/sandboxes/near/exec", &many);
    eventually("the quota is used up", || egress() >= 1024);
    let more = key.ask("POST /v1/sandboxes/near/exec", &fetch(&page));
    more.refused(429, "limit_exceeded");
    assert!(more.body.contains("of 1KiB of egress today"), "{more:?}");
    world.close();
}

#[test]
fn clients_of_e2b_reach_the_hosts_that_the_operator_opens() {
    let (page, other) = (Server::new(), Server::new());
    let (world, host) = opened(&page);
    let far = format!("127.0.0.1:{}", other.port);
    let surface = Surface::loopback(&world);
    let client =
        |line: &str, body: &Value| surface.ask(line, &[&format!("X-API-Key: {KEY}")], &body.to_string());
    let created = |rules: &Value| {
        let mut new = rules.clone();
        new["templateID"] = "base".into();
        client("POST /v2/sandboxes", &new)
    };
    let hosts = |rules: &Value| {
        let id = created(rules).json()["sandboxID"].as_str().unwrap().to_owned();
        let detail = client(&format!("GET /sandboxes/{id}"), &json!({})).json();
        let hosts = detail["network"]["allowOut"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert_eq!(
            detail["allowInternetAccess"],
            json!(!hosts.is_empty()),
            "{detail}"
        );
        (id, hosts)
    };
    let (id, open) = hosts(&json!({"allow_internet_access": true}));
    assert_eq!(open[0], json!(host));
    assert!(open.contains(&json!("files.pythonhosted.org")), "{open:?}");
    let ran = |id: &str, page: &Server| {
        let bearer = format!("Authorization: Bearer {KEY}");
        let line = format!("POST /v1/sandboxes/{id}/exec");
        surface.ask(&line, &[&bearer], &fetch(page).to_string()).json()["exit_code"].clone()
    };
    assert_eq!((ran(&id, &page), page.visits()), (json!(0), 1));
    assert_eq!((ran(&id, &other), other.visits()), (json!(22), 0));
    let only = json!({"network": {"allowOut": [host], "denyOut": ["0.0.0.0/0"]}});
    assert_eq!(hosts(&only).1, [json!(host)]);
    for closed in [json!({}), json!({"allow_internet_access": false})] {
        let (id, open) = hosts(&closed);
        assert_eq!((open, ran(&id, &page), page.visits()), (vec![], json!(7), 1));
    }
    for (rules, status, told) in [
        (json!({"network": {"allowOut": [far]}}), 501, far.as_str()),
        (json!({"network": {"allowOut": host}}), 400, "expected a list"),
        (
            json!({"network": {"allowOut": ["10.0.0.0/8"]}}),
            400,
            "is a range of addresses",
        ),
        (
            json!({"allow_internet_access": true, "network": {"denyOut": ["192.0.2.0/24"]}}),
            501,
            "denyOut",
        ),
    ] {
        created(&rules).failed(status, told);
    }
    let update = format!("PUT /sandboxes/{id}/network");
    client(&update, &json!({"allow_internet_access": false})).failed(501, "that has one");
    world.close();
}
