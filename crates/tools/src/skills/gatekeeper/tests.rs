//! Tests of the gatekeeper with a program that sends arbitrary messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfence_exec::bridge::bridge;
use ringfence_exec::runner::Bridge as _;
use ringfence_network::redact::Redactor;
use ringfence_policy::Scope;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::super::function::tests::find;
use super::super::{CallError, Function, Offer, Policy, Rules, Skill, SkillFuture, Skills};
use super::{CallInfo, Gatekeeper};
use crate::toolbox::{Approvals, Caller, Surface};
use ringfence_records::approval::{Answer, Remember, Service, Verdict};
use ringfence_records::audit::{Limits, Log};

/// A skill that returns its argument; some words are special.
#[derive(Debug, Default)]
struct Notes {
    calls: AtomicUsize,
}

impl Skill for Notes {
    fn offer(&self) -> SkillFuture<'_, Offer> {
        let functions = [
            ("Notes.find", Policy::Allow),
            ("Notes.told", Policy::Notify),
            ("Notes.asked", Policy::Ask),
        ];
        let functions = functions.map(|(path, policy)| Arc::new(find(path, policy)));
        Box::pin(std::future::ready(Offer {
            functions: functions.into(),
            problems: Vec::new(),
        }))
    }

    fn call<'a>(
        &'a self,
        _: &'a Function,
        arguments: Map<String, Value>,
    ) -> SkillFuture<'a, Result<Value, CallError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match arguments["text"].as_str().unwrap() {
                "for ever" => std::future::pending().await,
                "fail" => Err(CallError::new("limit_exceeded", "cannot open /home/ann/notes")),
                "lie" => Ok(json!(7)),
                "much" => Ok(json!(["x".repeat(2 << 20)])),
                text => Ok(json!([text])),
            }
        })
    }
}

/// A gatekeeper, the program's end of its bridge, and an audit log.
struct World {
    dir: TempDir,
    notes: Arc<Notes>,
    service: Service,
    serving: JoinSet<Vec<String>>,
    program: UnixStream,
}

impl World {
    fn new(rules: Rules) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let notes = Arc::new(Notes::default());
        let service = Service::at(dir.path());
        let skills = Skills::new(vec![Arc::clone(&notes) as Arc<dyn Skill>], rules);
        let log = log(&dir);
        let approvals = Approvals {
            service: service.clone(),
            chat: ringfence_records::approval::Chat::local(),
        };
        let (line, duct) = bridge();
        let (ours, program) = UnixStream::pair().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let caller = Caller {
                scope: Scope::local(),
                session: None,
                surface: Surface::Library,
                client: None,
            };
            let visitor = CallInfo {
                caller: &caller,
                audit: Some(&log),
                redactor: &Redactor::new([("TOKEN", "s3cr3t-t0ken")]),
                approvals: Some(&approvals),
                questions: None,
                notices: None,
            };
            let gatekeeper = Gatekeeper::new(&skills, visitor);
            let carrying = duct.carry(ours);
            tokio::join!(gatekeeper.serve(line), carrying);
            gatekeeper.warnings()
        });
        Self {
            dir,
            notes,
            service,
            serving,
            program,
        }
    }

    async fn write(&mut self, text: &str) {
        self.program.write_all(text.as_bytes()).await.unwrap();
    }

    async fn call(&mut self, id: &str, path: &str, text: &str) {
        let data = json!({"path": path, "args": [text]});
        let line = json!({"type": "call", "id": id, "data": data});
        self.write(&format!("{line}\n")).await;
    }

    /// Receives the next message as the program.
    async fn heard(&mut self) -> Value {
        let mut line = Vec::new();
        loop {
            match self.program.read_u8().await {
                Ok(b'\n') => return serde_json::from_slice(&line).unwrap(),
                Ok(byte) => line.push(byte),
                Err(error) => panic!("{error}: {}", String::from_utf8_lossy(&line)),
            }
        }
    }

    /// Receives an error, and returns its kind and message.
    async fn refused(&mut self) -> (String, String) {
        let heard = self.heard().await;
        let text = |name: &str| heard["data"][name].as_str().unwrap_or_default().to_owned();
        (text("kind"), text("error"))
    }

    /// Asserts that no more messages come, and returns the warnings of the run.
    async fn over(mut self) -> Vec<String> {
        let mut rest = Vec::new();
        self.program.read_to_end(&mut rest).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), "");
        drop(self.program);
        self.serving.join_next().await.unwrap().unwrap()
    }

    /// Returns tool, decision and outcome of each call in the audit log.
    fn records(&self) -> Vec<(String, String, String)> {
        let text = std::fs::read_to_string(self.dir.path().join("audit/audit.jsonl")).unwrap();
        assert!(!text.contains("s3cr3t-t0ken"), "{text}");
        let records = text.lines().map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
            let outcome = match text("error") {
                none if none.is_empty() => text("outcome"),
                error => error,
            };
            (text("tool"), text("decision"), outcome)
        });
        records.collect()
    }
}

fn log(dir: &TempDir) -> Log {
    let limits = Limits {
        max_file_bytes: 1 << 20,
        max_files: 4,
        keep_host: std::time::Duration::ZERO,
    };
    Log::open(&dir.path().join("audit"), limits).unwrap()
}

#[tokio::test]
async fn what_is_allowed_is_called_and_recorded() {
    let mut world = World::new(Rules::of_tests());
    world.call("a", "Notes.find", "s3cr3t-t0ken").await;
    let expected = json!({"type": "result", "id": "a", "data": {"value": ["s3cr3t-t0ken"]}});
    assert_eq!(world.heard().await, expected);
    world.call("b", "Notes.told", "x").await;
    assert_eq!(world.heard().await["data"]["value"], json!(["x"]));
    let notices = world.service.notices(None).await.unwrap();
    assert!(notices[0].text.contains("local calls Notes.told"), "{notices:?}");
    let record = |path: &str| {
        (
            format!("device.{path}"),
            "allowed".to_owned(),
            "answered".to_owned(),
        )
    };
    assert_eq!(world.records(), [record("Notes.find"), record("Notes.told")]);
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_and_recorded() {
    let rules = Rules {
        others: vec!["Notes.find".parse().unwrap()],
        max_calls: std::num::NonZeroU32::new(9).unwrap(),
        ..Rules::of_tests()
    };
    let mut world = World::new(rules);
    for (path, text, kind) in [
        ("Notes.told", "x", "not_found"),
        ("Notes._find", "x", "not_found"),
        ("os.system", "x", "not_found"),
        ("Notes.find.__globals__", "x", "not_found"),
        ("Notes.find", "fail", "failed"),
        ("Notes.find", "lie", "failed"),
    ] {
        world.call("1", path, text).await;
        let (heard, told) = world.refused().await;
        assert_eq!(heard, kind, "{path} {text}: {told}");
        assert!(!told.contains("/home"), "{told}");
    }
    world
        .write("{\"type\":\"call\",\"id\":\"1\",\"data\":{\"path\":\"Notes.find\",\"kwargs\":{\"x\":1}}}\n")
        .await;
    assert_eq!(world.refused().await.0, "invalid_arguments");
    world.call("1", "Notes.find", "much").await;
    assert_eq!(world.refused().await.0, "limit_exceeded");
    assert_eq!(world.notes.calls.load(Ordering::Relaxed), 3);
    let refused = world
        .records()
        .into_iter()
        .filter(|(_, decision, _)| decision == "refused");
    assert_eq!(refused.count(), 5);
}

#[tokio::test]
async fn a_person_is_asked_and_may_allow_several_at_once() {
    let mut world = World::new(Rules {
        max_calls: std::num::NonZeroU32::MAX,
        ..Rules::of_tests()
    });
    let answer = async |world: &mut World, verdict, remember| {
        let mut changes = world.service.changes();
        let request = loop {
            if let Some(request) = world.service.waiting().await.unwrap().pop() {
                break request;
            }
            changes.next().await.unwrap();
        };
        assert!(request.text.starts_with("Notes.asked {"), "{}", request.text);
        let answer = Answer {
            id: request.id.clone(),
            verdict,
            remember,
            chat: request.chat.clone(),
            digest: request.digest(),
            by: "ann".to_owned(),
        };
        world.service.answer(answer).await.unwrap();
    };
    world.call("1", "Notes.asked", "x").await;
    answer(&mut world, Verdict::Reject, Remember::Once).await;
    assert_eq!(world.refused().await.0, "rejected");
    world.call("2", "Notes.asked", "y").await;
    answer(&mut world, Verdict::Approve, Remember::Uses(1)).await;
    assert_eq!(world.heard().await["data"]["value"], json!(["y"]));
    // One more call is approved, whatever its arguments.
    world.call("3", "Notes.asked", "z").await;
    assert_eq!(world.heard().await["data"]["value"], json!(["z"]));
    world.call("4", "Notes.asked", "y").await;
    answer(&mut world, Verdict::Approve, Remember::Session).await;
    assert_eq!(world.heard().await["data"]["value"], json!(["y"]));
    // Exactly this call is approved once more; with other arguments it is not.
    world.call("5", "Notes.asked", "y").await;
    assert_eq!(world.heard().await["data"]["value"], json!(["y"]));
    world.call("6", "Notes.asked", "z").await;
    answer(&mut world, Verdict::Reject, Remember::Once).await;
    assert_eq!(world.refused().await.0, "rejected");
    assert_eq!(world.notes.calls.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn a_call_that_was_taken_back_is_answered_so() {
    let mut world = World::new(Rules::of_tests());
    world.call("1", "Notes.find", "for ever").await;
    world.call("2", "Notes.find", "x").await;
    assert_eq!(world.heard().await["id"], "2");
    let cancellation = json!({"type": "error", "id": "1", "data": {"kind": "cancelled", "error": ""}});
    // Cancelling an unknown or finished call has no effect.
    let unknown = json!({"type": "error", "id": "7", "data": {"kind": "cancelled", "error": ""}});
    world
        .write(&format!("{unknown}\n{cancellation}\n{cancellation}\n"))
        .await;
    assert_eq!(world.refused().await.0, "cancelled");
    let last = world.records().pop().unwrap();
    assert_eq!(last.2, "cancelled");
}

#[tokio::test]
async fn the_budget_ends_the_bridge() {
    let mut world = World::new(Rules::of_tests());
    for id in ["1", "2", "3", "4"] {
        world.call(id, "Notes.find", "x").await;
        let heard = world.heard().await;
        assert_eq!(heard["type"] == "result", id != "4", "{heard}");
    }
    assert_eq!(world.refused().await.0, "closed");
    assert_eq!(world.records().len(), 4);
    let warnings = world.over().await;
    assert!(warnings[0].contains("may make 3 calls"), "{warnings:?}");
}

#[tokio::test]
async fn nonsense_closes_the_bridge() {
    let nested = format!(
        "{{\"type\":\"call\",\"id\":\"1\",\"data\":{}}}\n",
        "[".repeat(100_000)
    );
    let call =
        "{\"type\":\"call\",\"id\":\"1\",\"data\":{\"path\":\"Notes.find\",\"args\":[\"for ever\"]}}\n";
    for (text, why) in [
        ("hello\n", "is not a message"),
        (&*nested, "nested deeper"),
        (&" ".repeat(1 << 20), "longer than"),
        (
            "{\"type\":\"result\",\"id\":\"1\",\"data\":{\"value\":1}}\n",
            "only the host may send",
        ),
        (
            "{\"type\":\"execute\",\"id\":\"1\",\"data\":{}}\n",
            "only the host may send",
        ),
        (&call.repeat(2), "the same id"),
    ] {
        let mut world = World::new(Rules::of_tests());
        world.write(text).await;
        let (kind, told) = world.refused().await;
        assert_eq!(kind, "closed", "{told}");
        assert!(told.contains(why), "{told}");
        let warnings = world.over().await;
        assert!(warnings[0].contains(why), "{warnings:?}");
    }
}

#[tokio::test]
async fn a_program_that_hangs_up_is_let_go() {
    let mut world = World::new(Rules::of_tests());
    world.call("1", "Notes.find", "for ever").await;
    world.write("{\"type\":\"call\"").await;
    world.program.shutdown().await.unwrap();
    assert_eq!(world.over().await, [""; 0]);
}

/// Tokio's paused clock advances only while all tasks are idle, so elapsed time shows the rate limit alone.
#[tokio::test(start_paused = true)]
async fn calls_beyond_a_seconds_worth_wait_for_their_turn() {
    let number = |number| std::num::NonZeroU32::new(number).unwrap();
    let mut world = World::new(Rules {
        max_calls: number(100),
        calls_per_second: number(10),
        ..Rules::of_tests()
    });
    let since = tokio::time::Instant::now();
    let mut waited = Vec::new();
    for count in 1..=31 {
        world.call(&count.to_string(), "Notes.find", "a").await;
        world.heard().await;
        if [11, 21, 31].contains(&count) {
            waited.push(since.elapsed().as_millis());
        }
    }
    // A second's worth of calls passes at once; then one every tenth of a second.
    let expected = [0, 1000, 2000];
    for (waited, expected) in waited.iter().zip(expected) {
        assert!(waited.abs_diff(expected) <= 50, "{waited} {expected}");
    }
}
