//! Address ranges that the configuration opens, which sandboxes reach as runs do.

use serde_json::json;

use super::Surface;
use super::keys::Holder;
use crate::network::{OPEN, Server};
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
