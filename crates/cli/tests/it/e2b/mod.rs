//! E2B's protocol, by raw HTTP and by E2B's own clients.

mod domain;
mod ports;
mod templates;
mod wire;

use std::process::Command;

use serde_json::{Value, json};

use crate::api::private_networks::opened;
use crate::api::{KEY, Reply, Surface, loopback_address, world};
use crate::network::Server;
use crate::world::{World, repository, skip};

const KEYED: &str = "X-API-Key: KEY";

/// A server with one sandbox that was created by E2B's protocol.
struct Lab {
    world: World,
    surface: Surface,
    id: String,
    token: String,
    traffic_token: String,
}

impl Lab {
    fn new() -> Self {
        let world = world();
        let surface = Surface::loopback(&world);
        let created = surface.ask("POST /v2/sandboxes", &[KEYED], r#"{"templateID": "base"}"#);
        assert_eq!(created.status, 201, "{created:?}");
        let told = created.json();
        let text = |name: &str| told[name].as_str().unwrap().to_owned();
        Self {
            world,
            surface,
            id: text("sandboxID"),
            token: text("envdAccessToken"),
            traffic_token: text("trafficAccessToken"),
        }
    }

    /// Sends a request to a port of the sandbox, with these headers beside its name.
    fn ask(&self, port: u16, line: &str, headers: &[&str], body: &str) -> Reply {
        let id = format!("E2b-Sandbox-Id: {}", self.id);
        let port = format!("E2b-Sandbox-Port: {port}");
        let all = [&[id.as_str(), port.as_str()], headers].concat();
        self.surface.ask(line, &all, body)
    }

    /// Sends a request for files and processes with the token.
    fn envd(&self, line: &str, headers: &[&str], body: &str) -> Reply {
        let token = format!("X-Access-Token: {}", self.token);
        self.ask(49_983, line, &[&[token.as_str()], headers].concat(), body)
    }

    /// Makes a unary call.
    fn call(&self, method: &str, message: &Value) -> Reply {
        self.envd(&format!("POST /{method}"), &[], &message.to_string())
    }

    fn close(self) {
        self.world.close();
    }
}

impl Reply {
    /// Checks an error in E2B's shape.
    #[track_caller]
    pub(crate) fn failed(&self, status: u16, part: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.json()["code"], json!(status), "{self:?}");
        assert!(
            self.json()["message"].as_str().unwrap().contains(part),
            "{self:?}"
        );
        assert!(!self.body.contains(KEY), "{self:?}");
    }
}

/// Runs a program with E2B's newest client.
fn run_client(world: &World, code: &str) -> Option<()> {
    let Ok(directory) = repository("target/e2b-venv").canonicalize() else {
        return skip("no target/e2b-venv (`cargo xtask setup` makes it)");
    };
    let url = format!("http://{}", loopback_address(world));
    let mut command: Command = world.dir.program(directory.join("bin/python"));
    command.args(["-c", code]);
    for (name, value) in [
        ("E2B_API_KEY", KEY),
        ("E2B_API_URL", &url),
        ("E2B_SANDBOX_URL", &url),
    ] {
        command.env(name, value);
    }
    let output = command.env("E2B_CONNECTION_RETRIES", "0").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), "done\n", "{}", text(&output.stderr));
    Some(())
}

#[test]
fn the_client_of_e2b_pauses_and_copies_sandboxes() {
    let world = world();
    run_client(&world, include_str!("copies.py"));
    world.close();
}

#[test]
fn the_client_of_e2b_changes_hosts() {
    let page = Server::new();
    let (world, host) = opened(&page);
    let code = include_str!("hosts.py").replace("HOST", &host);
    if run_client(&world, &code).is_some() {
        assert_eq!(page.visits(), 2);
    }
    world.close();
}

#[test]
fn metadata_of_files_are_the_servers() {
    let world = world();
    run_client(&world, include_str!("file_metadata.py"));
    world.close();
}

#[test]
fn the_client_of_e2b_works_with_three_variables() {
    let world = world();
    run_client(&world, include_str!("smoke.py"));
    world.close();
}
