//! Misbehaving MCP servers over HTTP: each is bounded and reported, and the next call works.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::mcp::Client;
use crate::network::Server as Stranger;
use crate::support::eventually;
use crate::world::{Run, World};

/// A server whose tools are named after its misbehaviour.
struct Server(Arc<Shared>);

struct Shared {
    port: u16,
    /// The server that redirects lead to.
    stranger: Stranger,
    /// Number of started sessions.
    sessions: AtomicUsize,
    /// Number of streams opened for server-initiated messages.
    listened: AtomicUsize,
    /// The request to answer on another stream.
    postponed: Mutex<Value>,
    /// The session ids of requests, except those that start one.
    named: Mutex<Vec<String>>,
}

/// The relevant parts of a request.
struct Request {
    method: String,
    session: String,
    last: Option<String>,
    body: Value,
}

const TOOLS: &[&str] = &[
    "echo",
    "stay",
    "huge",
    "long_event",
    "flood",
    "deep",
    "elsewhere",
    "here",
    "page",
    "stranger",
    "cut",
    "short",
    "folded",
    "renamed",
    "squeezed",
    "many_headers",
    "postpone",
    "expire",
    "drip",
    "endless",
    "mute",
    "slow_body",
];

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Arc::new(Shared {
            port: listener.local_addr().unwrap().port(),
            stranger: Stranger::new(),
            sessions: AtomicUsize::new(0),
            listened: AtomicUsize::new(0),
            postponed: Mutex::default(),
            named: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), Arc::clone(&serving));
                // A client disconnects at its limit, which ends the response.
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Self(shared)
    }

    fn configure(&self, world: &World, rules: &str) {
        let url = format!("http://127.0.0.1:{}/mcp", self.0.port);
        let config =
            format!("[skills]\nstart_timeout = '60s'\n{rules}\n[skills.servers.web]\nurl = '{url}'\n");
        world.dir.write("config/ringfence/ringfence.toml", config);
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let request = read(&mut stream)?;
        if request.body["method"] != "initialize" {
            self.named.lock().unwrap().push(request.session.clone());
        }
        match request.method.as_str() {
            "GET" => self.listen(stream, &request),
            "POST" => self.answer(stream, &request),
            _ => write(&mut stream, "HTTP/1.1 200 OK\r\n\r\n"),
        }
    }

    fn answer(&self, mut stream: TcpStream, request: &Request) -> Option<()> {
        let body = &request.body;
        let result = match body["method"].as_str()? {
            "initialize" => {
                let count = self.sessions.fetch_add(1, SeqCst) + 1;
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
                let text = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
                let session = format!("Mcp-Session-Id: session-{count}\r\n");
                return write(&mut stream, &whole(&session, &text));
            }
            "tools/list" => {
                let grown = (self.listened.load(SeqCst) > 1).then_some("grown");
                let tools = TOOLS.iter().copied().chain(grown);
                let tools: Vec<Value> = tools
                    .map(|name| json!({"name": name, "inputSchema": {"type": "object", "properties": {}}}))
                    .collect();
                json!({"tools": tools})
            }
            "tools/call" => return self.call(stream, body),
            _ => return write(&mut stream, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"),
        };
        let text = json!({"jsonrpc": "2.0", "id": body["id"], "result": result}).to_string();
        write(&mut stream, &whole("", &text))
    }

    fn call(&self, mut stream: TcpStream, body: &Value) -> Option<()> {
        let id = &body["id"];
        let good = answer(id);
        let to = &mut stream;
        match body["params"]["name"].as_str()? {
            "stay" => {
                write(to, &format!("{EVENTS}data: {good}\n\n"))?;
                // Waits until the client disconnects.
                to.read_to_end(&mut Vec::new()).ok().map(drop)
            }
            "huge" => {
                write(to, &head("Content-Length: 100000000\r\n"))?;
                endlessly(to, &"[1],".repeat(250_000), None)
            }
            "long_event" => {
                write(to, &format!("{EVENTS}data: "))?;
                endlessly(to, &"x".repeat(1_000_000), None)
            }
            "flood" => {
                write(to, EVENTS)?;
                endlessly(to, "data: {\"method\":\"notifications/progress\"}\n\n", None)
            }
            "deep" => write(to, &whole("", &"[".repeat(100_000))),
            "elsewhere" => redirect(to, &self.stranger.url()),
            "here" => redirect(to, &format!("http://localhost:{}/mcp", self.port)),
            "page" => write(
                to,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
            ),
            "stranger" => write(to, &whole("", &answer(&json!(987_654)))),
            "cut" => write(to, &format!("{EVENTS}data: {}", &good[..20])),
            "short" => write(to, &format!("{}{good}", head("Content-Length: 5000\r\n"))),
            "folded" => write(to, &whole("Mcp-Session-Id: a\r\n Authorization: b\r\n", &good)),
            "renamed" => write(to, &whole("Mcp-Session-Id: a b\r\n", &good)),
            "squeezed" => write(to, &whole("Content-Encoding: gzip\r\n", "\u{1f}\u{8b}")),
            "many_headers" => write(to, &whole(&"X: y\r\n".repeat(10_000), &good)),
            "postpone" => {
                *self.postponed.lock().unwrap() = id.clone();
                write(to, &format!("{EVENTS}id: 7\nretry: 1\ndata:\n\n"))
            }
            "expire" => write(to, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            "drip" => endlessly(to, "HTTP/1.1", Some("\r\nX: y")),
            "endless" => {
                write(to, EVENTS)?;
                endlessly(to, ": still here\n\n", Some(": still here\n\n"))
            }
            "mute" => to.read_to_end(&mut Vec::new()).ok().map(drop),
            "slow_body" => {
                write(to, &head("Content-Length: 5000\r\n"))?;
                endlessly(to, "[", Some(" "))
            }
            _ => write(to, &whole("", &good)),
        }
    }

    fn listen(&self, mut stream: TcpStream, request: &Request) -> Option<()> {
        if request.last.as_deref() == Some("7") {
            let answer = answer(&self.postponed.lock().unwrap());
            return write(&mut stream, &format!("{EVENTS}data: {answer}\n\n"));
        }
        match self.listened.fetch_add(1, SeqCst) {
            // Ends early, in the middle of an event.
            0 => write(&mut stream, &format!("{EVENTS}retry: 1\n\ndata: ")),
            _ => {
                let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                write(&mut stream, &format!("{EVENTS}data: {changed}\n\n"))?;
                stream.read_to_end(&mut Vec::new()).ok().map(drop)
            }
        }
    }
}

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

fn head(more: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}\r\n")
}

fn whole(more: &str, text: &str) -> String {
    head(&format!("{more}Content-Length: {}\r\n", text.len())) + text
}

fn answer(id: &Value) -> String {
    let result = json!({"content": [{"type": "text", "text": "here"}]});
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn redirect(stream: &mut TcpStream, url: &str) -> Option<()> {
    let text = format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n");
    write(stream, &text)
}

fn write(stream: &mut TcpStream, text: &str) -> Option<()> {
    stream.write_all(text.as_bytes()).ok()
}

/// Sends a text, and then continues until the client disconnects: with the same, or slowly with another.
fn endlessly(stream: &mut TcpStream, text: &str, slowly: Option<&str>) -> Option<()> {
    write(stream, text)?;
    loop {
        if slowly.is_some() {
            std::thread::park_timeout(Duration::from_millis(50));
        }
        write(stream, slowly.unwrap_or(text))?;
    }
}

fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method = line.split(' ').next()?.to_owned();
    let (mut session, mut last, mut length) = (String::new(), None, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "mcp-session-id" => session = value.to_owned(),
            "last-event-id" => last = Some(value.to_owned()),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Some(Request {
        method,
        session,
        last,
        body,
    })
}

/// Calls each tool and `echo` after it, again as long as it times out, and returns both results.
fn calls(world: &World, tools: &[&str]) -> (Vec<String>, Run) {
    let code = format!(
        "
def tried(name):
    try:
        return repr(getattr(device.web, name)())
    except Exception as error:
        return f'{{type(error).__name__}}: {{error}}'
for name in {tools:?}:
    print(tried(name))
    while (told := tried('echo')).startswith('TimeoutError'):
        pass
    print(told)
"
    );
    let run = world.json(["--servers", "--timeout", "280s", "-c", &code]);
    (run.stdout().lines().map(str::to_owned).collect(), run)
}

#[track_caller]
fn check(server: &Server, world: &World, expected: &[(&str, &str)]) {
    let names: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
    let (told, run) = calls(world, &names);
    assert_eq!(told.len(), 2 * expected.len(), "{run:#?}");
    for (told, (name, expected)) in told.chunks(2).zip(expected) {
        assert!(told[0].contains(expected), "{name}: {told:?}\n{run:#?}");
        assert_eq!(told[1], "'here'", "{name}: {told:?}\n{run:#?}");
    }
    assert_eq!(server.0.stranger.visits(), 0);
}

#[test]
fn what_a_server_says_is_bounded_and_told() {
    let world = World::here();
    let server = Server::start();
    server.configure(&world, "call_timeout = '120s'");
    let too_long = "it sent a message of more than 4194304 bytes";
    check(
        &server,
        &world,
        &[
            ("huge", too_long),
            ("long_event", too_long),
            ("flood", "it keeps sending messages that nobody asked for"),
            ("deep", "nested deeper"),
            ("elsewhere", "it answers with the status 307"),
            ("here", "it answers with the status 307"),
            ("page", "its response is not a message of the protocol"),
            ("stranger", "it gave no answer"),
            ("cut", "it gave no answer"),
            ("short", "its answer ends too soon"),
            ("folded", "it does not speak HTTP as it should"),
            ("renamed", "its session id is not a valid header value"),
            ("squeezed", "its response is not a message of the protocol"),
            ("many_headers", "it does not speak HTTP as it should"),
            ("postpone", "'here'"),
            ("expire", "it knows nothing of our session any more"),
        ],
    );
    // A new session replaces an ended one, and no other session id is accepted.
    assert_eq!(server.0.sessions.load(SeqCst), 3);
    let named = server.0.named.lock().unwrap();
    let known = |name: &String| ["session-1", "session-2", "session-3"].contains(&name.as_str());
    assert!(named.iter().all(known), "{named:?}");
    world.close();
}

#[test]
fn a_server_that_takes_its_time_has_no_more_than_a_call_has() {
    let world = World::here();
    let server = Server::start();
    server.configure(&world, "call_timeout = '2s'");
    let late = "gave no result within 2s";
    let expected = [
        ("drip", late),
        ("endless", late),
        ("mute", late),
        ("slow_body", late),
    ];
    check(&server, &world, &expected);
    world.close();
}

/// More streams than a client's maximum of concurrent exchanges.
#[test]
fn streams_that_a_server_leaves_open_hold_up_no_calls() {
    let world = World::here();
    let server = Server::start();
    server.configure(&world, "call_timeout = '120s'");
    check(&server, &world, &[("stay", "'here'"); 40]);
    assert_eq!(server.0.sessions.load(SeqCst), 1);
    world.close();
}

#[test]
fn a_stream_that_was_cut_is_opened_again() {
    let world = World::here();
    let server = Server::start();
    server.configure(&world, "");
    let mut client = Client::greeted(&world, &[]);
    eventually("the server's word has come", || {
        let found = client.call("search_skills", &json!({"query": "grown"}));
        found.to_string().contains("web.grown")
    });
    assert_eq!(server.0.sessions.load(SeqCst), 1);
    client.leave().well();
    world.close();
}
