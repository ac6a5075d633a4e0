//! A key that floods the server fills its own share and its own queue.

use serde_json::{Value, json};

use super::keys::create;
use super::run::lives;
use super::{Connection, Reply, Surface};
use crate::support::eventually;
use crate::world::World;

/// Four slots, three of which one key can have.
const CONFIG: &str = "[engine]\nlisten = '127.0.0.1:0'\npool_size = 1\nmax_concurrent = 4\n";
const SHARE: usize = 3;
const QUEUE: usize = 32;

struct Client {
    surface: Surface,
    bearer: String,
}

impl Client {
    fn new(world: &World, rights: &str) -> Self {
        let (key, _) = create(world, &["--rights", rights]);
        Self {
            surface: Surface::loopback(world),
            bearer: format!("Authorization: Bearer {key}"),
        }
    }

    fn send(&self, line: &str, body: &Value) -> Box<dyn Connection> {
        self.surface.send(line, &[&self.bearer], &body.to_string())
    }

    fn ask(&self, line: &str, body: &Value) -> Reply {
        super::reply(&mut *self.send(line, body))
    }

    /// Starts programs that run until they are killed, one in each slot that the key can have.
    fn fill(&self) -> Vec<(Box<dyn Connection>, String)> {
        let started = (0..SHARE).map(|at| {
            let mark = format!("rf-admission-{at}-{}.", std::process::id());
            let code = format!("exec -a {mark} sleep 1000");
            let run = json!({"code": code, "language": "bash", "timeout": 1000});
            let connection = self.send("POST /v1/run", &run);
            eventually("it runs", || lives(&mark));
            (connection, mark)
        });
        started.collect()
    }

    /// Returns a figure of the server.
    fn figure(&self, series: &str) -> f64 {
        let text = self.ask("GET /metrics", &json!({})).body;
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        assert!(line.is_some(), "no {series} in {text}");
        line.unwrap().trim().parse().unwrap()
    }
}

fn world() -> World {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", CONFIG);
    world.start_engine();
    world
}

fn print(text: &str) -> Value {
    json!({ "code": format!("print('{text}')") })
}

#[test]
fn a_key_that_floods_fills_its_own_queue_and_starves_nobody() {
    let world = world();
    let (flooding, other) = (Client::new(&world, "run,tools"), Client::new(&world, "run"));
    let admin = Client::new(&world, "admin");
    let at_work = flooding.fill();
    let mut waiting: Vec<_> = (0..QUEUE)
        .map(|_| flooding.send("POST /v1/run", &print("waited")))
        .collect();
    eventually("they wait", || {
        admin.figure("ringfence_calls_waiting ") == QUEUE as f64
    });
    assert!(admin.figure("ringfence_calls_oldest_seconds ") > 0.0);
    assert_eq!(admin.figure("ringfence_calls_at_work "), SHARE as f64);

    // On every path of a call.
    for line in ["POST /v1/run", "POST /v1/tools/run_code"] {
        let refused = flooding.ask(line, &print("one too many"));
        refused.refused(429, "busy");
        let text = format!("the queue of the key is full: {QUEUE} of its calls wait");
        assert!(refused.body.contains(&text), "{refused:?}");
        let after = refused
            .head
            .lines()
            .find_map(|line| line.strip_prefix("retry-after: "));
        assert!((1..=60).contains(&after.unwrap().parse().unwrap()), "{refused:?}");
    }
    assert_eq!(
        admin.figure("ringfence_calls_refused_total{reason=\"full\"} "),
        2.0
    );
    // A batch has been let in, and waits.
    let runs: Vec<Value> = (0..8).map(|at| print(&format!("of a batch {at}"))).collect();
    let mut batch = flooding.send("POST /v1/batch", &json!({ "runs": runs }));

    // The other key and the server's user are served as ever.
    for _ in 0..3 {
        assert_eq!(
            other.ask("POST /v1/run", &print("mine")).json()["stdout"],
            "mine\n"
        );
        let owner = Surface::socket(&world).ask("POST /v1/run", &[], &print("own").to_string());
        assert_eq!(owner.json()["stdout"], "own\n");
    }
    let all: Vec<Value> = (0..8).map(|_| print("of another")).collect();
    let reply = other.ask("POST /v1/batch", &json!({ "runs": all }));
    assert_eq!(reply.body.matches("of another\\n").count(), 8, "{reply:?}");
    assert!(at_work.iter().all(|(_, mark)| lives(mark)));

    // Nothing that was let in is lost.
    drop(at_work);
    for connection in &mut waiting {
        assert_eq!(super::reply(&mut **connection).json()["stdout"], "waited\n");
    }
    let reply = super::reply(&mut *batch);
    assert_eq!(reply.body.matches("of a batch").count(), 8, "{reply:?}");
    eventually("nothing is left", || {
        admin.figure("ringfence_calls_at_work ") == 0.0
    });
    assert_eq!(admin.figure("ringfence_calls_waiting "), 0.0);
    assert_eq!(admin.figure("ringfence_calls_oldest_seconds "), 0.0);
    world.close();
}

#[test]
fn a_batch_that_nobody_reads_keeps_no_slot() {
    let world = world();
    let (flooding, other) = (Client::new(&world, "run"), Client::new(&world, "run"));
    let admin = Client::new(&world, "admin");
    // More than the sockets take: after some lines nothing is read from the batches any more.
    let code = "import sys; print(chr(0) * 900_000); print(chr(0) * 900_000, file=sys.stderr)";
    let runs = vec![json!({ "code": code }); 150];
    let unread: Vec<_> = (0..4)
        .map(|_| flooding.send("POST /v1/batch", &json!({ "runs": runs })))
        .collect();
    eventually("they have begun", || {
        admin.figure("ringfence_calls_at_work ") > 0.0
    });
    let is_idle = |_| admin.figure("ringfence_calls_at_work ") == 0.0;
    eventually("they have stopped for good", || (0..10).all(is_idle));
    let ended = admin.figure("ringfence_run_duration_seconds_count{runtime=\"local\"} ");
    assert!(ended < (4 * runs.len()) as f64, "the sockets took all lines");
    assert_eq!(
        other.ask("POST /v1/run", &print("mine")).json()["stdout"],
        "mine\n"
    );
    drop(unread);
    world.close();
}

#[test]
fn a_client_that_leaves_leaves_the_queue() {
    let world = world();
    let (flooding, admin) = (Client::new(&world, "run"), Client::new(&world, "admin"));
    let at_work = flooding.fill();
    let waiting = || admin.figure("ringfence_calls_waiting ");
    let gone = flooding.send("POST /v1/run", &print("nobody reads it"));
    eventually("it waits", || waiting() == 1.0);
    drop(gone);
    eventually("it has left", || waiting() == 0.0);
    drop(at_work);
    eventually("the slots are free", || {
        admin.figure("ringfence_calls_at_work ") == 0.0
    });
    world.close();
}

#[test]
fn a_key_leaves_connections_to_others() {
    let world = world();
    let (flooding, other) = (Client::new(&world, "sandboxes"), Client::new(&world, "sandboxes"));
    let made = flooding.ask("POST /v1/sandboxes", &json!({"name": "lab"}));
    assert_eq!(made.status, 200, "{made:?}");
    let process = json!({"command": "echo begun; sleep 1000"});
    let started = flooding.ask("POST /v1/sandboxes/lab/processes", &process).json();
    let output = format!("GET /v1/sandboxes/lab/processes/{}/output", started["pid"]);
    let mut open = Vec::new();
    let refused = loop {
        let mut stream = flooding.send(&output, &json!({}));
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        if first != *b"HTTP/1.1 200" {
            let mut refused = first.to_vec();
            stream.read_to_end(&mut refused).unwrap();
            break String::from_utf8(refused).unwrap();
        }
        open.push(stream);
        assert!(open.len() < 256, "a key has every connection");
    };
    assert_eq!(open.len(), 192, "{refused}");
    let text = "the key has 192 connections";
    assert!(
        refused.starts_with("HTTP/1.1 429") && refused.contains(text),
        "{refused}"
    );
    assert_eq!(other.ask("GET /v1/sandboxes", &json!({})).status, 200);
    drop(open);
    eventually("it may again", || {
        flooding.ask("GET /v1/sandboxes", &json!({})).status == 200
    });
    world.close();
}
