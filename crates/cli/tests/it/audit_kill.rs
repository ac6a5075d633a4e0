//! The audit log of a server killed at a random moment: every answered call is recorded.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::BuildHasher;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use ringfence_network::redact::Redactor;
use ringfence_records::audit::{Arguments, AuditedCaller, Decision, Entry, Limits, Log, Outcome};
use serde_json::{Value, json};

use crate::support::{Dir, entries};

const ROUNDS: u64 = 50;

/// Calls in flight at once; the server has room for more.
const CALLS: u64 = 60;

/// Small enough that a kill may hit a file rotation.
const CONFIG: &str = "[audit]\nmax_file = \"64KiB\"\nmax_files = 500\n\n[engine]\npool_size = 2\n";

/// Returns a random number.
fn any(below: u64) -> u64 {
    std::hash::RandomState::new().hash_one(0) % below
}

/// Kills a server with calls in flight; returns the marks of the answered calls.
fn round(dir: &Dir, round: u64) -> Vec<String> {
    let mut server = dir
        .command(["mcp"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let marks: HashMap<u64, String> = (1..=CALLS).map(|n| (n, format!("mark-{round}-{n}."))).collect();
    let mut text = greeting();
    for (id, mark) in &marks {
        let (name, arguments) = call(*id, mark);
        let params = json!({"name": name, "arguments": arguments});
        text.push_str(&line(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}),
        ));
    }
    // Standard input stays open: its end would end the server cleanly.
    let writer = std::thread::spawn(move || {
        _ = stdin.write_all(text.as_bytes());
        stdin
    });
    let answered = answers(&mut server);
    drop(writer.join().unwrap());
    answered
        .into_iter()
        .filter_map(|id| marks.get(&id).cloned())
        .collect()
}

/// Returns a call by number: a short run, an instant success, or a rejection.
fn call(id: u64, mark: &str) -> (&'static str, Value) {
    match id % 3 {
        0 => ("run_python_code", json!({"code": format!("print('{mark}')")})),
        1 => ("file_read", json!({"path": mark})),
        _ => ("run_code", json!({"code": mark, "language": "cobol"})),
    }
}

fn line(message: &Value) -> String {
    format!("{message}\n")
}

fn greeting() -> String {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    line(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
        + &line(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
}

/// Reads the server's answers, kills it at a random point, and reads to the end; returns the answered calls.
fn answers(server: &mut Child) -> BTreeSet<u64> {
    let mut answered = BTreeSet::new();
    let mut left = any(CALLS);
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        // The last line may be incomplete.
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            break;
        };
        if let Some(id) = message["id"].as_u64().filter(|id| *id > 0) {
            answered.insert(id);
        }
        if left == 0 {
            // The kill hits between two answers as well as right behind one.
            std::thread::park_timeout(Duration::from_micros(any(3_000)));
            server.kill().unwrap();
        }
        left = left.wrapping_sub(1);
    }
    _ = server.kill();
    server.wait().unwrap();
    answered
}

/// Returns the marks in all records of the log.
fn recorded(dir: &Dir) -> BTreeSet<String> {
    let directory = dir.path("state/ringfence/audit");
    let mut marks = BTreeSet::new();
    let text: String = entries(&directory)
        .iter()
        .map(|name| fs::read_to_string(directory.join(name)).unwrap())
        .collect();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let arguments = record["arguments"].to_string();
        if let Some(at) = arguments.find("mark-") {
            let mark = &arguments[at..];
            marks.insert(mark[..=mark.find('.').unwrap()].to_owned());
        }
    }
    marks
}

/// A stop flag, set on drop, also when an assertion fails: otherwise joining the thread would hang.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Appends until stopped, like another process; returns the number of records.
fn append(dir: &Dir, stop: &AtomicBool) -> u64 {
    let limits = Limits {
        max_file_bytes: 64 * 1024,
        max_files: 500,
        keep_host: Duration::ZERO,
    };
    let log = Log::open(&dir.path("state/ringfence/audit"), limits).unwrap();
    let redactor = Redactor::new([("", ""); 0]);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let arguments = Arguments::new(&json!(format!("mark-other-{count}.")), &redactor);
        log.append(&entry(&arguments)).unwrap();
        count += 1;
        std::thread::park_timeout(Duration::from_millis(2));
    }
    count
}

fn entry(arguments: &Arguments) -> Entry<'_> {
    Entry {
        judgement: None,
        started: SystemTime::now(),
        who: AuditedCaller {
            scope: "local",
            session: None,
            surface: "library",
            client: None,
        },
        tool: "other",
        arguments,
        attempts: &[],
        decision: Decision::Allowed,
        outcome: Outcome::Answered,
        error: None,
        duration: Duration::ZERO,
        result: None,
        on_host: false,
    }
}

mod alone {
    use super::*;

    #[test]
    fn whatever_was_answered_before_a_kill_is_in_the_log() {
        let dir = Dir::new();
        dir.write("config/ringfence/ringfence.toml", CONFIG);
        let mut answered = BTreeSet::new();
        let mut rounds_cut_short = 0;
        let stop = AtomicBool::new(false);
        let others = std::thread::scope(|scope| {
            let other = scope.spawn(|| append(&dir, &stop));
            let stop = Stop(&stop);
            for number in 0..ROUNDS {
                let marks = round(&dir, number);
                rounds_cut_short += u64::from(marks.len() < CALLS as usize);
                answered.extend(marks);
                dir.run(["audit", "verify"]).ok();
            }
            drop(stop);
            other.join().unwrap()
        });
        answered.extend((0..others).map(|n| format!("mark-other-{n}.")));
        let missing: Vec<_> = answered.difference(&recorded(&dir)).cloned().collect();
        assert_eq!(missing, [""; 0]);
        // The kills came during work, and after some.
        assert!(rounds_cut_short > ROUNDS / 2, "{rounds_cut_short}");
        let done = answered.len() as u64 - others;
        assert!(done > ROUNDS * CALLS / 5, "{done}");
        let verified = dir.run(["audit", "verify"]);
        assert!(verified.ok().starts_with("intact: "), "{verified:?}");
    }
}
