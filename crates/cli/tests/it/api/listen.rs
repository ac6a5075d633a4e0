//! `ringfence serve --listen`.

use std::fs;
use std::net::SocketAddr;

use super::{BEARER, CONFIG, KEY, Surface};
use crate::support::eventually;
use crate::world::World;

/// Starts a server that listens at an endpoint, and returns the lines that name its addresses.
pub(crate) fn listening(world: &World, options: &[&str]) -> Vec<String> {
    world.dir.write("config/ringfence/ringfence.toml", CONFIG);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], options);
    let mut found = Vec::new();
    eventually("the server names its addresses", || {
        let log = world.engine_log();
        found = log
            .lines()
            .filter_map(|line| line.strip_prefix("API at "))
            .map(str::to_owned)
            .collect();
        !found.is_empty()
    });
    found
}

fn address(endpoint: &str) -> SocketAddr {
    endpoint.strip_prefix("http://").unwrap().parse().unwrap()
}

#[test]
fn a_loopback_address_serves_the_api_and_the_console() {
    let world = World::before_engine();
    let endpoints = listening(&world, &["--listen", "127.0.0.1:0"]);
    assert_eq!(endpoints.len(), 1, "{endpoints:?}");
    let surface = Surface::Tcp(address(&endpoints[0]));
    assert_eq!(
        surface
            .ask("POST /v1/run", &[BEARER], r#"{"code": "print(1)"}"#)
            .json()["stdout"],
        "1\n"
    );
    assert_eq!(surface.ask("GET /", &[], "").status, 200);
    world.close();
}

#[test]
fn an_address_that_others_reach_must_be_meant() {
    let world = World::before_engine();
    // Every loopback address but as one of many: nothing leaves this machine.
    let all = "0.0.0.0:0";
    let output = world.dir.run(["serve", "--listen", all]);
    output.refused(2, "other machines would send their keys unencrypted");
    assert!(output.stderr.contains("--plain-http"), "{output:?}");
    let endpoints = listening(&world, &["--listen", all, "--plain-http"]);
    let port = address(&endpoints[1]).port();
    let surface = Surface::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
    let run = r#"{"code": "print(1)"}"#;
    assert_eq!(
        surface.ask("POST /v1/run", &[BEARER], run).json()["stdout"],
        "1\n"
    );
    // Its user has no other rights there: no console, no run without a key.
    surface
        .ask("POST /v1/run", &[], run)
        .refused(401, "unauthenticated");
    surface.ask("GET /", &[], "").refused(404, "not_found");
    surface
        .ask("GET /api/approvals", &[BEARER], "")
        .refused(404, "not_found");
    // By any name, but not from a page.
    assert_eq!(
        surface
            .ask("POST /v1/run", &[BEARER, "Host: build.example"], run)
            .status,
        200
    );
    let page = ["Origin: http://evil.example", BEARER];
    surface
        .ask("POST /v1/run", &page, run)
        .refused(403, "permission_denied");
    world.close();
}

#[test]
fn a_unix_socket_needs_no_key_and_replaces_no_file() {
    let world = World::before_engine();
    let file = world.dir.write("work/file", "mine");
    let unix = |path: &std::path::Path| format!("unix:{}", path.display());
    let output = world.dir.run(["serve", "--listen", &unix(&file)]);
    output.refused(125, "cannot listen at unix:");
    assert!(
        output.stderr.contains("a path of at most 107 bytes"),
        "{output:?}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let path = world.dir.path("work/api.sock");
    // A socket that nobody listens at is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    listening(&world, &["--listen", &unix(&path)]);
    let surface = Surface::Socket(path.clone());
    assert_eq!(
        surface.ask("POST /v1/run", &[], r#"{"code": "print(1)"}"#).json()["stdout"],
        "1\n"
    );
    world.stop_engine("TERM");
    assert!(!path.exists());
    world.close();
}
