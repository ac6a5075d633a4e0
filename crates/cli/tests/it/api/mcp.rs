//! `/mcp`, message by message.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use super::keys::create;
use super::run::lives;
use super::{Connection, Reply, Surface, world};
use crate::support::eventually;
use crate::world::World;

const ACCEPT: &str = "Accept: application/json, text/event-stream";

/// A client of `/mcp` with a session.
struct Client {
    surface: Surface,
    credential: String,
    session: String,
}

fn message(id: u32, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn greeting() -> String {
    let about = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    });
    message(1, "initialize", &about)
}

fn program(id: u32, code: &str) -> String {
    let arguments = json!({"code": code, "language": "bash", "timeout": 50});
    message(
        id,
        "tools/call",
        &json!({"name": "run_code", "arguments": arguments}),
    )
}

/// Returns a program that runs until it is killed, with a mark by which its processes are known.
fn lasting(mark: &str) -> (String, String) {
    let mark = format!("rf-mcp-{mark}-{}", std::process::id());
    let code = format!("echo begun; exec -a {mark} sleep 1000");
    (program(7, &code), mark)
}

impl Client {
    fn begin(surface: Surface, credential: &str) -> Self {
        let reply = surface.ask("POST /mcp", &[ACCEPT, credential], &greeting());
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(
            reply.json()["result"]["protocolVersion"],
            "2025-06-18",
            "{reply:?}"
        );
        let id = reply
            .head
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "));
        let session = format!("Mcp-Session-Id: {}", id.unwrap());
        assert_eq!(session.len(), 16 + 64, "{reply:?}");
        let client = Self {
            surface,
            credential: credential.to_owned(),
            session,
        };
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let reply = client.post(&ready.to_string());
        assert_eq!((reply.status, reply.body.as_str()), (202, ""), "{reply:?}");
        client
    }

    fn headers(&self) -> [&str; 4] {
        [
            ACCEPT,
            &self.credential,
            &self.session,
            "MCP-Protocol-Version: 2025-06-18",
        ]
    }

    fn post(&self, message: &str) -> Reply {
        self.surface.ask("POST /mcp", &self.headers(), message)
    }

    fn send(&self, line: &str, message: &str) -> Box<dyn Connection> {
        self.surface.send(line, &self.headers(), message)
    }

    /// Sends a request with other headers.
    fn with(&self, line: &str, headers: &[&str], body: &str) -> Reply {
        self.surface.ask(line, headers, body)
    }
}

/// Returns the last message of an answer of events.
fn last(reply: &Reply) -> Value {
    assert!(
        reply.head.contains("content-type: text/event-stream"),
        "{reply:?}"
    );
    let mut lines = reply.body.lines();
    let data = lines.rfind(|line| line.starts_with("data: ")).unwrap();
    serde_json::from_str(&data["data: ".len()..]).unwrap()
}

fn bearer(world: &World, rights: &str) -> (String, String) {
    let (key, made) = create(world, &["--rights", rights]);
    let id = made["id"].as_str().unwrap().to_owned();
    (format!("Authorization: Bearer {key}"), id)
}

#[test]
fn every_rule_of_the_transport_has_its_status() {
    let world = world();
    let (credential, _) = bearer(&world, "tools");
    let client = Client::begin(Surface::loopback(&world), &credential);
    let key = credential.as_str();
    let list = message(2, "tools/list", &json!({}));
    let Client { session, .. } = &client;
    let unknown = format!("Mcp-Session-Id: {}", "0".repeat(64));
    let (json, sse) = ("Accept: application/json", "Accept: text/event-stream");
    let check = |line: &str, headers: &[&str], body: &str, status: u16, kind: &str| {
        client.with(line, headers, body).refused(status, kind);
    };
    check("POST /mcp", &[key, session], &list, 406, "invalid_arguments");
    check(
        "POST /mcp",
        &[key, session, json],
        &list,
        406,
        "invalid_arguments",
    );
    check("POST /mcp", &[key, session, sse], &list, 406, "invalid_arguments");
    check("GET /mcp", &[key, session, json], "", 406, "invalid_arguments");
    check("POST /mcp", &[key, ACCEPT], &list, 400, "invalid_arguments");
    check("GET /mcp", &[key, sse], "", 400, "invalid_arguments");
    check("DELETE /mcp", &[key], "", 400, "invalid_arguments");
    check("POST /mcp", &[key, ACCEPT, &unknown], &list, 404, "not_found");
    check("GET /mcp", &[key, sse, &unknown], "", 404, "not_found");
    check("DELETE /mcp", &[key, &unknown], "", 404, "not_found");
    check("PUT /mcp", &[key, ACCEPT], &list, 405, "method_not_allowed");
    for version in ["2026-07-28", "1999-01-01", ""] {
        let version = format!("MCP-Protocol-Version: {version}");
        let headers = [key, ACCEPT, session, &version];
        check("POST /mcp", &headers, &list, 400, "invalid_arguments");
    }
    let text = [key, ACCEPT, session, "Content-Type: text/plain"];
    check("POST /mcp", &text, &list, 415, "invalid_arguments");
    for wrong in [
        "",
        "no JSON",
        "[]",
        "{}",
        &format!("[{list}]"),
        "{\"jsonrpc\":\"1.0\"}",
    ] {
        check(
            "POST /mcp",
            &[key, ACCEPT, session],
            wrong,
            400,
            "invalid_arguments",
        );
    }
    check(
        "POST /mcp",
        &[key, ACCEPT, session],
        &greeting(),
        400,
        "invalid_arguments",
    );
    let incomplete = message(1, "initialize", &json!({"protocolVersion": "2025-06-18"}));
    check("POST /mcp", &[key, ACCEPT], &incomplete, 400, "invalid_arguments");
    let large = format!("Content-Length: {}", (16 << 20) + 1);
    check(
        "POST /mcp",
        &[key, ACCEPT, session, &large],
        "",
        413,
        "limit_exceeded",
    );
    // The session has survived all of it; without a version it is served, too.
    let reply = client.with("POST /mcp", &[key, "Accept: */*", session], &list);
    assert!(reply.head.contains("content-type: application/json"), "{reply:?}");
    assert!(reply.json()["result"]["tools"].as_array().unwrap().len() > 1);
    let answered = last(&client.post(&program(3, "echo $((6 * 7))")));
    assert_eq!(answered["result"]["structuredContent"]["stdout"], "42\n");
    let reply = client.with("DELETE /mcp", &[key, session], "");
    assert_eq!((reply.status, reply.body.as_str()), (200, "{}"), "{reply:?}");
    client.post(&list).refused(404, "not_found");
    world.close();
}

#[test]
fn what_a_session_keeps_and_repeats_is_small() {
    let world = world();
    let (credential, _) = bearer(&world, "tools");
    let client = Client::begin(Surface::loopback(&world), &credential);
    let (key, session) = (credential.as_str(), client.session.as_str());
    let check = |headers: &[&str], body: &str, status: u16, kind: &str| {
        client.with("POST /mcp", headers, body).refused(status, kind);
    };
    let experimental = json!({"protocolVersion": "2025-06-18", "capabilities": {"experimental": {"a": {"b": "x".repeat(20_000)}}},
        "clientInfo": {"name": "by hand", "version": "1"}});
    let padded = message(1, "initialize", &experimental);
    check(&[key, ACCEPT], &padded, 413, "limit_exceeded");
    let long = "x".repeat(300);
    for repeated in [
        json!({"jsonrpc": "2.0", "id": long, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": {"_meta": {"progressToken": long}}}),
    ] {
        let headers = [key, ACCEPT, session];
        check(&headers, &repeated.to_string(), 400, "invalid_arguments");
    }
    client.post(&message(5, "tools/list", &json!({}))).json();
    world.close();
}

#[test]
fn a_session_is_its_keys_and_no_pages() {
    let world = world();
    let (credential, _) = bearer(&world, "tools");
    let (other, _) = bearer(&world, "tools,run");
    let (run, _) = bearer(&world, "run,sandboxes");
    let client = Client::begin(Surface::loopback(&world), &credential);
    let list = message(2, "tools/list", &json!({}));
    let session = client.session.as_str();
    for (line, body) in [
        ("POST /mcp", list.as_str()),
        ("GET /mcp", ""),
        ("DELETE /mcp", ""),
    ] {
        let ask = |more: &[&str]| client.with(line, &[&[ACCEPT, session], more].concat(), body);
        ask(&[&other]).refused(404, "not_found");
        ask(&[&run]).refused(403, "permission_denied");
        ask(&[]).refused(401, "unauthenticated");
        ask(&[&credential, "Host: evil.example"]).refused(421, "permission_denied");
        for page in [
            "Origin: http://evil.example",
            "Origin: null",
            "Sec-Fetch-Site: cross-site",
        ] {
            ask(&[&credential, page]).refused(403, "permission_denied");
        }
        // The owner of the socket is another client, too.
        let owner = Surface::socket(&world).ask(line, &[ACCEPT, session], body);
        owner.refused(404, "not_found");
    }
    assert_eq!(client.post(&list).status, 200);
    world.close();
}

#[test]
fn the_socket_needs_no_key_and_opens_no_tool_of_the_host() {
    let world = world();
    let client = Client::begin(Surface::socket(&world), "X-Nothing: 1");
    let closed = [
        ("host_exec", json!({"command": "id"})),
        ("shell", json!({"command": "id"})),
        ("file_read", json!({"path": "a"})),
        ("file_write", json!({"path": "a", "content": "x"})),
    ];
    for (id, (tool, arguments)) in closed.into_iter().enumerate() {
        let call = json!({"name": tool, "arguments": arguments});
        let answered = last(&client.post(&message(id as u32, "tools/call", &call)));
        let why = answered["error"]["message"].as_str().unwrap_or_default();
        assert!(why.contains("may not be used here"), "{answered}");
        let data = &answered["error"]["data"];
        assert_eq!(data["type"], "permission_denied", "{answered}");
        let hint = data["hint"].as_str().unwrap();
        assert!(
            hint.contains("closed to keys") && !hint.contains("denied_tools"),
            "{hint}"
        );
    }
    let call = json!({"name": "no_such_tool", "arguments": {}});
    let data = last(&client.post(&message(8, "tools/call", &call)))["error"]["data"].take();
    assert_eq!(data["type"], "not_found");
    assert!(
        data["hint"].as_str().unwrap().starts_with("the tools are"),
        "{data}"
    );
    assert_eq!(
        client.post(&message(9, "no/such", &json!({}))).json()["error"]["code"],
        -32601
    );
    world.close();
}

/// Clients over HTTP have no tool that reads files, and no `/output` that lasts.
#[test]
fn tools_are_described_as_they_are_here() {
    let world = world();
    let (credential, _) = bearer(&world, "tools");
    let client = Client::begin(Surface::loopback(&world), &credential);
    let reply = client.post(&message(2, "tools/list", &json!({})));
    let listed = reply.json()["result"]["tools"].clone();
    let description = |name: &str| {
        let found = listed
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == name);
        found.unwrap()["description"].as_str().unwrap().to_owned()
    };
    for tool in listed.as_array().unwrap() {
        let text = tool["description"].as_str().unwrap();
        for absent in ["file_", "file tools", "/output"] {
            assert!(!text.contains(absent), "{tool}");
        }
    }
    let told = description("run_code");
    assert!(
        told.contains("`session`") && told.contains("end with it"),
        "{told}"
    );
    // It is so.
    let run = |id: u32, arguments: Value| {
        let call = json!({"name": "run_code", "arguments": arguments});
        last(&client.post(&message(id, "tools/call", &call)))["result"]["structuredContent"].clone()
    };
    let (write, read) = ("open('a', 'w').write('kept')", "print(open('a').read())");
    for (id, session, expected) in [(3, json!("s"), "kept\n"), (5, json!(null), "")] {
        run(id, json!({"code": write, "session": session}));
        let told = run(id + 1, json!({"code": read, "session": session}));
        assert_eq!(told["stdout"], expected, "{told}");
    }
    let files = json!({"code": read, "files": {"a": "given"}});
    assert_eq!(run(7, files)["stdout"], "given\n");
    world.close();
}

#[test]
fn a_call_ends_with_its_stream_its_cancellation_and_its_session() {
    let world = world();
    let (credential, _) = bearer(&world, "tools");
    let client = Client::begin(Surface::loopback(&world), &credential);
    let (call, mark) = lasting("stream");
    let stream = client.send("POST /mcp", &call);
    eventually("the program runs", || lives(&mark));
    client.post(&call).refused(409, "conflict");
    drop(stream);
    // The id is free again once the server has seen that, and has the answer of its new request.
    let again = loop {
        let reply = client.post(&program(7, "echo again"));
        if reply.status != 409 {
            break reply;
        }
    };
    assert_eq!(last(&again)["result"]["structuredContent"]["stdout"], "again\n");
    eventually("the program is killed", || !lives(&mark));
    let (call, mark) = lasting("cancelled");
    let mut stream = client.send("POST /mcp", &call);
    eventually("the program runs", || lives(&mark));
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(client.post(&cancel.to_string()).status, 202);
    let reply = super::reply(&mut *stream);
    assert!(
        reply.status == 200 && !reply.body.contains("\"id\":7"),
        "{reply:?}"
    );
    eventually("the program is killed", || !lives(&mark));
    let (call, mark) = lasting("ended");
    let mut stream = client.send("POST /mcp", &call);
    eventually("the program runs", || lives(&mark));
    assert_eq!(client.with("DELETE /mcp", &client.headers(), "").status, 200);
    assert_eq!(super::reply(&mut *stream).status, 200);
    eventually("the program is killed", || !lives(&mark));
    world.close();
}

#[test]
fn a_revoked_key_ends_its_streams_and_its_programs() {
    let world = world();
    let (credential, id) = bearer(&world, "tools");
    let (other, _) = bearer(&world, "tools");
    let client = Client::begin(Surface::loopback(&world), &credential);
    let kept = Client::begin(Surface::loopback(&world), &other);
    let (call, mark) = lasting("revoked");
    let mut streams = [client.send("GET /mcp", ""), client.send("POST /mcp", &call)];
    let mut standing = BufReader::new(kept.send("GET /mcp", "")).lines();
    assert_eq!(standing.next().unwrap().unwrap(), "HTTP/1.1 200 OK");
    eventually("the program runs", || lives(&mark));
    world.dir.run(["keys", "revoke", &id]).ok();
    // To their ends, without another request.
    for stream in &mut streams {
        assert_eq!(super::reply(&mut **stream).status, 200);
    }
    eventually("the program is killed", || !lives(&mark));
    client.post(&call).refused(401, "unauthenticated");
    assert_eq!(
        kept.post(&message(2, "ping", &json!({}))).json()["result"],
        json!({})
    );
    world.close();
}

#[test]
fn a_key_has_sixteen_sessions_of_which_one_that_idles_makes_room() {
    let world = world();
    let (credential, _) = bearer(&world, "tools");
    let (other, _) = bearer(&world, "tools");
    let ping = message(2, "ping", &json!({}));
    let others = Client::begin(Surface::loopback(&world), &other);
    let begin = || Client::begin(Surface::loopback(&world), &credential);
    let sessions: Vec<Client> = (0..16).map(|_| begin()).collect();
    // The one that was not used for the longest time makes room, unless it has a stream.
    let held = sessions[0].send("GET /mcp", "");
    let mut held = BufReader::new(held).lines();
    assert_eq!(held.next().unwrap().unwrap(), "HTTP/1.1 200 OK");
    let new = begin();
    sessions[1].post(&ping).refused(404, "not_found");
    for alive in [&sessions[0], &sessions[2], &new, &others] {
        assert_eq!(alive.post(&ping).status, 200);
    }
    let unused = sessions[2..].iter().chain([&new]);
    let streams: Vec<_> = unused.map(|client| client.send("GET /mcp", "")).collect();
    let mut streams: Vec<_> = streams
        .into_iter()
        .map(|stream| BufReader::new(stream).lines())
        .collect();
    for stream in &mut streams {
        assert_eq!(stream.next().unwrap().unwrap(), "HTTP/1.1 200 OK");
    }
    // All have a stream and none a request: a client that never ends its sessions is not shut out by them.
    let newest = begin();
    sessions[3].post(&ping).refused(404, "not_found");
    assert!(streams[1].all(|line| line.is_ok()), "its stream ends");
    // A session with a request stays.
    let (call, mark) = lasting("sixteen");
    let alive = [0, 2].into_iter().chain(4..16).map(|at| &sessions[at]);
    let alive: Vec<&Client> = alive.chain([&new, &newest]).collect();
    let calls: Vec<_> = alive
        .iter()
        .map(|client| client.send("POST /mcp", &call))
        .collect();
    let socket = Surface::socket(&world);
    let figure = |name: &str| -> u32 {
        let text = socket.ask("GET /metrics", &[], "").body;
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().trim().parse().unwrap()
    };
    eventually("all calls are at work or wait", || {
        figure("ringfence_calls_at_work") + figure("ringfence_calls_waiting") == 16
    });
    let reply = new.with("POST /mcp", &[ACCEPT, &credential], &greeting());
    reply.refused(429, "busy");
    assert!(reply.head.contains("retry-after: "), "{reply:?}");
    drop(calls);
    eventually("the programs are killed", || !lives(&mark));
    assert_eq!(others.post(&ping).status, 200);
    world.close();
}
