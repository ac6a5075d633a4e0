//! A key that is revoked ends everything that is open in its name, and nothing of another key.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Value, json};

use super::keys::create;
use super::run::lives;
use super::{Connection, Reply, Surface, world};
use crate::support::eventually;
use crate::world::World;

/// A client with a key of its own, and a sandbox of its name.
struct Client {
    surface: Surface,
    name: &'static str,
    id: String,
    bearer: String,
}

/// An answer under way, of which something has arrived.
struct Open {
    what: &'static str,
    reader: BufReader<Box<dyn Connection>>,
    /// Argument of a process that ends with it.
    mark: String,
}

/// A request.
struct Sent<'a> {
    line: &'a str,
    headers: &'a [&'a str],
    body: &'a str,
}

fn sent<'a>(line: &'a str, headers: &'a [&'a str], body: &'a str) -> Sent<'a> {
    Sent { line, headers, body }
}

const EVENTS: &str = "Accept: text/event-stream";

/// Answers with capitals, and ends with the first connection that has sent something.
const UPPER: &str = r#"
import socket, sys
server = socket.create_server(("127.0.0.1", 8001))
while True:
    connection, _ = server.accept()
    talked = False
    while data := connection.recv(65536):
        talked = True
        connection.sendall(data.upper())
    connection.close()
    if talked:
        sys.exit()
"#;

fn mark(name: &str, what: &str) -> String {
    format!("rf-revoked-{name}-{what}-{}.", std::process::id())
}

/// Returns a shell line that says that it has begun, and a mark by which its process is known.
fn lasting(name: &str, what: &str) -> (String, String) {
    let mark = mark(name, what);
    (format!("echo begun; exec -a {mark} sleep 1000"), mark)
}

impl Client {
    fn new(world: &World, name: &'static str) -> Self {
        let (key, made) = create(world, &["--rights", "run,sandboxes,tools"]);
        let client = Self {
            surface: Surface::loopback(world),
            name,
            id: made["id"].as_str().unwrap().to_owned(),
            bearer: format!("Authorization: Bearer {key}"),
        };
        let new = json!({"name": name, "ports": true}).to_string();
        let created = client.ask("POST /v1/sandboxes", &new);
        assert_eq!(created.status, 200, "{created:?}");
        client
    }

    fn ask(&self, line: &str, body: &str) -> Reply {
        self.surface.ask(line, &[&self.bearer], body)
    }

    fn path(&self, method: &str, rest: &str) -> String {
        format!("{method} /v1/sandboxes/{}/{rest}", self.name)
    }

    fn send(&self, line: &str, headers: &[&str], body: &str) -> Box<dyn Connection> {
        self.surface
            .send(line, &[&[self.bearer.as_str()], headers].concat(), body)
    }

    /// Opens an answer, and waits until `first` arrives.
    fn open(&self, what: &'static str, sent: Sent<'_>, first: &str, mark: String) -> Open {
        let Sent { line, headers, body } = sent;
        let mut open = Open {
            what,
            reader: BufReader::new(self.send(line, headers, body)),
            mark,
        };
        open.wait_for(first);
        open
    }

    /// Opens a stream of a program's events, of each route that has such.
    fn programs(&self) -> Vec<Open> {
        let exec = |what: &'static str, more: Value| {
            let (line, mark) = lasting(self.name, what);
            let mut body = more;
            body["command"] = line.into();
            let path = self.path("POST", "exec");
            self.open(what, sent(&path, &[EVENTS], &body.to_string()), "begun", mark)
        };
        let (line, run_mark) = lasting(self.name, "run");
        let run = json!({"code": line, "language": "bash"}).to_string();
        let (line, batch_mark) = lasting(self.name, "batch");
        let runs = json!({"runs": [{"code": "print(1)"}, {"code": line, "language": "bash"}]}).to_string();
        let (line, context_mark) = lasting(self.name, "context");
        let code = format!("import subprocess\nsubprocess.run(['bash', '-c', {line:?}])");
        let context = json!({ "code": code }).to_string();
        let run_path = self.path("POST", "run");
        vec![
            self.open("run", sent("POST /v1/run", &[EVENTS], &run), "begun", run_mark),
            self.open(
                "batch",
                sent("POST /v1/batch", &[], &runs),
                "\"index\":0",
                batch_mark,
            ),
            self.open(
                "context",
                sent(&run_path, &[EVENTS], &context),
                "begun",
                context_mark,
            ),
            exec("exec", json!({})),
            exec("terminal", json!({"terminal": {"columns": 80, "rows": 25}})),
        ]
    }

    /// Starts a process in the sandbox, and returns its number.
    fn start(&self, process: &Value) -> u64 {
        let reply = self.ask(&self.path("POST", "processes"), &process.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["pid"].as_u64().unwrap()
    }

    /// Connects to a server in the sandbox.
    fn port(&self) -> Open {
        let mark = mark(self.name, "port");
        let command = json!(["python3", "-c", UPPER, mark]);
        self.start(&json!({ "command": command }));
        let path = self.path("POST", "ports/8001");
        let headers = ["Content-Type: application/octet-stream", "Content-Length: 1000"];
        eventually("the server listens", || {
            let bytes = &headers[..1];
            let all = [&[self.bearer.as_str()], bytes].concat();
            self.surface.ask(&path, &all, "").status == 200
        });
        self.open("port", sent(&path, &headers, "hello\n"), "HELLO", mark)
    }

    /// Follows the life of the sandbox, or of all.
    fn life(&self, line: &str) -> Open {
        self.open("life", sent(line, &[], ""), "ready", String::new())
    }

    /// Watches the files of the sandbox.
    fn watch(&self) -> Open {
        let path = self.path("GET", "files/watch?path=/tmp");
        let mut open = self.open("watch", sent(&path, &[], ""), "text/event-stream", String::new());
        let touch = json!({"command": "touch /tmp/seen"}).to_string();
        assert_eq!(self.ask(&self.path("POST", "exec"), &touch).status, 200);
        open.wait_for("seen");
        open
    }
}

impl Open {
    /// Reads until a line has this part.
    #[track_caller]
    fn wait_for(&mut self, part: &str) {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(part) {
            let read = self.reader.read_until(b'\n', &mut seen).unwrap();
            let seen = String::from_utf8_lossy(&seen);
            assert!(read > 0, "{}: ended before {part}: {seen}", self.what);
        }
    }

    /// Reads to the end, which may be a reset. It is cut off, and not dressed as an end.
    #[track_caller]
    fn assert_cut_off(mut self) {
        let mut rest = Vec::new();
        let _ = self.reader.read_to_end(&mut rest);
        let rest = String::from_utf8_lossy(&rest);
        let has_end = rest.contains("event: result") || rest.contains("event: end");
        assert!(!has_end, "{}: {rest}", self.what);
    }
}

fn revoke(world: &World, client: &Client) {
    world.dir.run(["keys", "revoke", &client.id]).ok();
}

#[test]
fn every_stream_of_a_revoked_key_ends_and_none_of_another() {
    let world = world();
    let (stolen, kept) = (Client::new(&world, "stolen"), Client::new(&world, "kept"));
    let mut streams = stolen.programs();
    streams.extend([stolen.port(), stolen.watch()]);
    streams.push(stolen.life(&stolen.path("GET", "events")));
    streams.push(stolen.life("GET /v1/sandbox-events"));
    let (line, background) = lasting("stolen", "background");
    let pid = stolen.start(&json!({ "command": line }));
    let output = stolen.path("GET", &format!("processes/{pid}/output"));
    let output = stolen.open("output", sent(&output, &[], ""), "begun", String::new());
    let mut others = kept.programs();
    let wait = json!({"command": "echo begun; until [ -e go ]; do sleep 0.05; done; echo after"});
    let wait = wait.to_string();
    let path = kept.path("POST", "exec");
    others.push(kept.open(
        "waiting",
        sent(&path, &[EVENTS], &wait),
        "begun",
        mark("kept", "exec"),
    ));
    for open in streams.iter().chain(&others) {
        eventually(open.what, || open.mark.is_empty() || lives(&open.mark));
    }

    revoke(&world, &stolen);
    for mut open in streams {
        let (what, mark) = (open.what, std::mem::take(&mut open.mark));
        open.assert_cut_off();
        eventually(what, || mark.is_empty() || !lives(&mark));
    }
    // What was started to run without a stream does, until its sandbox ends.
    output.assert_cut_off();
    assert!(lives(&background));
    for line in ["POST /v1/run", "GET /v1/sandboxes", "GET /v1/tools"] {
        stolen
            .ask(line, r#"{"code": "1"}"#)
            .refused(401, "unauthenticated");
    }

    assert!(others.iter().all(|open| lives(&open.mark)));
    let go = json!({"command": "touch go"}).to_string();
    assert_eq!(kept.ask(&path, &go).status, 200);
    others.pop().unwrap().wait_for("after");
    world.close();
}

#[test]
fn requests_of_a_revoked_key_are_answered_with_401() {
    let world = world();
    let stolen = Client::new(&world, "stolen");
    let program = |what: &str| {
        let (line, mark) = lasting("plain", what);
        (json!({"code": line, "language": "bash"}).to_string(), mark)
    };
    let (run, run_mark) = program("run");
    let (tool, tool_mark) = program("tool");
    let (line, exec_mark) = lasting("plain", "exec");
    let exec = json!({ "command": line }).to_string();
    let pid = stolen.start(&json!({"command": "cat", "stdin": true}));
    let stdin = stolen.path("POST", &format!("processes/{pid}/stdin"));
    let half = ["Content-Type: application/octet-stream", "Content-Length: 1000"];
    // The answer to a request with an idempotency key would be kept: it goes on without its client.
    let (left, left_mark) = program("left");
    let (repeated, repeated_mark) = program("repeated");
    drop(stolen.send("POST /v1/run", &["Idempotency-Key: left"], &left));
    let mut asked = [
        stolen.send("POST /v1/run", &[], &run),
        stolen.send("POST /v1/run", &["Idempotency-Key: repeated"], &repeated),
        stolen.send("POST /v1/tools/run_code", &[], &tool),
        stolen.send(&stolen.path("POST", "exec"), &[], &exec),
        stolen.send(&stdin, &half, "half"),
    ];
    let marks = [run_mark, repeated_mark, left_mark, tool_mark, exec_mark];
    for mark in &marks {
        eventually("it runs", || lives(mark));
    }
    revoke(&world, &stolen);
    for connection in &mut asked {
        super::reply(&mut **connection).refused(401, "unauthenticated");
    }
    for mark in &marks {
        eventually("it is killed", || !lives(mark));
    }
    world.close();
}

#[test]
fn a_client_that_reads_nothing_assert_cut_off_too() {
    let world = world();
    let stolen = Client::new(&world, "stolen");
    let mark = mark("stalled", "run");
    // More than every buffer on the way holds.
    let code = format!("exec -a {mark} yes");
    let run = json!({"code": code, "language": "bash", "timeout": 1000}).to_string();
    let mut stalled = stolen.open("stalled", sent("POST /v1/run", &[EVENTS], &run), "stdout", mark);
    let mark = std::mem::take(&mut stalled.mark);
    assert!(lives(&mark));
    revoke(&world, &stolen);
    eventually("it is killed", || !lives(&mark));
    stalled.assert_cut_off();
    world.close();
}

#[test]
fn a_stream_ends_when_its_key_expires() {
    let world = world();
    let expiring = Client::new(&world, "expiring");
    let (line, mark) = lasting("expiring", "run");
    let run = json!({"code": line, "language": "bash"}).to_string();
    let open = expiring.open(
        "run",
        sent("POST /v1/run", &[EVENTS], &run),
        "begun",
        String::new(),
    );
    let file = format!("state/ringfence/api-keys/{}.json", expiring.id);
    let text = std::fs::read_to_string(world.dir.path(&file)).unwrap();
    let mut stored: Value = serde_json::from_str(&text).unwrap();
    stored["expires"] = 1.into();
    let whole = world.dir.write(&format!("{file}.other"), stored.to_string());
    std::fs::rename(whole, world.dir.path(&file)).unwrap();
    open.assert_cut_off();
    eventually("it is killed", || !lives(&mark));
    expiring.ask("POST /v1/run", &run).refused(401, "unauthenticated");
    world.close();
}
