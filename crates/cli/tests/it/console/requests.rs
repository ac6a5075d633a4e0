//! Requests as any program on this machine could send them: each rejection beside the same request that is
//! served.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{Asking, CONFIG, link, world};
use crate::support::eventually;
use crate::world::{World, own_uid, skip};

struct Site {
    address: String,
    token: String,
}

impl Site {
    fn of(world: &World) -> Self {
        link(world);
        let access = world.console();
        let text = |name: &str| access[name].as_str().unwrap().to_owned();
        let link = format!("http://{}/#token=", text("address"));
        assert!(text("link").starts_with(&link), "{access}");
        Self {
            address: text("address"),
            token: text("token"),
        }
    }

    /// Returns the status of a page's request with a ticket.
    fn exchange(&self, ticket: &str) -> u16 {
        let body = json!({ "token": ticket }).to_string();
        self.ask("POST /session", &["Host: HOST", "Origin: http://HOST"], &body)
            .0
    }

    /// Sends a request with these headers; `HOST` and `TOKEN` in them are replaced.
    fn ask(&self, line: &str, headers: &[&str], body: &str) -> (u16, Value) {
        let headers = headers.join("\r\n");
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n\r\n{body}"
        );
        let request = request
            .replace("HOST", &self.address)
            .replace("TOKEN", &self.token);
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn waiting(&self) -> Vec<Value> {
        let (status, listed) = self.ask("GET /api/approvals", &["Host: HOST", BEARER], "");
        assert_eq!(status, 200, "{listed}");
        listed["waiting"].as_array().unwrap().clone()
    }
}

/// Returns the ticket of a new link.
fn ticket(world: &World) -> String {
    link(world).split_once("/#token=").unwrap().1.to_owned()
}

const BEARER: &str = "Authorization: Bearer TOKEN";

#[test]
fn only_whoever_has_the_token_answers_and_only_from_here() {
    let world = world();
    world.dir.write("work/old", "x");
    let site = Site::of(&world);
    let asking = Asking::of(&world, "rm old");
    let mut question = Value::Null;
    eventually("the question waits", || {
        question = site.waiting().first().cloned().unwrap_or_default();
        question.is_object()
    });
    assert_eq!(question["text"], json!([{"plain": "rm old"}]));
    let line = format!("POST /api/approvals/{}", question["id"].as_str().unwrap());
    let body = json!({"approved": true, "digest": question["digest"]}).to_string();
    for (headers, status, kind) in [
        (&["Host: HOST"][..], 401, "unauthenticated"),
        (
            &["Host: HOST", "Authorization: Bearer 0TOKEN"],
            401,
            "unauthenticated",
        ),
        (&["Host: HOST", "Cookie: token=TOKEN"], 401, "unauthenticated"),
        (&["Host: evil.example", BEARER], 421, "foreign_host"),
        (
            &["Host: HOST", BEARER, "Origin: http://evil.example"],
            403,
            "foreign_origin",
        ),
        (&["Host: HOST", BEARER, "Origin: null"], 403, "foreign_origin"),
        (
            &["Host: HOST", BEARER, "Sec-Fetch-Site: cross-site"],
            403,
            "foreign_origin",
        ),
    ] {
        let (refused, error) = site.ask(&line, headers, &body);
        assert_eq!(
            (refused, &error["error"]["type"]),
            (status, &json!(kind)),
            "{headers:?}"
        );
        let (refused, _) = site.ask("GET /api/approvals", headers, "");
        assert_eq!(refused, status, "{headers:?}");
    }
    assert_eq!(site.waiting().len(), 1);
    assert!(world.dir.path("work/old").exists());
    let (status, answer) = site.ask(&line, &["Host: HOST", BEARER, "Origin: http://HOST"], &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(asking.end(), json!(""));
    assert!(!world.dir.path("work/old").exists());
    let (status, late) = site.ask(&line, &["Host: HOST", BEARER], &body);
    assert_eq!((status, &late["error"]["type"]), (409, &json!("late")));
    let (_, runs) = site.ask("GET /api/runs", &["Host: HOST", BEARER], "");
    let run = &runs["runs"][0];
    assert_eq!(
        (&run["tool"], &run["outcome"], &run["arguments"]),
        (
            &json!("host_exec"),
            &json!("answered"),
            &json!([{"plain": "rm old"}])
        )
    );
    assert!(run["judgement"].as_str().is_some(), "{run}");
    world.close();
}

#[test]
fn no_secret_of_the_console_outlives_its_engine() {
    let world = world();
    let first = Site::of(&world);
    let unused = ticket(&world);
    let log = world.engine_log();
    assert!(log.contains(&first.address), "{log}");
    for secret in [&first.token, &unused] {
        assert!(!log.contains(secret), "{log}");
        for directory in ["state", "run"] {
            holds_no(&world.dir.path(directory), secret);
        }
    }
    // Without a server no link is issued, and the next server at the same address accepts no credentials of
    // the last.
    assert_eq!(world.stop_engine("TERM"), Some(0));
    world.dir.run(["console"]).refused(125, "none is running");
    let config = CONFIG.replace("127.0.0.1:0", &first.address);
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine();
    let second = Site::of(&world);
    assert_eq!(second.address, first.address);
    assert_ne!(second.token, first.token);
    assert_eq!(
        first.ask("GET /api/approvals", &["Host: HOST", BEARER], "").0,
        401
    );
    assert_eq!(first.exchange(&unused), 401);
    // Credentials left by a killed server do not open the next one.
    world.stop_engine("KILL");
    world.dir.run(["console"]).refused(125, "none is running");
    world.start_engine();
    Site::of(&world).waiting();
    world.close();
}

/// Asserts that no file below this directory contains the text.
fn holds_no(directory: &Path, text: &str) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            holds_no(&path, text);
        } else if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            assert!(
                !bytes.windows(text.len()).any(|part| part == text.as_bytes()),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn a_link_opens_one_session() {
    let world = world();
    let site = Site::of(&world);
    let one = ticket(&world);
    assert_ne!(one, ticket(&world));
    assert_eq!(site.exchange("zzz"), 401);
    assert_eq!(site.exchange(&site.token), 401);
    assert_eq!(site.exchange(&one), 200);
    assert_eq!(site.exchange(&one), 401);
    // A ticket is no token.
    let bearer = format!("Authorization: Bearer {}", ticket(&world));
    assert_eq!(
        site.ask("GET /api/approvals", &["Host: HOST", &bearer], "").0,
        401
    );
    world.close();
}

/// Opens 70 silent connections and one that sends the right token; prints its response.
const OTHER_USER: &str = r#"
import socket, sys
host, port = sys.argv[1].rsplit(":", 1)
address = (host.strip("[]"), int(port))
idle = [socket.create_connection(address) for _ in range(70)]
asking = socket.create_connection(address)
answer = b""
try:
    asking.sendall(f"GET /api/approvals HTTP/1.1\r\nHost: {sys.argv[1]}\r\nConnection: close\r\n"
                   f"Authorization: Bearer {sys.argv[2]}\r\n\r\n".encode())
    while part := asking.recv(4096):
        answer += part
except ConnectionError:
    pass
print(answer.split(b" ")[1].decode() if answer else "nothing", flush=True)
sys.stdin.read()
"#;

#[test]
fn other_users_are_not_served_and_hold_nobody_up() {
    if own_uid() != 0 {
        return skip("only root can be another user, too").unwrap_or_default();
    }
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let world = World::before_engine();
        let config = CONFIG.replace("127.0.0.1:0", listen);
        world.dir.write("config/ringfence/ringfence.toml", config);
        world.start_engine();
        let site = Site::of(&world);
        let mut other = world.dir.program("/usr/bin/python3");
        other
            .current_dir("/")
            .args(["-c", OTHER_USER, &site.address, &site.token]);
        let mut other = other
            .uid(65_534)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        world.watch(other.id());
        let mut told = String::new();
        BufReader::new(other.stdout.take().unwrap())
            .read_line(&mut told)
            .unwrap();
        // The 70 connections are still open. The console's user is served at once; another user's token is
        // not enough.
        assert_eq!(site.waiting(), [Value::Null; 0], "{listen}");
        assert!(["403", "nothing"].contains(&told.trim()), "{listen}: {told}");
        drop(other.stdin.take());
        other.wait().unwrap();
        world.close();
    }
}

#[test]
fn a_web_page_that_opens_connections_holds_nobody_up() {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", CONFIG);
    world.start_engine();
    let site = Site::of(&world);
    // As a browser opens them for any page: some silent, some with another host name or without credentials.
    let connections: Vec<TcpStream> = (0..150)
        .map(|number| {
            let mut stream = TcpStream::connect(&site.address).unwrap();
            let host = if number % 3 == 0 {
                "a.localhost"
            } else {
                &site.address
            };
            if number % 3 < 2 {
                // It may have been evicted already.
                let _ = write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            }
            stream
        })
        .collect();
    assert_eq!(site.waiting(), [Value::Null; 0]);
    drop(connections);
    world.close();
}

#[test]
fn an_address_is_that_which_was_asked_for_or_none() {
    let world = World::before_engine();
    let configure = |engine: &str| {
        world
            .dir
            .write("config/ringfence/ringfence.toml", format!("[engine]\n{engine}\n"))
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    configure(&format!("listen = '{address}'"));
    world.dir.run(["serve"]).refused(125, &address);
    drop(taken);
    for address in ["0.0.0.0:8737", "[::]:8737", "192.0.2.1:8737"] {
        configure(&format!("listen = '{address}'"));
        let refused = world.dir.run(["serve"]);
        assert_eq!(refused.status, 2, "{refused:?}");
        assert!(
            refused.stderr.contains("other machines could reach") && refused.stderr.contains("ssh -L"),
            "{refused:?}"
        );
    }
    // No other process can listen beforehand at a random address.
    configure("");
    world.start_engine();
    assert!(!link(&world).contains(":8737"), "{}", link(&world));
    assert_eq!(world.stop_engine("TERM"), Some(0));
    configure("console = false");
    world.start_engine();
    world.dir.run(["console"]).refused(125, "serves no console");
    assert!(!world.engine_log().contains("console"));
    assert_eq!(world.stop_engine("TERM"), Some(0));
    // A project's file may not set it.
    world.dir.write("config/ringfence/ringfence.toml", CONFIG);
    world
        .dir
        .write("work/ringfence.toml", "[engine]\nconsole = false\n");
    assert_eq!(world.dir.run(["serve"]).status, 2);
    fs::remove_file(world.dir.path("work/ringfence.toml")).unwrap();
    world.start_engine();
    link(&world);
    world.close();
}
