//! The bytes of the protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{KEYED, Lab};
use crate::api::{KEY, loopback_address, world};
use crate::audit::records;

/// Returns the frames of a stream: flags and message.
fn frames(mut text: &str) -> Vec<(u8, Value)> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = text.as_bytes().split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        frames.push((head[0], serde_json::from_slice(&rest[..length]).unwrap()));
        text = &text[5 + length..];
    }
    frames
}

/// Returns the frame of a message.
fn frame(message: &Value) -> String {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    format!("\0{}{text}", std::str::from_utf8(&length).unwrap())
}

/// Connections of a key that are kept open after an answer, of the 192 that it may have.
const KEPT: usize = 96;

#[test]
fn connections_of_a_client_with_many_are_closed_after_their_answer() {
    let world = world();
    let address = loopback_address(&world);
    let ask = |stream: &mut TcpStream| {
        write!(
            stream,
            "GET /v2/sandboxes HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {KEY}\r\n\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        stream.read_exact(&mut [0; 2]).unwrap();
        head.contains("\r\nconnection: close\r\n")
    };
    let mut open = Vec::new();
    // As a client does that has had a sandbox after another, each by a name of its own.
    for number in 0..200 {
        let mut stream = TcpStream::connect(address).unwrap();
        assert_eq!(ask(&mut stream), number >= KEPT, "{number}");
        match number < KEPT {
            true => open.push(stream),
            false => assert_eq!(stream.read(&mut [0]).unwrap(), 0),
        }
    }
    // Those that were kept are answered on.
    ask(&mut open[0]);
    world.close();
}

const STREAM: &str = "Content-Type: application/connect+json";

#[test]
fn every_error_is_json_of_e2bs_shape() {
    let lab = Lab::new();
    let ask = |line: &str, headers: &[&str], body: &str| lab.surface.ask(line, headers, body);
    ask("POST /v2/sandboxes", &[], "{}").failed(401, "X-API-KEY");
    ask("POST /sandboxes", &["X-API-Key: wrong"], "{}").failed(401, "X-API-KEY");
    ask("POST /sandboxes", &[KEYED], "[").failed(400, "the body does not fit");
    ask("POST /sandboxes", &[KEYED], r#"{"templateID": "other"}"#).failed(404, "template `other`");
    ask("DELETE /sandboxes/none", &[KEYED], "").failed(404, "was not found");
    ask("PATCH /sandboxes", &[KEYED], "").failed(404, "no such route");
    for path in ["/secrets", "/v3/templates", "/volumes"] {
        ask(&format!("POST {path}"), &[KEYED], "{}").failed(501, "not supported");
    }
    let network = r#"{"templateID": "base", "allow_internet_access": true}"#;
    ask("POST /sandboxes", &[KEYED], network).failed(501, "allow_internet_access");
    let network = format!("PUT /sandboxes/{}/network", lab.id);
    for closes in [
        r#"{"denyOut": ["0.0.0.0/0"], "rules": {}}"#,
        r#"{"allow_internet_access": false}"#,
    ] {
        assert_eq!(ask(&network, &[KEYED], closes).status, 204, "{closes}");
    }
    ask(&network, &[KEYED], r#"{"allowOut": ["a.test"]}"#).failed(501, "the host `a.test` in");
    ask(&network, &[KEYED], r#"{"dnsServers": ["192.0.2.1"]}"#).failed(501, "these rules in");
    for opens in ["{}", r#"{"denyOut": ["10.0.0.0/8"]}"#] {
        ask(&network, &[KEYED], opens).failed(501, "by leaving its rules out");
    }
    let odd = r#"{"allow_internet_access": "no", "denyOut": ["0.0.0.0/0"]}"#;
    ask(&network, &[KEYED], odd).failed(400, "expected a truth value");
    let opens = r#"{"allow_internet_access": true}"#;
    ask(&network, &[KEYED], opens).failed(501, "have no network, unless the operator opens hosts");
    ask(&network, &[], "{}").failed(401, "X-API-KEY");
    ask("PUT /sandboxes/none/network", &[KEYED], "{}").failed(404, "was not found");
    // A browser's page, and a name that leads here.
    let evil = "Origin: http://evil.example";
    ask("POST /sandboxes", &[KEYED, evil], "{}").failed(403, "another site");
    ask("POST /sandboxes", &[KEYED, "Host: evil.example"], "{}").failed(403, "another host");
    let half = format!("E2b-Sandbox-Id: {}", lab.id);
    ask("GET /health", &[&half], "").failed(400, "missing header");
    lab.envd("POST /none", &[], "").failed(404, "no such route");
    // Another writing of a path would be counted and recorded as another operation.
    let start = frame(&json!({"process": {"cmd": "true"}}));
    assert_eq!(
        lab.envd("POST /process.Process/Start", &[STREAM], &start).status,
        200
    );
    for path in [
        "//process.Process/Start",
        "/process.Process//Start",
        "/process.Process/Start/",
    ] {
        lab.envd(&format!("POST {path}"), &[STREAM], &start)
            .failed(404, "no such route");
    }
    let traffic = format!("E2B-Traffic-Access-Token: {}", lab.traffic_token);
    for path in ["//execute", "/execute/"] {
        lab.ask(49_999, &format!("POST {path}"), &[&traffic], r#"{"code": "1"}"#)
            .failed(404, "no such route");
    }
    lab.envd(
        "POST /process.Process/List",
        &["Content-Type: application/proto"],
        "",
    )
    .failed(415, "application/json");
    lab.close();
}

#[test]
fn each_sandbox_is_opened_by_its_own_token() {
    let lab = Lab::new();
    let list = "POST /process.Process/List";
    assert_eq!(lab.envd(list, &[], "{}").status, 200);
    lab.ask(49_983, list, &[], "{}")
        .failed(401, "missing access token");
    lab.ask(49_983, list, &[KEYED], "{}")
        .failed(401, "missing access token");
    lab.ask(49_983, list, &["X-Access-Token: wrong"], "{}")
        .failed(401, "invalid access token");
    lab.ask(49_999, "GET /contexts", &[], "")
        .failed(401, "traffic access token");
    let traffic = format!("E2B-Traffic-Access-Token: {}", lab.traffic_token);
    assert_eq!(lab.ask(49_999, "GET /contexts", &[&traffic], "").status, 200);
    lab.ask(49_983, list, &[&traffic], "{}")
        .failed(401, "missing access token");
    assert_eq!(lab.ask(49_983, "GET /health", &[], "").status, 204);
    // By the name of the host, too.
    let host = format!("Host: 49983-{}.HOST", lab.id);
    let token = format!("X-Access-Token: {}", lab.token);
    assert_eq!(lab.surface.ask(list, &[&host, &token], "{}").status, 200);
    let killed = lab
        .surface
        .ask(&format!("DELETE /sandboxes/{}", lab.id), &[KEYED], "");
    assert_eq!(killed.status, 204);
    // Nor does it open another one that has the id as its name.
    let named = json!({"name": lab.id}).to_string();
    assert_eq!(
        lab.surface.ask("POST /v1/sandboxes", &[KEYED], &named).status,
        200
    );
    lab.envd(list, &[], "{}").failed(502, "was not found");
    lab.ask(49_983, "GET /health", &[], "")
        .failed(502, "was not found");
    lab.close();
}

/// A key pauses, copies and removes what is its own alone, and a paused sandbox opens to nobody.
#[test]
fn pauses_and_snapshots_belong_to_their_key() {
    let lab = Lab::new();
    let made = lab.world.dir.run(["keys", "create", "other"]);
    let other = format!("X-API-Key: {}", made.ok().trim());
    let ask = |line: &str, key: &str| lab.surface.ask(line, &[key], "{}");
    let path = format!("/sandboxes/{}", lab.id);
    for operation in ["pause", "snapshots", "fork"] {
        ask(&format!("POST {path}/{operation}"), &other).failed(404, "was not found");
    }
    let made = ask(&format!("POST {path}/snapshots"), KEYED);
    assert_eq!(made.status, 201, "{made:?}");
    let snapshot = made.json()["snapshotID"].as_str().unwrap().to_owned();
    let create = json!({"templateID": snapshot}).to_string();
    lab.surface
        .ask("POST /v2/sandboxes", &[&other], &create)
        .failed(404, "was not found");
    let remove = format!("DELETE /templates/{snapshot}");
    ask(&remove, &other).failed(404, "no snapshot");
    assert_eq!(ask("GET /snapshots", &other).json(), json!([]));
    assert_eq!(ask("GET /snapshots", KEYED).json(), json!([made.json()]));
    assert_eq!(ask(&remove, KEYED).status, 204);
    ask(&remove, KEYED).failed(404, "no snapshot");

    assert_eq!(ask(&format!("POST {path}/pause"), KEYED).status, 204);
    ask(&format!("POST {path}/pause"), KEYED).failed(409, "paused already");
    lab.envd("POST /process.Process/List", &[], "{}")
        .failed(502, "was not found");
    assert_eq!(ask(&format!("GET {path}"), KEYED).json()["state"], "paused");
    assert_eq!(ask(&format!("POST {path}/connect"), KEYED).status, 201);
    assert_eq!(ask(&format!("POST {path}/connect"), KEYED).status, 200);
    assert_eq!(lab.envd("POST /process.Process/List", &[], "{}").status, 200);
    let cold = json!({"templateID": "base", "autoPause": true, "autoPauseMemory": false, "autoResume": {"enabled": true}});
    lab.surface
        .ask("POST /sandboxes", &[KEYED], &cold.to_string())
        .failed(400, "resumed by `connect` alone");
    lab.close();
}

/// Keys that visitors send are the program's own where nobody can guess those of the server.
#[test]
fn keys_of_a_program_are_no_guesses() {
    let lab = Lab::new();
    let list = || lab.surface.ask("GET /sandboxes", &["X-API-Key: wrong"], "");
    for number in 0..40 {
        let key = format!("X-API-Key: guess{number}");
        assert!(lab.ask(8000, "GET /", &[&key], "").status > 500);
    }
    assert_eq!(list().status, 401);
    lab.close();
}

#[test]
fn too_many_wrong_tokens_are_told_to_wait_and_a_right_one_is_not() {
    let lab = Lab::new();
    let list = "POST /process.Process/List";
    let wrong = || lab.ask(49_983, list, &["X-Access-Token: wrong"], "{}");
    let statuses: Vec<u16> = (0..40).map(|_| wrong().status).collect();
    assert!(statuses[..30].iter().all(|status| *status == 401), "{statuses:?}");
    assert_eq!(statuses[39], 429);
    assert_eq!(lab.envd(list, &[], "{}").status, 200);
    lab.close();
}

#[test]
fn a_process_streams_its_output_and_its_end() {
    let lab = Lab::new();
    let start = |code: &str| {
        let process = json!({"cmd": "/bin/bash", "args": ["-c", code]});
        let reply = lab.envd(
            "POST /process.Process/Start",
            &[STREAM],
            &frame(&json!({"process": process, "stdin": false})),
        );
        assert_eq!(reply.status, 200);
        frames(&reply.body)
    };
    let told = start("echo hi; exit 3");
    assert!(told[0].1["event"]["start"]["pid"].is_u64(), "{told:?}");
    assert_eq!(told[1], (0, json!({"event": {"data": {"stdout": "aGkK"}}})));
    let end = json!({"exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3"});
    assert_eq!(told[2], (0, json!({"event": {"end": end}})));
    assert_eq!(told[3..], [(2, json!({}))]);
    let told = start("kill -9 $$");
    assert_eq!(told[1].1["event"]["end"]["status"], "signal: killed");
    assert_eq!(told[1].1["event"]["end"]["exitCode"], -1);
    let message = frame(&json!({"process": {"cmd": "true", "cwd": "/none"}}));
    let told = frames(&lab.envd("POST /process.Process/Start", &[STREAM], &message).body);
    assert_eq!(told[0].0, 2);
    assert_eq!(told[0].1["error"]["message"], "cwd '/none' does not exist");
    // `root:`
    let root = ["Authorization: Basic cm9vdDo="];
    let reply = lab.envd("POST /process.Process/List", &root, "{}");
    assert_eq!(
        (reply.status, &reply.json()["code"]),
        (501, &json!("unimplemented"))
    );
    lab.close();
}

#[test]
fn files_go_in_by_form_or_as_they_are_and_come_out() {
    let lab = Lab::new();
    let form =
        "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b.txt\"\r\n\r\none\r\n--b--\r\n";
    let reply = lab.envd(
        "POST /files",
        &["Content-Type: multipart/form-data; boundary=b"],
        form,
    );
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()[0]["name"], "b.txt");
    let path = reply.json()[0]["path"].as_str().unwrap().to_owned();
    let bytes = ["Content-Type: application/octet-stream"];
    assert_eq!(lab.envd("POST /files?path=c", &bytes, "two").status, 200);
    let read = lab.envd(&format!("GET /files?path={path}"), &[], "");
    assert_eq!((read.status, read.body.as_str()), (200, "one"));
    assert!(read.head.contains("content-disposition: attachment") && read.head.contains("nosniff"));
    assert_eq!(lab.envd("GET /files?path=c", &[], "").body, "two");
    lab.envd("GET /files?path=none", &[], "").failed(404, "none");
    lab.envd("GET /files?path=c&username=root", &[], "")
        .failed(501, "user `root`");
    lab.envd("POST /files?path=/etc/x", &bytes, "x").failed(403, "");
    let listed = lab.call("filesystem.Filesystem/ListDir", &json!({"path": "~", "depth": 2}));
    let names = listed.json();
    let names: Vec<&str> = names["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a", "b.txt", "c"]);
    lab.close();
}

#[test]
fn what_clients_of_e2b_do_is_recorded_without_their_tokens() {
    let lab = Lab::new();
    let message = frame(&json!({"process": {"cmd": "echo", "args": ["told"]}}));
    lab.envd("POST /process.Process/Start", &[STREAM], &message);
    lab.envd("GET /files?path=none&signature=v1_secret", &[], "");
    let token = format!("X-Access-Token: {}", lab.token);
    lab.ask(49_999, "POST /execute", &[&token], r#"{"code": "x = 'ran'"}"#);
    let records = records(&lab.world.dir);
    for (name, part, outcome) in [
        ("sandbox.create", lab.id.as_str(), "answered"),
        ("sandbox.start", "told", "answered"),
        ("sandbox.read", r#""file":"none""#, "failed"),
        ("sandbox.run", "x = 'ran'", "answered"),
    ] {
        let record = records.iter().find(|record| record["tool"] == name);
        let record = record.unwrap_or_else(|| panic!("{name} is not in {records:#?}"));
        let text = record.to_string();
        assert!(text.contains(part) && text.contains(&lab.id), "{text}");
        assert_eq!(
            (&record["outcome"], &record["who"]["surface"]),
            (&json!(outcome), &json!("http"))
        );
    }
    let told = Value::from(records).to_string();
    assert!(!told.contains(&lab.token) && !told.contains("v1_secret"));
    lab.close();
}

#[test]
fn a_server_without_sandboxes_knows_none() {
    let world = world();
    let surface = crate::api::Surface::loopback(&world);
    let named = ["E2b-Sandbox-Id: abc", "E2b-Sandbox-Port: 49983"];
    surface
        .ask("GET /health", &named, "")
        .failed(502, "was not found");
    // What is not E2B's is served as before.
    assert_eq!(surface.ask("GET /healthz", &[], "").status, 200);
    assert_eq!(surface.ask("GET /", &[], "").status, 200);
    world.close();
}

#[test]
fn lists_lifetimes_and_watchers_are_those_of_e2b() {
    let lab = Lab::new();
    let ask = |line: &str, body: &str| lab.surface.ask(line, &[KEYED], body);
    let info = ask(&format!("GET /sandboxes/{}", lab.id), "").json();
    assert_eq!(
        (&info["state"], &info["envdAccessToken"]),
        (&json!("running"), &json!(lab.token))
    );
    assert_eq!(info["allowInternetAccess"], false);
    // A connection never shortens a life, and a timeout does.
    let end = || ask(&format!("GET /sandboxes/{}", lab.id), "").json()["endAt"].clone();
    let first = end();
    let connected = ask(
        &format!("POST /v2/sandboxes/{}/connect", lab.id),
        r#"{"timeout": 1}"#,
    );
    assert_eq!(
        (connected.status, &connected.json()["sandboxID"]),
        (200, &json!(lab.id))
    );
    assert_eq!(end(), first);
    let line = format!("POST /sandboxes/{}/timeout", lab.id);
    assert_eq!(ask(&line, r#"{"timeout": 60}"#).status, 204);
    assert!(end().as_str() < first.as_str());
    // Pages.
    for _ in 0..2 {
        let body = r#"{"templateID": "base", "metadata": {"a b": "c&d"}}"#;
        assert_eq!(ask("POST /sandboxes", body).status, 201);
    }
    let page = ask("GET /v2/sandboxes?limit=2", "");
    assert_eq!(page.json().as_array().unwrap().len(), 2);
    assert!(page.head.contains("x-next-token: "), "{page:?}");
    let found = ask("GET /v2/sandboxes?metadata=a%252520b%3Dc%252526d", "").json();
    assert_eq!(found.as_array().unwrap().len(), 2, "{found}");
    assert_eq!(ask("GET /v2/sandboxes?state=paused", "").json(), json!([]));
    let after = |time: &str| ask(&format!("GET /v2/sandboxes?startedAfter={time}"), "").json();
    assert_eq!(
        after(info["startedAt"].as_str().unwrap())
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(after("9999"), json!([]));
    // A watcher.
    let watcher = lab
        .call("filesystem.Filesystem/CreateWatcher", &json!({"path": "."}))
        .json();
    let bytes = ["Content-Type: application/octet-stream"];
    assert_eq!(lab.envd("POST /files?path=seen", &bytes, "x").status, 200);
    let events = lab
        .call("filesystem.Filesystem/GetWatcherEvents", &watcher)
        .json();
    let types: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types,
        ["EVENT_TYPE_CREATE", "EVENT_TYPE_CHMOD", "EVENT_TYPE_WRITE"],
        "{events}"
    );
    assert_eq!(
        lab.call("filesystem.Filesystem/RemoveWatcher", &watcher).status,
        200
    );
    assert_eq!(
        lab.call("filesystem.Filesystem/GetWatcherEvents", &watcher)
            .status,
        404
    );
    lab.close();
}

#[test]
fn a_revoked_key_takes_its_tokens_along() {
    let world = world();
    let surface = crate::api::Surface::loopback(&world);
    let key = world.dir.run(["keys", "create", "e2b"]).ok().trim().to_owned();
    let body = r#"{"templateID": "base"}"#;
    let made = surface
        .ask("POST /v2/sandboxes", &[&format!("X-API-Key: {key}")], body)
        .json();
    let [id, token] = ["sandboxID", "envdAccessToken"].map(|name| made[name].as_str().unwrap());
    let named = format!("E2b-Sandbox-Id: {id}");
    let headers = [
        &named,
        "E2b-Sandbox-Port: 49983",
        &format!("X-Access-Token: {token}"),
    ];
    let list = || surface.ask("POST /process.Process/List", &headers, "{}");
    assert_eq!(list().status, 200);
    // Another key has sandboxes of its own.
    let line = format!("GET /sandboxes/{id}");
    surface.ask(&line, &[KEYED], "").failed(404, "was not found");
    let message = frame(&json!({"process": {"cmd": "bash", "args": ["-c", "echo begun; sleep 1000"]}}));
    let streaming = [&headers[..], &[STREAM]].concat();
    let stream = surface.send("POST /process.Process/Start", &streaming, &message);
    let mut stream = BufReader::new(stream);
    // `begun` in base64.
    let mut seen = Vec::new();
    while !seen.windows(4).any(|part| part == b"YmVn") {
        let read = stream.read_until(b'}', &mut seen).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&seen));
    }
    world.dir.run(["keys", "revoke", &key[..11]]).ok();
    // To its end, which may be a reset.
    let _ = stream.read_to_end(&mut seen);
    list().failed(401, "revoked");
    world.close();
}

#[test]
fn a_quota_holds_for_clients_of_e2b() {
    let world = world();
    let surface = crate::api::Surface::loopback(&world);
    let created = world.dir.run(["keys", "create", "e2b", "--quota-runs", "1"]);
    let key = format!("X-API-Key: {}", created.ok().trim());
    let create = || surface.ask("POST /v2/sandboxes", &[&key], r#"{"templateID": "base"}"#);
    let made = create().json();
    let [id, token] = ["sandboxID", "envdAccessToken"].map(|name| made[name].as_str().unwrap());
    let (named, token) = (
        format!("E2b-Sandbox-Id: {id}"),
        format!("X-Access-Token: {token}"),
    );
    let headers = [named.as_str(), "E2b-Sandbox-Port: 49983", &token];
    let message = frame(&json!({"process": {"cmd": "true"}}));
    let streaming = [&headers[..], &[STREAM]].concat();
    let start = || surface.ask("POST /process.Process/Start", &streaming, &message);
    assert_eq!(start().status, 200);
    for refused in [start(), create()] {
        assert!(refused.head.contains("retry-after: "), "{refused:?}");
        refused.failed(429, "1 of 1 runs today");
    }
    let list = surface.ask("POST /process.Process/List", &headers, "{}");
    assert_eq!(list.status, 200, "{list:?}");
    world.close();
}
