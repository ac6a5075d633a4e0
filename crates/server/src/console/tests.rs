//! Tests of the page's data, and of polling only while a page is open.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ringfence_exec::artifact::{Keep, Store};
use ringfence_policy::{Scope, Timeout};
use ringfence_records::approval::{Chat, CommandContext, Decision, Kind, Lasting, Question, Service};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use axum::Router;

use super::Console;
use super::messages::Run;
use crate::questions::hub::Hub;
use crate::sources::Sources;
use ringfence_http::{Keys, Listener, Routes};

struct Open {
    address: SocketAddr,
    keys: Keys,
    service: Service,
    dir: TempDir,
    tasks: JoinSet<Decision>,
    _serving: JoinSet<()>,
}

impl Open {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::new().unwrap();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.address();
        let service = Service::at(dir.path());
        let hub = Arc::new(Hub::new(Sources {
            approvals: service.clone(),
            runs: Store::new(dir.path(), Keep::DEFAULT),
            audit: dir.path().join("audit"),
        }));
        let console = Console::of(address, keys.clone(), Arc::clone(&hub)).unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let routes = Routes {
                own: console.routes(),
                others: Router::new(),
            };
            tokio::select! {
                () = listener.serve(routes, std::future::pending()) => {}
                never = hub.watch() => match never {},
            }
        });
        Self {
            address,
            keys,
            service,
            dir,
            tasks: JoinSet::new(),
            _serving: serving,
        }
    }

    /// Sends a request, and returns the stream to read the response from.
    async fn send(&self, line: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            self.keys.token(),
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        BufReader::new(stream)
    }

    async fn ask(&self, line: &str, body: &str) -> (u16, Value) {
        let mut text = String::new();
        self.send(line, body)
            .await
            .read_to_string(&mut text)
            .await
            .unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn question(&mut self, text: &str, lasting: Lasting) {
        let (service, text) = (self.service.clone(), text.to_owned());
        self.tasks.spawn(async move {
            let question = Question {
                kind: Kind::Command {
                    place: CommandContext::default(),
                    reasons: vec!["it\u{202e} changes".to_owned()],
                    risk: Some(7),
                    lasting,
                },
                text,
                scope: Scope::local(),
                session: None,
                chat: Chat::local(),
                patience: Timeout::seconds(60),
            };
            service.ask(question).await.unwrap()
        });
    }

    /// Waits for a pending request, and returns it.
    async fn waiting(&self) -> Value {
        loop {
            let (_, listed) = self.ask("GET /api/approvals", "").await;
            if let Some(question) = listed["waiting"].get(0) {
                return question.clone();
            }
            tokio::task::yield_now().await;
        }
    }

    async fn answer(&self, question: &Value, body: Value) -> (u16, Value) {
        let path = format!("POST /api/approvals/{}", question["id"].as_str().unwrap());
        let (status, answer) = self.ask(&path, &body.to_string()).await;
        let kind = answer["error"]["type"].clone();
        (status, if kind.is_null() { answer } else { kind })
    }

    fn store(&self) -> bool {
        Path::new(&self.dir.path().join("approvals.db")).exists()
    }
}

#[tokio::test]
async fn a_question_is_shown_as_it_can_be_seen_and_answered_once() {
    let mut open = Open::new().await;
    open.question("rm \u{202e}a\nb", Lasting::Offered);
    let question = open.waiting().await;
    assert_eq!(
        question["text"],
        json!([{"plain": "rm "}, {"escape": "\\u{202e}"}, {"plain": "a\nb"}])
    );
    assert_eq!(
        (&question["risk"], &question["kind"], &question["reasons"]),
        (&json!(7), &json!("command"), &json!(["it\\u{202e} changes"]))
    );
    assert_eq!(question["remember"], json!(["once", "session", "always"]));
    let digest = &question["digest"];
    for (body, status, kind) in [
        (json!({"approved": true}), 400, "malformed"),
        (json!({"approved": "yes", "digest": digest}), 400, "malformed"),
        (
            json!({"approved": true, "digest": digest, "chat": "x"}),
            400,
            "malformed",
        ),
        (
            json!({"approved": true, "digest": "0".repeat(64)}),
            409,
            "other_text",
        ),
        (
            json!({"approved": true, "digest": digest, "remember": {"uses": 0}}),
            422,
            "not_remembered",
        ),
    ] {
        assert_eq!(
            open.answer(&question, body.clone()).await,
            (status, json!(kind)),
            "{body}"
        );
    }
    let yes = json!({"approved": true, "digest": digest});
    let other = json!({"id": format!("apr_{}", "0".repeat(32))});
    assert_eq!(open.answer(&other, yes.clone()).await, (404, json!("unknown")));
    assert_eq!(open.answer(&question, yes.clone()).await.0, 200);
    let decision = open.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(
        decision,
        Decision::Approved {
            by: "console".to_owned()
        }
    );
    assert_eq!(open.answer(&question, yes).await, (409, json!("late")));
    let (_, listed) = open.ask("GET /api/approvals", "").await;
    assert_eq!(listed["waiting"], json!([]));
    assert_eq!(
        (&listed["history"][0]["state"], &listed["history"][0]["by"]),
        (&json!("approved"), &json!("console"))
    );
}

#[tokio::test]
async fn a_shell_is_never_allowed_for_good_from_here_either() {
    let mut open = Open::new().await;
    open.question("bash -c x", Lasting::Never);
    let question = open.waiting().await;
    assert_eq!(question["remember"], json!(["once", "session"]));
    let always = json!({"approved": true, "digest": question["digest"], "remember": "always"});
    assert_eq!(
        open.answer(&question, always).await,
        (422, json!("not_remembered"))
    );
    let no = json!({"approved": false, "digest": question["digest"]});
    assert_eq!(open.answer(&question, no).await.0, 200);
    let by = "console".to_owned();
    assert_eq!(
        open.tasks.join_next().await.unwrap().unwrap(),
        Decision::Rejected { by }
    );
}

/// Reads the next event of this name, and returns its data.
async fn event(stream: &mut BufReader<TcpStream>, name: &str) -> Value {
    let wanted = format!("event: {name}");
    let mut named = false;
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).await.unwrap(), 0, "the stream ended");
        named = named && !line.trim().is_empty() || line.trim() == wanted;
        if let (true, Some(data)) = (named, line.strip_prefix("data: ")) {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[tokio::test]
async fn nothing_is_looked_at_until_a_page_is_open_and_then_all_is_told() {
    let mut open = Open::new().await;
    assert_eq!(open.ask("GET /", "").await.0, 200);
    assert_eq!(open.ask("GET /api/runs", "").await, (200, json!({"runs": []})));
    assert!(!open.store(), "the store was opened though nobody asked for it");

    let mut one = open.send("GET /api/events", "").await;
    let mut two = open.send("GET /api/events", "").await;
    for stream in [&mut one, &mut two] {
        assert_eq!(event(stream, "approvals").await["waiting"], json!([]));
        event(stream, "runs").await;
    }
    open.question("rm a", Lasting::Offered);
    let question = open.waiting().await;
    for stream in [&mut one, &mut two] {
        while event(stream, "approvals").await["waiting"] != json!([question["id"]]) {}
    }
    assert!(
        open.service
            .is_heard(&Chat::local(), &Scope::local())
            .await
            .unwrap()
    );
    let no = json!({"approved": false, "digest": question["digest"]});
    assert_eq!(open.answer(&question, no).await.0, 200);
    for stream in [&mut one, &mut two] {
        while event(stream, "approvals").await["waiting"] != json!([]) {}
    }
    drop((one, two));
    // The watcher has stopped before its listener is removed.
    while open
        .service
        .is_heard(&Chat::local(), &Scope::local())
        .await
        .unwrap()
    {
        tokio::task::yield_now().await;
    }
    assert!(open.store());
}

#[tokio::test]
async fn there_are_only_so_many_pages_at_once() {
    let open = Open::new().await;
    let mut streams = Vec::new();
    for _ in 0..crate::questions::hub::MAX_VIEWERS {
        let mut stream = open.send("GET /api/events", "").await;
        event(&mut stream, "approvals").await;
        streams.push(stream);
    }
    let (status, refused) = open.ask("GET /api/events", "").await;
    assert_eq!((status, &refused["error"]["type"]), (503, &json!("too_many")));
    streams.pop();
    loop {
        let mut stream = open.send("GET /api/events", "").await;
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        if line.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}

#[test]
fn a_record_is_told_with_nothing_invisible_in_it() {
    let record = json!({
        "sequence": 3, "time": "2026-11-21T22:15:00.123Z", "who": {"scope": "ann\u{202e}", "surface": "mcp"},
        "tool": "run\u{1b}[2J", "arguments": {"a": "\u{9b}x", "b": [1]}, "decision": "refused", "outcome": "failed",
        "error": "blocked", "duration_micros": 5, "attempts": ["a:1 \u{7f}"],
    });
    let run = serde_json::to_value(Run::read(&record.to_string()).unwrap()).unwrap();
    assert_eq!(
        run["arguments"],
        json!([{"plain": "a: "}, {"escape": "\\u{9b}"}, {"plain": "x\nb: [1]"}])
    );
    assert_eq!(
        (&run["tool"], &run["scope"], &run["attempts"]),
        (
            &json!("run\\u{1b}[2J"),
            &json!("ann\\u{202e}"),
            &json!(["a:1 \\u{7f}"])
        )
    );
    let count = json!({"sequence": 4, "time": "t", "refused": {"scope": "a", "count": 7, "errors": {"not_found": 7}}});
    let run = serde_json::to_value(Run::read(&count.to_string()).unwrap()).unwrap();
    assert_eq!(
        (&run["tool"], &run["decision"], &run["error"]),
        (&json!("7 uses"), &json!("refused"), &json!("not_found: 7"))
    );
    for line in ["", "[]", "x", "{\"time\":\"t\",\"repair\":{\"bytes\":7}}"] {
        assert!(Run::read(line).is_none(), "{line}");
    }
    let long = json!({"who": {}, "arguments": {"code": "y".repeat(5_000)}});
    let run = serde_json::to_value(Run::read(&long.to_string()).unwrap()).unwrap();
    let shown = run["arguments"][0]["plain"].as_str().unwrap();
    assert!(shown.ends_with('…') && shown.chars().count() == 2_001);
}
