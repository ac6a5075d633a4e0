//! Address ranges that the configuration opens, which sandboxes reach as runs do.

use serde_json::json;

use super::Surface;
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
