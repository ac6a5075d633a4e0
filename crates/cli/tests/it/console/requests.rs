//! Requests as any program on this machine could send them: each refusal beside the same one that is served.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{Asking, CONFIG, link, world};
use crate::support::eventually;
use crate::world::World;

struct Site {
    address: String,
    token: String,
}

impl Site {
    fn of(world: &World) -> Self {
        let link = link(world);
        let (base, token) = link.split_once("/#token=").unwrap();
        let address = base.strip_prefix("http://").unwrap().to_owned();
        let token = token.to_owned();
        Self { address, token }
    }

    /// A request with these headers; `HOST` and `TOKEN` in them are ours.
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
fn the_token_is_kept_for_us_alone_and_printed_to_nobody_else() {
    let world = world();
    let first = Site::of(&world);
    let file = world.dir.path("state/ringfence/console.token");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), first.token);
    let log = world.engine_log();
    assert!(
        log.contains(&first.address) && !log.contains(&first.token),
        "{log}"
    );
    // The next engine has the same token; without an engine, no link is given away.
    assert_eq!(world.stop_engine("TERM"), Some(0));
    world.dir.run(["console"]).refused(125, "none is running");
    world.start_engine();
    assert_eq!(Site::of(&world).token, first.token);
    // One that others could have read opens nothing.
    assert_eq!(world.stop_engine("TERM"), Some(0));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    world.dir.run(["serve"]).refused(125, "others may read it");
    fs::remove_file(&file).unwrap();
    world.start_engine();
    assert_ne!(Site::of(&world).token, first.token);
    // What an engine that was killed left behind is no address any more.
    world.stop_engine("KILL");
    world.dir.run(["console"]).refused(125, "none is running");
    world.start_engine();
    Site::of(&world).waiting();
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
    configure("console = false");
    world.start_engine();
    world.dir.run(["console"]).refused(125, "serves no console");
    assert!(!world.engine_log().contains("console"));
    assert_eq!(world.stop_engine("TERM"), Some(0));
    // A project may not decide it.
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
