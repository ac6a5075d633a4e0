//! Address ranges that the configuration opens, which sandboxes reach as runs do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::keys::Holder;
use super::{KEY, Reply, Surface};
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
pub(crate) fn opened(page: &Server) -> (World, String) {
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

/// A host whose answer has no end.
fn endless() -> (u16, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (ended, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nbegun").unwrap();
        // Nothing comes before the end.
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
        ended.send(()).unwrap();
    });
    (port, receiver)
}

#[test]
fn the_hosts_of_a_sandbox_are_changed_while_it_lives() {
    let (page, other) = (Server::new(), Server::new());
    let (world, host) = opened(&page);
    let far = format!("127.0.0.1:{}", other.port);
    let key = Holder::new(&world, &[]);
    let visited = |name: &str| {
        let line = format!("POST /v1/sandboxes/{name}/exec");
        let code = key.ok(&line, &fetch(&page))["exit_code"].clone();
        (code, page.visits())
    };
    let set = |name: &str, hosts: &[&str]| {
        let line = format!("PUT /v1/sandboxes/{name}/network");
        key.ask(&line, &json!({"allowed_hosts": hosts}))
    };
    key.ok(
        "POST /v1/sandboxes",
        &json!({"name": "near", "allowed_hosts": [host]}),
    );
    // It works outside, and inside before the change.
    let outside = world.dir.program("curl").args(["--silent", &page.url()]).output();
    assert_eq!(outside.unwrap().stdout, b"hello");
    assert_eq!(visited("near"), (json!(0), 2));
    set("near", &[&far]).refused(403, "permission_denied");
    set("near", &["http://x"]).refused(422, "invalid_arguments");
    assert_eq!(visited("near"), (json!(0), 3));
    assert_eq!(
        set("near", &["pypi.org"]).json()["allowed_hosts"],
        json!(["pypi.org"])
    );
    // The proxy refuses it.
    assert_eq!(visited("near"), (json!(22), 3));
    assert_eq!(set("near", &[]).json()["allowed_hosts"], json!([]));
    assert_eq!(visited("near"), (json!(22), 3));
    // A copy has its sockets, as it has.
    key.ok("POST /v1/sandboxes/near/fork", &json!({"name": "copy"}));
    assert_eq!(visited("copy"), (json!(7), 3));
    for name in ["near", "copy"] {
        assert_eq!(set(name, &[&host]).json()["allowed_hosts"], json!([host]));
    }
    assert_eq!(visited("near"), (json!(0), 4));
    assert_eq!(visited("copy"), (json!(0), 5));

    // Sockets are what ports need, too; without any there is nothing to open.
    key.ok("POST /v1/sandboxes", &json!({"name": "ports", "ports": true}));
    assert_eq!(visited("ports"), (json!(7), 5));
    assert_eq!(set("ports", &[&host]).status, 200);
    assert_eq!(visited("ports"), (json!(0), 6));
    key.ok("POST /v1/sandboxes", &json!({"name": "plain"}));
    let refused = set("plain", &[&host]);
    refused.refused(422, "not_supported");
    assert!(
        refused
            .body
            .contains("create one with `allowed_hosts` or `ports`"),
        "{refused:?}"
    );
    assert_eq!(set("plain", &[]).status, 200);

    let foreign = Holder::new(&world, &[]);
    let line = "PUT /v1/sandboxes/near/network";
    foreign
        .ask(line, &json!({"allowed_hosts": []}))
        .refused(404, "not_found");
    assert_eq!(visited("near"), (json!(0), 7));
    let log = world.dir.run(["audit", "tail", "--json"]);
    assert!(
        log.ok().contains("sandbox.network") && log.stdout.contains("pypi.org"),
        "{log:?}"
    );
    world.close();
}

#[test]
fn a_change_of_hosts_ends_connections_to_others() {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", OPEN);
    world.start_engine_with(&[], &[]);
    let user = Surface::socket(&world);
    let (port, ended) = endless();
    let host = format!("127.0.0.1:{port}");
    let new = json!({"name": "near", "allowed_hosts": [host]}).to_string();
    assert_eq!(user.ask("POST /v1/sandboxes", &[], &new).status, 200);
    let ask = json!({"command": ["curl", "--silent", "--no-buffer", format!("http://{host}/")]});
    let streamed = ["Accept: text/event-stream"];
    let mut events = user.send("POST /v1/sandboxes/near/exec", &streamed, &ask.to_string());
    let mut told = Vec::new();
    while !String::from_utf8_lossy(&told).contains("begun") {
        let mut piece = [0; 4096];
        let count = events.read(&mut piece).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&piece[..count]);
    }
    // One that is still allowed goes on.
    let line = "PUT /v1/sandboxes/near/network";
    let kept = json!({"allowed_hosts": ["a.test", host]}).to_string();
    assert_eq!(user.ask(line, &[], &kept).status, 200);
    ended.try_recv().unwrap_err();
    assert_eq!(
        user.ask(line, &[], r#"{"allowed_hosts": ["a.test"]}"#).status,
        200
    );
    ended.recv_timeout(Duration::from_secs(60)).unwrap();
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    // Half an answer is none: CURLE_PARTIAL_FILE or CURLE_RECV_ERROR, see libcurl-errors(3).
    assert!(
        rest.contains("\"exit_code\":18") || rest.contains("\"exit_code\":56"),
        "{rest}"
    );
    world.close();
}

/// A client of E2B's protocol with the fixed key.
struct E2bClient(Surface);

impl E2bClient {
    fn ask(&self, line: &str, body: &Value) -> Reply {
        self.0
            .ask(line, &[&format!("X-API-Key: {KEY}")], &body.to_string())
    }

    /// Creates a sandbox with these rules for its network.
    fn create(&self, rules: &Value) -> Reply {
        let mut new = rules.clone();
        new["templateID"] = "base".into();
        self.ask("POST /v2/sandboxes", &new)
    }

    /// Creates a sandbox, and returns its id.
    fn created(&self, rules: &Value) -> String {
        self.create(rules).json()["sandboxID"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Fetches a page in a sandbox, and returns the exit status.
    fn fetched(&self, id: &str, page: &Server) -> Value {
        let line = format!("POST /v1/sandboxes/{id}/exec");
        let answer = self.0.ask(
            &line,
            &[&format!("Authorization: Bearer {KEY}")],
            &fetch(page).to_string(),
        );
        answer.json()["exit_code"].clone()
    }
}

#[test]
fn clients_of_e2b_reach_the_hosts_that_the_operator_opens() {
    let (page, other) = (Server::new(), Server::new());
    let (world, host) = opened(&page);
    let far = format!("127.0.0.1:{}", other.port);
    let client = E2bClient(Surface::loopback(&world));
    let hosts = |rules: &Value| {
        let id = client.created(rules);
        let detail = client.ask(&format!("GET /sandboxes/{id}"), &json!({})).json();
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
    let ran = |id: &str, page: &Server| client.fetched(id, page);
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
        client.create(&rules).failed(status, told);
    }
    world.close();
}

#[test]
fn clients_of_e2b_change_the_hosts_of_a_sandbox() {
    let (page, other) = (Server::new(), Server::new());
    let (world, host) = opened(&page);
    let far = format!("127.0.0.1:{}", other.port);
    let client = E2bClient(Surface::loopback(&world));
    let created = |network: &Value| client.created(&json!({"network": network}));
    let update = |id: &str, rules: &Value| client.ask(&format!("PUT /sandboxes/{id}/network"), rules);
    let visited = |id: &str| (client.fetched(id, &page), page.visits());
    let opens = json!({"allowOut": [host], "denyOut": ["0.0.0.0/0"]});
    let id = created(&opens);
    for (rules, told) in [
        (json!({"allowOut": [far]}), far.as_str()),
        (json!({"denyOut": ["192.0.2.0/24"]}), "of some addresses"),
        (json!({"allowOut": [host], "rules": {&host: [{}]}}), "these rules"),
    ] {
        update(&id, &rules).failed(501, told);
    }
    // What was refused has changed nothing.
    assert_eq!(visited(&id), (json!(0), 1));
    for (closes, reopens) in [
        (json!({"allow_internet_access": false}), &opens),
        // Without rules E2B's sandboxes reach all that can be reached.
        (json!({"denyOut": ["0.0.0.0/0"]}), &json!({})),
    ] {
        assert_eq!(update(&id, &closes).status, 204);
        assert_eq!(visited(&id), (json!(22), 1));
        let detail = client.ask(&format!("GET /sandboxes/{id}"), &json!({})).json();
        assert_eq!(detail["allowInternetAccess"], json!(false), "{detail}");
        assert_eq!(update(&id, reopens).status, 204);
    }
    assert_eq!(visited(&id), (json!(0), 2));
    // One that was created without a network has no sockets, unless it asked for visitors.
    update(&created(&json!({})), &opens).failed(501, "created without a network");
    let id = created(&json!({"allowPublicTraffic": true}));
    assert_eq!(visited(&id), (json!(7), 2));
    assert_eq!(update(&id, &opens).status, 204);
    assert_eq!(visited(&id), (json!(0), 3));
    world.close();
}
