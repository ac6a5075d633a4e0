//! Programs of sandboxes that listen on ports, as their visitors reach them.

use std::io::{Read, Write};
use std::net::TcpStream;

use base64::Engine;
use base64::prelude::{BASE64_STANDARD as STANDARD, BASE64_STANDARD_NO_PAD as STANDARD_NO_PAD};
use ringfence_testing::authority::Authority;
use serde_json::json;

use super::domain::{serve, succeeds};
use super::{KEYED, Lab};
use crate::api::{KEY, loopback_address};
use crate::world::World;

/// The program that is visited.
const PROGRAM: &str = include_str!("ports_program.py");

#[test]
fn programs_are_visited_by_names_and_with_tokens() {
    let world = World::before_engine();
    let authority = Authority::new("ours");
    let port = serve(&world, &authority);
    let mut client = world.dir.program("/usr/bin/python3");
    client.args(["-I", "-c", include_str!("ports.py")]);
    client.arg(authority.file()).args([&port, KEY, PROGRAM]);
    client.arg(env!("CARGO_BIN_EXE_ringfence"));
    succeeds(&mut client);
    world.close();
}

#[test]
fn without_a_domain_a_program_is_nothing_that_a_browser_renders_or_keeps() {
    let mut lab = Lab::new();
    // Nobody has asked for sockets.
    lab.ask(8000, "GET /head", &[], "")
        .failed(501, "ports of a sandbox without sockets");
    let new = r#"{"templateID": "base", "network": {"allowPublicTraffic": true}}"#;
    let created = lab.surface.ask("POST /v2/sandboxes", &[KEYED], new).json();
    lab.id = created["sandboxID"].as_str().unwrap().to_owned();
    let token = format!("X-Access-Token: {}", created["envdAccessToken"].as_str().unwrap());
    let code = json!({ "code": PROGRAM }).to_string();
    assert_eq!(lab.ask(49_999, "POST /execute", &[&token], &code).status, 200);
    let visited = lab.ask(8000, "GET /head", &["Cookie: of=console"], "");
    assert_eq!(visited.status, 200, "{visited:?}");
    assert!(!visited.body.contains("console"), "{visited:?}");
    let headers = visited.head.to_ascii_lowercase();
    assert!(
        headers.contains("content-security-policy: default-src 'none'; sandbox"),
        "{visited:?}"
    );
    // However a key is written, no program gets it.
    for secret in [
        format!("Authorization: Token {KEY}"),
        format!(
            "Authorization: Basic {}",
            STANDARD_NO_PAD.encode(format!("{KEY}:"))
        ),
        format!("Authorization: Basic {}", STANDARD.encode(format!("user:{KEY}"))),
        format!("X-API-Key: \"{KEY}\""),
        format!("X-API-Key: Bearer {KEY}"),
        "Authorization: Other rf_0123abcd_secret".to_owned(),
    ] {
        let head = lab.ask(8000, "GET /head", &[&secret], "").body;
        let (name, _) = secret.split_once(':').unwrap();
        assert!(
            !head.contains(name) && head.contains("GET /head"),
            "{secret}: {head}"
        );
    }
    // The server's own proxy inside has no visitors.
    lab.ask(3128, "GET /head", &[KEYED], "")
        .failed(400, "port 3128 of the sandbox is the server's own");
    // Announcements without an end are no answer.
    lab.ask(8000, "GET /announce", &[], "").failed(502, "");
    let host = format!("Host: 8000-other.{}", loopback_address(&lab.world)).replace("127.0.0.1", "localhost");
    lab.ask(8000, "GET /head", &[&host], "")
        .failed(400, "different sandboxes");
    assert!(!headers.contains("set-cookie"), "{visited:?}");
    let page = ["Origin: http://evil.example"];
    lab.ask(8000, "GET /head", &page, "").failed(403, "another site");
    lab.close();
}

/// One more than the connections that a key may have.
const VISITORS: usize = 49;

/// Connections to the programs of a sandbox that visitors without a token may have.
const STRANGERS: usize = 12;

#[test]
fn visitors_without_a_token_take_no_connection_of_the_owner() {
    let mut lab = Lab::new();
    let new = r#"{"templateID": "base", "network": {"allowPublicTraffic": true}}"#;
    let created = lab.surface.ask("POST /v2/sandboxes", &[KEYED], new).json();
    lab.id = created["sandboxID"].as_str().unwrap().to_owned();
    let address = loopback_address(&lab.world);
    let names = format!(
        "Host: {address}\r\nE2b-Sandbox-Id: {}\r\nE2b-Sandbox-Port: 8000",
        lab.id
    );
    let visit = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET / HTTP/1.1\r\n{names}\r\n\r\n").unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 502");
        stream
    };
    let open: Vec<TcpStream> = (0..VISITORS).map(visit).collect();
    assert_eq!(lab.surface.ask("GET /v2/sandboxes", &[KEYED], "").status, 200);
    drop(open);

    let token = format!("X-Access-Token: {}", created["envdAccessToken"].as_str().unwrap());
    let code = json!({ "code": PROGRAM }).to_string();
    assert_eq!(lab.ask(49_999, "POST /execute", &[&token], &code).status, 200);
    let stay = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST /echo HTTP/1.1\r\n{names}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        .unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    };
    let open: Vec<TcpStream> = (0..STRANGERS).map(stay).collect();
    lab.ask(8000, "GET /head", &[], "").failed(429, "12 visitors");
    assert_eq!(lab.ask(8000, "GET /head", &[KEYED], "").status, 200);
    drop(open);
    lab.close();
}
