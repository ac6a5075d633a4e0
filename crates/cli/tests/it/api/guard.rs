//! The guard, as a table: surface × host, origin, credential.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use super::{BEARER, KEY, Reply, Surface, images, librechat, loopback_address, world};
use crate::world::{World, own_uid, skip};

/// A credential of the table.
const CREDENTIALS: &[(&str, &[&str])] = &[
    ("none", &[]),
    ("wrong", &["Authorization: Bearer wrong"]),
    ("in a URL alone", &["Referer: http://x/?key=KEY"]),
    ("the console's cookie", &["Cookie: ringfence_1=KEY"]),
    ("another scheme", &["Authorization: Basic KEY"]),
    ("twice", &["X-API-Key: KEY", "X-API-Key: wrong"]),
];

/// Returns the routes of the document: method, path, `true` if a key is needed.
fn routes(surface: &Surface) -> Vec<(String, String, bool)> {
    let document = surface.ask("GET /openapi.json", &[], "").json();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let needs_key = operation["security"].as_array().unwrap().len() > 1;
            routes.push((
                method.to_uppercase(),
                path.replace("{name}", "run_code"),
                needs_key,
            ));
        }
    }
    assert!(routes.len() >= 70, "{routes:?}");
    routes
}

#[test]
fn every_route_of_the_document_is_served_and_guarded() {
    let world = world();
    let (socket, loopback) = (Surface::socket(&world), Surface::loopback(&world));
    for (method, path, needs_key) in routes(&loopback) {
        let line = format!("{method} {path}");
        for (name, credential) in CREDENTIALS {
            let reply = loopback.ask(&line, credential, "");
            match (needs_key, reply.status) {
                // Guessers are slowed.
                (true, 429) => refused(&path, &reply, 429, "limit_exceeded"),
                (true, _) => {
                    refused(&path, &reply, 401, "unauthenticated");
                    assert!(reply.head.contains("www-authenticate: bearer"), "{name}");
                }
                (false, _) => assert_eq!(reply.status, 200, "{line} {name}: {reply:?}"),
            }
        }
        let rebound = ["Host: evil.example", BEARER];
        refused(
            &path,
            &loopback.ask(&line, &rebound, ""),
            421,
            "permission_denied",
        );
        for origin in [
            "Origin: http://evil.example",
            "Origin: null",
            "Sec-Fetch-Site: cross-site",
        ] {
            refused(
                &path,
                &loopback.ask(&line, &[BEARER, origin], ""),
                403,
                "permission_denied",
            );
        }
        // An answer without an end, which `cells::lives` and `api::revocation` read.
        if path == "/v1/sandbox-events" {
            continue;
        }
        // The right key is never slowed. `tools`, `approvals` and `admin` are not among its rights.
        let lacked = match path.as_str() {
            path if ["/metrics", "/v1/images"].contains(&path) => Some("admin"),
            path if path.starts_with("/v1/keys") || path.starts_with("/v1/audit") => Some("admin"),
            path if path.starts_with("/v1/approvals") => Some("approvals"),
            path if path.starts_with("/v1/tools") || path == "/mcp" => Some("tools"),
            _ => None,
        };
        for key in [BEARER, "X-API-Key: KEY"] {
            let reply = loopback.ask(&line, &[key], "");
            match lacked {
                Some(right) => {
                    reply.refused(403, "permission_denied");
                    assert!(reply.body.contains(&format!("the right `{right}`")), "{reply:?}");
                }
                None => assert!(was_reached(&reply), "{line}: {reply:?}"),
            }
        }
        // Served over the socket without a key.
        let reply = socket.ask(&line, &[], "");
        assert!(was_reached(&reply), "{line}: {reply:?}");
        // And no other method: the table and the router agree.
        let reply = loopback.ask(&format!("PATCH {path}"), &[BEARER], "");
        refused(&path, &reply, 405, "method_not_allowed");
    }
    assert!(!world.engine_log().contains(KEY));
    images::close(world);
}

/// Checks a refusal, in the form of the path's protocol.
#[track_caller]
fn refused(path: &str, reply: &Reply, status: u16, kind: &str) {
    match path.starts_with("/librechat/") {
        true => librechat::refused(reply, status, ""),
        false => reply.refused(status, kind),
    }
}

/// Returns `true` if a request without a body has come to its route: below a sandbox, that there is none such.
fn was_reached(reply: &Reply) -> bool {
    match reply.status {
        200 | 201 | 400 | 406 | 415 | 422 => true,
        404 => [
            "sandbox `{id}`",
            "snapshot `{id}`",
            "key `{id}`",
            "question `{id}`",
            "stored run `{id}`",
            "kernel `{id}`",
            "kernel named `run_code`",
            "session `{session}`",
        ]
        .iter()
        .any(|what| reply.body.contains(&format!("there is no {what}"))),
        _ => false,
    }
}

#[test]
fn the_console_and_the_api_do_not_take_each_others_credentials() {
    let world = world();
    let loopback = Surface::loopback(&world);
    let access = world.console();
    let token = format!("Authorization: Bearer {}", access["token"].as_str().unwrap());
    assert_eq!(loopback.ask("GET /api/approvals", &[&token], "").status, 200);
    // With a key there is nothing beside the API; without one it might be the console's.
    for line in ["GET /api/approvals", "GET /v9/run", "DELETE /v9/run", "POST /"] {
        let reply = loopback.ask(line, &[BEARER], "");
        reply.refused(404, "not_found");
        assert!(
            reply.body.contains("/openapi.json") && reply.head.contains("x-request-id: "),
            "{reply:?}"
        );
    }
    loopback
        .ask("GET /v9/run", &[], "")
        .refused(401, "unauthenticated");
    loopback
        .ask("GET /v9/run", &[BEARER, "Host: evil.example"], "")
        .refused(421, "permission_denied");
    loopback
        .ask("POST /v1/run", &[&token], r#"{"code": ""}"#)
        .refused(401, "unauthenticated");
    assert_eq!(loopback.ask("GET /", &[], "").status, 200);
    world.close();
}

/// A server with a key that can be guessed.
fn with_weak_key() -> World {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", super::CONFIG);
    world.start_engine_with(&[("RINGFENCE_API_KEY", "letmein")], &[]);
    world
}

#[test]
fn a_key_that_can_be_guessed_is_not_told_to_whom_may_be_guessing() {
    let world = with_weak_key();
    assert!(
        world.engine_log().contains("RINGFENCE_API_KEY can be guessed"),
        "{}",
        world.engine_log()
    );
    let loopback = Surface::loopback(&world);
    let ask = |line: &str, key: &str| loopback.ask(line, &[&format!("X-API-Key: {key}")], "").status;
    assert_eq!(ask("GET /v1/usage", "letmein"), 200);
    let random = world.dir.run(["keys", "create", "random"]);
    let random = random.ok().trim();
    // On every path that would tell it.
    for line in ["GET /v1/usage", "GET /v9/run", "GET /sandboxes"] {
        for number in 0..4 {
            assert_eq!(ask(line, &format!("guess{number}")), 401, "{line}");
        }
    }
    for line in ["GET /v1/usage", "GET /v9/run", "GET /sandboxes"] {
        assert_eq!(ask(line, "letmein"), 401, "{line}");
    }
    // One that nobody guesses is never refused.
    assert_eq!(ask("GET /v1/usage", random), 200);
    let log = world.engine_log();
    let told = "10 requests within 60 s came from 127.0.0.1 without a right key";
    assert_eq!(log.matches(told).count(), 1, "{log}");
    assert!(!log.contains("guess3") && !log.contains("letmein"), "{log}");
    world.close();
}

#[test]
fn guesses_at_a_page_count_and_requests_without_a_key_do_not() {
    let world = with_weak_key();
    let loopback = Surface::loopback(&world);
    let ask = |line: &str, key: &str| loopback.ask(line, &[&format!("X-API-Key: {key}")], "").status;
    for _ in 0..12 {
        assert_eq!(loopback.ask("GET /v1/usage", &[], "").status, 401);
    }
    assert_eq!(ask("GET /v1/usage", "letmein"), 200);
    // The page is everybody's, but an answer to the right key has the API's headers.
    for number in 0..10 {
        assert_eq!(ask("GET /", &format!("guess{number}")), 200);
    }
    assert_eq!(ask("GET /v1/usage", "letmein"), 401);
    world.close();
}

#[test]
fn guesses_of_visitors_count() {
    let world = with_weak_key();
    let loopback = Surface::loopback(&world);
    let place = ["E2b-Sandbox-Id: none", "E2b-Sandbox-Port: 8000"];
    for number in 0..10 {
        let key = format!("X-API-Key: guess{number}");
        assert!(loopback.ask("GET /", &[place[0], place[1], &key], "").status >= 400);
    }
    let right = ["X-API-Key: letmein"];
    assert_eq!(loopback.ask("GET /v1/usage", &right, "").status, 401);
    world.close();
}

/// Requests as another user: with a key to the API, with a key to the console, without a key to the API.
const OTHER_USER: &str = r#"
import http.client, json, sys
address, key = sys.argv[1:]
def ask(method, path, headers, body=None):
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()
bearer = {'Authorization': 'Bearer ' + key}
json_body = {'Content-Type': 'application/json'}
status, body = ask('POST', '/v1/run', bearer | json_body, '{"code": "print(6*7)"}')
told = [status, json.loads(body).get('stdout')]
told += [ask('POST', '/v1/run', json_body, '{"code": "1"}')[0]]
for path in ['/', '/api/approvals', '/session', '/console.css']:
    told += [ask('GET', path, bearer)[0]]
print(json.dumps(told), flush=True)
"#;

#[test]
fn another_user_needs_a_key_and_has_no_console() {
    if own_uid() != 0 {
        return skip("only root can be another user, too").unwrap_or_default();
    }
    let world = world();
    let address = loopback_address(&world);
    let mut other = world.dir.program("/usr/bin/python3");
    other
        .current_dir("/")
        .args(["-c", OTHER_USER, &address.to_string(), KEY]);
    let mut other = other.uid(65_534).stdout(Stdio::piped()).spawn().unwrap();
    world.watch(other.id());
    let mut told = String::new();
    BufReader::new(other.stdout.take().unwrap())
        .read_line(&mut told)
        .unwrap();
    assert_eq!(told.trim(), r#"[200, "42\n", 401, 403, 403, 403, 403]"#);
    other.wait().unwrap();
    world.close();
}

#[test]
fn a_program_reaches_no_listener() {
    let world = world();
    let address = loopback_address(&world);
    let code = format!(
        "import socket\ntry:\n    socket.create_connection(('{}', {}), 5)\n    print('connected')\nexcept OSError as error:\n    print(error.errno)",
        address.ip(),
        address.port()
    );
    // From outside the same program connects.
    let mut outside = world.dir.program("/usr/bin/python3");
    let outside = outside.args(["-c", &code]).output().unwrap();
    assert_eq!(outside.stdout, b"connected\n");
    // EACCES: the filter refuses the socket.
    let inside = world.json(["-c", &code]);
    assert_eq!(inside.stdout(), "13\n", "{inside:?}");
    let over_http = Surface::socket(&world).ask(
        "POST /v1/run",
        &[],
        &serde_json::json!({ "code": code }).to_string(),
    );
    assert_eq!(over_http.json()["stdout"], inside.stdout());
    world.close();
}
