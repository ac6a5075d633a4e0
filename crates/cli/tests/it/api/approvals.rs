//! Questions to people over `/v1/approvals`.

use std::io::{BufRead, BufReader, Read};

use serde_json::{Value, json};

use super::keys::Holder;
use super::{Connection, Reply, Surface, reply};
use crate::approvals::{ASK, ENDLESS, Use, timed_out};
use crate::support::eventually;
use crate::world::World;

/// A program that needs longer than its limit, and ends.
const LONG: &str = "import time; time.sleep(1); print('done')";

const EVENTS: &str = "Accept: text/event-stream";

/// Starts a server that asks at a tool's timeout.
fn world() -> World {
    let world = World::before_engine();
    let config = format!("{}{ASK}", super::CONFIG);
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine();
    world
}

/// The keys of a tenant: one that asks, by its programs, and one that answers.
struct Team {
    asks: Holder,
    answers: Holder,
}

impl Team {
    fn new(world: &World, name: &str) -> Self {
        Self {
            asks: Holder::new(world, &["--tenant", name]),
            answers: Holder::new(world, &["--tenant", name, "--rights", "approvals"]),
        }
    }

    /// Starts a program.
    fn start(&self, code: &str) -> Box<dyn Connection> {
        let body = json!({ "code": code }).to_string();
        self.asks
            .surface
            .send("POST /v1/run", &[&self.asks.bearer], &body)
    }

    fn waiting(&self) -> Value {
        self.answers.ok("GET /v1/approvals", &json!({}))["waiting"].clone()
    }

    /// Returns the result of a program about which nobody can be asked.
    #[track_caller]
    fn unheard(&self) {
        let stderr = timed_out(&reply(&mut *self.start(ENDLESS)).json());
        assert!(stderr.contains("no gateway is connected"), "{stderr}");
    }
}

/// A stream of questions.
struct Stream(BufReader<Box<dyn Connection>>);

impl Stream {
    /// Follows questions, and reads the event with those that wait.
    fn of(holder: &Holder) -> (Self, Value) {
        let sent = holder
            .surface
            .send("GET /v1/approvals/events", &[&holder.bearer, EVENTS], "");
        let mut stream = Self(BufReader::new(sent));
        let (name, data) = stream.next();
        assert_eq!(name, "waiting", "{data}");
        (stream, data["waiting"].clone())
    }

    /// Returns the next event.
    #[track_caller]
    fn next(&mut self) -> (String, Value) {
        let (mut name, mut id) = (String::new(), 0);
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            match line.trim_end().split_once(": ") {
                Some(("event", event)) => event.clone_into(&mut name),
                Some(("id", number)) => id = number.parse().unwrap(),
                Some(("data", data)) => {
                    assert!(id > 0 && !name.is_empty());
                    return (name, serde_json::from_str(data).unwrap());
                }
                _ => {}
            }
        }
    }

    #[track_caller]
    fn expect(&mut self, kind: &str) -> Value {
        let (name, data) = self.next();
        assert_eq!(name, kind, "{data}");
        data
    }
}

fn path(question: &Value) -> String {
    format!("/v1/approvals/{}", question["id"].as_str().unwrap())
}

fn answer(holder: &Holder, question: &Value, approved: bool) -> Reply {
    let body = json!({"approved": approved, "digest": question["digest"]});
    holder.ask(&format!("POST {}", path(question)), &body)
}

/// Checks that a question is an unknown one to another tenant.
#[track_caller]
fn assert_hidden(two: &Team, question: &Value) {
    assert_eq!(two.waiting(), json!([]));
    let unknown = "/v1/approvals/apr_00000000000000000000000000000000";
    for method in ["GET", "POST"] {
        let [foreign, unknown] = [&path(question), unknown].map(|path| {
            let reply = two.answers.ask(&format!("{method} {path}"), &json!({}));
            reply.refused(404, "not_found");
            reply
                .body
                .replace(path.trim_start_matches("/v1/approvals/"), "ID")
        });
        assert_eq!(foreign, unknown);
    }
    answer(&two.answers, question, true).refused(404, "not_found");
}

/// Checks that a question still waits after answers that are none.
#[track_caller]
fn assert_wrong_answers_change_nothing(one: &Team, question: &Value) {
    let mut other_text = question.clone();
    other_text["digest"] = "0".repeat(64).into();
    answer(&one.answers, &other_text, true).refused(409, "conflict");
    let approve = format!("POST {}", path(question));
    let always = json!({"approved": true, "digest": question["digest"], "remember": "always"});
    one.answers
        .ask(&approve, &always)
        .refused(422, "invalid_arguments");
    one.answers
        .ask(&approve, &json!({"approved": true}))
        .refused(422, "invalid_arguments");
    assert_eq!(one.waiting(), json!([question]));
}

/// Checks that another tenant's stream has told nothing so far, and that the operator answers its questions.
fn answers_of_the_operator(two: &Team, others: &mut Stream, operator: &Holder) {
    let running = two.start(ENDLESS);
    let asked = others.expect("question");
    assert_eq!(two.waiting(), json!([asked]));
    assert_eq!(answer(operator, &asked, false).status, 200);
    let over = others.expect("over");
    assert_eq!(
        (&over["state"], &over["by"]),
        (&json!("rejected"), &json!(operator.id))
    );
    let mut running = running;
    timed_out(&reply(&mut *running).json());
}

#[test]
fn a_tenant_hears_sees_and_answers_its_own_questions_alone() {
    let world = world();
    let (one, two) = (Team::new(&world, "one"), Team::new(&world, "two"));
    let operator = Holder::new(&world, &["--rights", "approvals,admin"]);
    one.unheard();
    // Whoever listens for another tenant is nobody to ask.
    let (mut others, _) = Stream::of(&two.answers);
    one.unheard();

    let (mut stream, waiting) = Stream::of(&one.answers);
    assert_eq!(waiting, json!([]));
    let mut running = one.start(LONG);
    let question = stream.expect("question");
    assert_eq!(one.waiting(), json!([question]));
    let text = question["text"].to_string();
    assert!(
        text.contains("`run_code` has run for 200ms") && text.contains("sleep(1)"),
        "{text}"
    );
    assert_eq!(
        (&question["kind"], &question["state"], &question["chat"]),
        (&json!("soft_timeout"), &json!("pending"), &Value::Null)
    );
    // Who comes back has missed nothing.
    drop(stream);
    let (mut stream, waiting) = Stream::of(&one.answers);
    assert_eq!(waiting, json!([question["id"]]));
    assert_eq!(stream.expect("question"), question);

    assert_hidden(&two, &question);
    let seen = operator.ok(&format!("GET {}", path(&question)), &json!({}));
    assert_eq!(
        (&seen["chat"], &seen["digest"]),
        (&json!("local"), &question["digest"])
    );

    assert_wrong_answers_change_nothing(&one, &question);
    let accepted = answer(&one.answers, &question, true);
    assert_eq!(
        (accepted.status, &accepted.json()["approved"]),
        (200, &json!(true)),
        "{accepted:?}"
    );
    let result = reply(&mut *running).json();
    assert_eq!(result["stdout"], "done\n", "{result}");
    let id = &one.answers.id;
    let warnings = result["meta"]["warnings"].to_string();
    assert!(warnings.contains(&format!("was extended by {id}")), "{warnings}");
    let over = json!({"id": question["id"], "state": "approved", "by": id});
    assert_eq!(stream.expect("over"), over);
    answer(&one.answers, &question, false).refused(409, "conflict");
    assert_eq!(one.waiting(), json!([]));
    let past = |holder: &Holder| holder.ok("GET /v1/approvals?past=true", &json!({}))["past"].clone();
    assert_eq!(
        (&past(&one.answers)[0]["id"], &past(&one.answers)[0]["by"]),
        (&question["id"], &json!(id))
    );
    assert_eq!(past(&two.answers), json!([]));

    answers_of_the_operator(&two, &mut others, &operator);
    let log = world.dir.run(["audit", "tail", "--host", "--json"]);
    assert!(log.ok().contains(&format!("\"by\":\"{id}\"")), "{log:?}");
    let log = world.dir.run(["audit", "tail", "--json"]);
    assert!(log.ok().matches("approval.answer").count() >= 5, "{log:?}");
    world.close();
}

#[test]
fn who_may_not_answer_gets_to_no_question() {
    let world = world();
    let team = Team::new(&world, "one");
    let (mut stream, _) = Stream::of(&team.answers);
    let mut running = team.start(LONG);
    let question = stream.expect("question");
    let tools = Holder::new(&world, &["--tenant", "one", "--rights", "tools"]);
    let operator = Holder::new(&world, &["--rights", "admin"]);
    for holder in [&team.asks, &tools, &operator] {
        for line in [
            "GET /v1/approvals".to_owned(),
            "GET /v1/approvals/events".to_owned(),
            format!("GET {}", path(&question)),
            format!("POST {}", path(&question)),
        ] {
            let body = json!({"approved": true, "digest": question["digest"]});
            let reply = holder.ask(&line, &body);
            reply.refused(403, "permission_denied");
            assert!(reply.body.contains("the right `approvals`"), "{reply:?}");
        }
    }
    let plain = team.answers.ask("GET /v1/approvals/events", &json!({}));
    plain.refused(406, "invalid_arguments");
    assert_eq!(answer(&team.answers, &question, true).status, 200);
    assert_eq!(reply(&mut *running).json()["stdout"], "done\n");
    world.close();
}

#[test]
fn nobody_is_there_to_be_asked_once_the_key_is_revoked() {
    let world = world();
    let team = Team::new(&world, "one");
    let (mut stream, _) = Stream::of(&team.answers);
    let mut running = team.start(LONG);
    let question = stream.expect("question");
    world.dir.run(["keys", "revoke", &team.answers.id]).ok();
    // The end may be a reset.
    let mut rest = String::new();
    let _ = stream.0.read_to_string(&mut rest);
    assert!(!rest.contains("event: "), "{rest}");
    answer(&team.answers, &question, true).refused(401, "unauthenticated");
    let second = Holder::new(&world, &["--tenant", "one", "--rights", "approvals"]);
    assert_eq!(answer(&second, &question, false).status, 200);
    timed_out(&reply(&mut *running).json());
    eventually("the stream counts no longer", || {
        let result = reply(&mut *team.start(ENDLESS)).json();
        let stderr = result["stderr"].as_str().unwrap();
        stderr.contains("no gateway is connected")
    });
    world.close();
}

#[test]
fn the_servers_user_answers_over_the_socket() {
    let world = world();
    let socket = Surface::socket(&world);
    let mut stream = Stream(BufReader::new(socket.send(
        "GET /v1/approvals/events",
        &[EVENTS],
        "",
    )));
    stream.expect("waiting");
    let slow = Use::of(&world, &[], LONG);
    let question = stream.expect("question");
    assert_eq!(
        (&question["scope"], &question["chat"]),
        (&json!("local"), &json!("local"))
    );
    let team = Team::new(&world, "one");
    assert_eq!(team.waiting(), json!([]));
    answer(&team.answers, &question, true).refused(404, "not_found");
    let body = json!({"approved": true, "digest": question["digest"]}).to_string();
    let line = format!("POST {}", path(&question));
    assert_eq!(socket.ask(&line, &[], &body).status, 200);
    let result = slow.result();
    assert_eq!(result["stdout"], "done\n", "{result}");
    assert_eq!(stream.expect("over")["by"], "socket");
    world.close();
}

#[test]
fn questions_are_followed_without_a_console() {
    let world = World::before_engine();
    let config = "[engine]\nconsole = false\npool_size = 1\n";
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine();
    let sent = Surface::socket(&world).send("GET /v1/approvals/events", &[EVENTS], "");
    Stream(BufReader::new(sent)).expect("waiting");
    world.close();
}

#[test]
fn a_tenants_streams_take_no_place_of_others() {
    let world = world();
    let (one, two) = (Team::new(&world, "one"), Team::new(&world, "two"));
    let streams: Vec<_> = (0..16).map(|_| Stream::of(&one.answers)).collect();
    let line = "GET /v1/approvals/events";
    let full = one.answers.surface.ask(line, &[&one.answers.bearer, EVENTS], "");
    full.refused(429, "limit_exceeded");
    Stream::of(&two.answers);
    drop(streams);
    eventually("there is room again", || {
        let mut sent = one.answers.surface.send(line, &[&one.answers.bearer, EVENTS], "");
        let mut head = [0; 12];
        sent.read_exact(&mut head).unwrap();
        head == *b"HTTP/1.1 200"
    });
    world.close();
}
