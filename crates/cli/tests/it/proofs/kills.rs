//! Any process may be killed at any moment: no command runs twice or unapproved, and its outcome is recorded.

use std::collections::BTreeSet;
use std::fs;
use std::hash::BuildHasher;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_records::approval::{Answer, Remember, Service, Verdict};
use serde_json::{Value, json};

use super::{ALL, Asker, ON, Through, answer, asked, requests, ringfence, state, world};
use crate::approvals::Gateway;
use crate::leftovers::processes;
use crate::support::{entries, eventually, eventually_none};
use crate::world::World;

/// Returns a command that appends a line to a file, and the file.
fn adding(world: &World, line: &str) -> (String, PathBuf) {
    let path = world.dir.path("work/ran");
    let script = world.dir.path("work/add.sh");
    if !script.exists() {
        fs::write(&script, format!("echo $1 >> {}\n", path.display())).unwrap();
    }
    (format!("bash {} {line}", script.display()), path)
}

fn lines(path: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn killed_between_question_and_answer_nothing_runs_and_others_are_not_lost() {
    for through in ALL {
        let world = world(ON, through == Through::Engine);
        let (other, ran) = adding(&world, "other");
        let waiting = Asker::start(&world, Through::Tool, &other);
        let other = asked(&world, &other);
        let (line, _) = adding(&world, "killed");
        let mut asker = Asker::start(&world, through, &line);
        let id = asked(&world, &line);
        asker.kill();
        let late = ringfence(&world, &["approvals", "approve", &id]);
        assert!(late.status != 0 && late.stderr.contains("no"), "{late:?}");
        assert_eq!(state(&world, &id), "abandoned", "{through:?}");
        answer(&world, "approve", &other);
        assert_eq!(waiting.end(), json!(""));
        assert_eq!(lines(&ran), ["other"], "{through:?}");
        // The next asker cleans up after a killed one.
        Asker::start(&world, through, "ls").end();
        world.close();
    }
}

#[test]
fn killed_between_answer_and_act_nothing_runs_and_that_is_told() {
    for through in ALL {
        let world = world(ON, through == Through::Engine);
        let (line, ran) = adding(&world, "x");
        // It works: stopped, approved and resumed, it runs once.
        let asker = Asker::start(&world, through, &line);
        let id = asked(&world, &line);
        world.signal(&asker.child, "STOP");
        answer(&world, "approve", &id);
        assert_eq!((state(&world, &id).as_str(), lines(&ran).len()), ("approved", 0));
        world.signal(&asker.child, "CONT");
        asker.end();
        assert_eq!((state(&world, &id).as_str(), lines(&ran).len()), ("consumed", 1));
        // Killed instead, it does not run.
        let mut asker = Asker::start(&world, through, &line);
        let id = asked(&world, &line);
        world.signal(&asker.child, "STOP");
        answer(&world, "approve", &id);
        asker.kill();
        assert_eq!(
            (state(&world, &id).as_str(), lines(&ran).len()),
            ("abandoned", 1),
            "{through:?}"
        );
        // Nor does its approval apply to the next asker of the same command.
        let next = Asker::start(&world, through, &line);
        let again = asked(&world, &line);
        assert_ne!(again, id);
        answer(&world, "deny", &again);
        next.end();
        assert_eq!(lines(&ran).len(), 1, "{through:?}");
        world.close();
    }
}

#[test]
fn killed_while_it_runs_the_command_ends_with_all_that_it_started() {
    for through in ALL {
        let world = world(ON, through == Through::Engine);
        let ran = world.dir.path("work/ran");
        // A unique number of seconds to sleep.
        let mark = format!("8{:07}.{}", std::process::id(), through as u8);
        let script = world.dir.write(
            "work/long.sh",
            format!(
                "echo started >> {0}\nsetsid nohup sleep {mark} & disown\n(trap '' TERM HUP; sleep {mark}) &\nsleep {mark}\n\
                 echo finished >> {0}\n",
                ran.display()
            ),
        );
        let line = format!("bash {}", script.display());
        let mut asker = Asker::start(&world, through, &line);
        let id = asked(&world, &line);
        answer(&world, "approve", &id);
        let sleeping = || -> Vec<u32> {
            let all = processes().into_iter();
            all.filter(|process| process.command.contains(&format!("sleep {mark}")))
                .map(|process| process.pid)
                .collect()
        };
        eventually("the command runs", || sleeping().len() == 3);
        asker.kill();
        eventually_none("processes of the command", sleeping);
        assert_eq!(lines(&ran), ["started"], "{through:?}");
        // The approval was consumed and the command started; its outcome is unknown.
        assert_eq!(state(&world, &id), "consumed", "{through:?}");
        assert_eq!(outcomes(&world), ["begun"], "{through:?}");
        // The next asker cleans up after a killed one.
        let again = Asker::start(&world, through, "ls");
        again.end();
        assert_eq!(entries(&world.dir.path("tmp")), [""; 0], "{through:?}");
        assert_eq!(lines(&ran), ["started"], "{through:?}");
        world.close();
    }
}

/// Returns the outcomes in the audit log, oldest first.
fn outcomes(world: &World) -> Vec<String> {
    let log = ringfence(world, &["audit", "tail", "--json"]);
    let records = log
        .ok()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let commands = records.filter(|record| record["tool"] == "host_exec");
    commands
        .map(|record| record["outcome"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn an_engine_that_is_killed_loses_no_question_and_repeats_no_answer() {
    let world = world(ON, true);
    for through in [Through::Engine, Through::Mcp] {
        let (line, ran) = adding(&world, &format!("{through:?}"));
        let mut gateway = Gateway::of(&world);
        let asker = Asker::start(&world, through, &line);
        let request = gateway.expect("approval_request");
        // Killed between question and answer.
        world.stop_engine("KILL");
        gateway.ended();
        world.start_engine();
        let mut gateway = Gateway::of(&world);
        assert_eq!(gateway.expect("approval_request")["id"], request["id"]);
        // Killed between answer and execution.
        world.signal(&asker.child, "STOP");
        gateway.answer(&request, true);
        assert_eq!(gateway.expect("approval_closed")["outcome"], "approved");
        world.stop_engine("KILL");
        world.start_engine();
        let mut gateway = Gateway::of(&world);
        world.signal(&asker.child, "CONT");
        asker.end();
        assert_eq!(
            lines(&ran)
                .iter()
                .filter(|line| **line == format!("{through:?}"))
                .count(),
            1
        );
        // The new server neither shows it again nor accepts another answer.
        gateway.answer(&request, true);
        let late = gateway.expect("error");
        assert_eq!((&late["id"], &late["error"]), (&request["id"], &json!("late")));
        assert_eq!(state(&world, request["id"].as_str().unwrap()), "consumed");
    }
    world.close();
}

#[test]
fn an_engine_that_is_killed_while_a_command_runs_does_not_end_it() {
    let world = world(ON, true);
    let (go, ran) = (world.dir.path("work/go"), world.dir.path("work/ran"));
    let script = world.dir.write(
        "work/wait.sh",
        format!(
            "echo started >> {1}\nuntil test -e {0}; do sleep 0.01; done\necho finished >> {1}; echo told\n",
            go.display(),
            ran.display()
        ),
    );
    let line = format!("bash {}", script.display());
    let asker = Asker::start(&world, Through::Engine, &line);
    answer(&world, "approve", &asked(&world, &line));
    eventually("it has started", || lines(&ran).len() == 1);
    world.stop_engine("KILL");
    fs::write(&go, "").unwrap();
    assert_eq!(asker.end(), json!("told\n"));
    assert_eq!(lines(&ran), ["started", "finished"]);
    world.start_engine();
    world.close();
}

#[test]
fn a_gateway_that_goes_right_after_its_answer_has_answered_once_or_not_at_all() {
    let world = world(ON, true);
    for number in 0..10 {
        let (line, ran) = adding(&world, &number.to_string());
        let asker = Asker::start(&world, Through::Engine, &line);
        let mut gateway = Gateway::of(&world);
        let request = gateway.expect("approval_request");
        gateway.answer(&request, true);
        drop(gateway);
        // Another gateway approves as well, at the same time or later.
        let mut other = Gateway::of(&world);
        other.answer(&request, true);
        asker.end();
        let mine = number.to_string();
        assert_eq!(lines(&ran).iter().filter(|line| **line == mine).count(), 1);
        assert_eq!(state(&world, request["id"].as_str().unwrap()), "consumed");
    }
    // A client process, killed during execution.
    let (line, ran) = adding(&world, "last");
    let asker = Asker::start(&world, Through::Mcp, &line);
    let id = asked(&world, &line);
    let mut terminal = world.command(&[], ["gateway", "terminal"]);
    let mut terminal = terminal
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    world.watch(terminal.id());
    let mut shown = std::io::BufReader::new(terminal.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains(&id) {
        assert_ne!(std::io::BufRead::read_line(&mut shown, &mut text).unwrap(), 0);
    }
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    assert_eq!(state(&world, &id), "pending");
    answer(&world, "approve", &id);
    asker.end();
    assert_eq!(lines(&ran).last().unwrap(), "last");
    world.close();
}

mod alone {
    use super::*;

    const ROUNDS: u64 = 50;

    /// Returns a random number below another.
    fn any(below: u64) -> u64 {
        std::hash::RandomState::new().hash_one(0) % below
    }

    /// Approves every pending question until stopped; returns the texts of accepted approvals.
    fn agreeing(state: PathBuf, stop: &AtomicBool) -> BTreeSet<String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let service = Service::at(&state);
        let (mut approved, mut changes) = (BTreeSet::new(), service.changes());
        runtime.block_on(async {
            while !stop.load(Ordering::Relaxed) {
                for request in service.waiting().await.unwrap() {
                    let answer = Answer {
                        id: request.id.clone(),
                        verdict: Verdict::Approve,
                        remember: Remember::Once,
                        chat: request.chat.clone(),
                        digest: request.digest(),
                        by: "test".to_owned(),
                    };
                    if service.answer(answer).await.is_ok() {
                        approved.insert(request.text);
                    }
                }
                changes.next().await.unwrap();
            }
        });
        approved
    }

    /// A stop flag, set on drop, also when an assertion fails: otherwise joining the thread would hang.
    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Starts four concurrent askers, and kills each at some moment of its approximate lifetime.
    fn round(world: &World, number: u64, life: Duration) {
        let since = Instant::now();
        let askers = [Through::Tool, Through::Engine, Through::Mcp, Through::Tool];
        let mut askers: Vec<_> = askers
            .into_iter()
            .zip(0..)
            .map(|(through, which)| {
                let (line, _) = adding(world, &format!("{number}-{which}"));
                let moment = life * u32::try_from(any(1_200)).unwrap() / 1_000;
                (moment, Asker::start(world, through, &line))
            })
            .collect();
        askers.sort_by_key(|(moment, _)| *moment);
        for (moment, mut asker) in askers {
            std::thread::park_timeout(moment.saturating_sub(since.elapsed()));
            asker.kill();
        }
    }

    /// Returns the duration of four concurrent askers on this machine.
    fn life(world: &World) -> Duration {
        let since = Instant::now();
        let lines = (0..4).map(|which| adding(world, &format!("first-{which}")).0);
        let askers: Vec<_> = lines
            .map(|line| Asker::start(world, Through::Mcp, &line))
            .collect();
        askers.into_iter().for_each(|asker| drop(asker.end()));
        since.elapsed()
    }

    #[test]
    fn whenever_it_is_killed_a_command_runs_at_most_once_and_only_with_a_yes() {
        let world = world(ON, true);
        let ran = adding(&world, "").1;
        let stop = AtomicBool::new(false);
        let approved = std::thread::scope(|scope| {
            let state = world.dir.path("state/ringfence");
            let agreeing = scope.spawn(|| agreeing(state, &stop));
            let stop = Stop(&stop);
            let life = life(&world);
            for number in 0..ROUNDS {
                round(&world, number, life);
                if number % 20 == 10 {
                    world.stop_engine("KILL");
                    world.start_engine();
                }
            }
            drop(stop);
            agreeing.join().unwrap()
        });
        let done = lines(&ran);
        let once: BTreeSet<&String> = done.iter().collect();
        assert_eq!(once.len(), done.len(), "something ran twice: {done:?}");
        let mut states = std::collections::BTreeMap::<String, usize>::new();
        for request in requests(&world) {
            let (text, state) = (
                request["text"].as_str().unwrap(),
                request["state"].as_str().unwrap(),
            );
            *states.entry(state.to_owned()).or_default() += 1;
            let mark = text.rsplit(' ').next().unwrap().to_owned();
            assert_eq!(request["by"].is_string(), approved.contains(text), "{request}");
            match state {
                "consumed" => assert!(approved.contains(text), "{request}"),
                "abandoned" => assert!(!once.contains(&mark), "told as not run: {request}"),
                _ => panic!("nobody is left to wait: {request}"),
            }
        }
        let texts: BTreeSet<&str> = approved
            .iter()
            .filter_map(|text| text.rsplit(' ').next())
            .collect();
        assert!(done.iter().all(|line| texts.contains(line.as_str())), "{done:?}");
        // The kills came before, between and after.
        let reached = |state: &str| states.get(state).copied().unwrap_or_default();
        assert!(
            reached("consumed") > 20 && reached("abandoned") > 0 && done.len() > 10,
            "{states:?}, {} ran",
            done.len()
        );
        eventually_none("commands", || {
            let all = processes().into_iter();
            let ours = format!("{}", world.dir.path("work/add.sh").display());
            all.filter(|process| process.command.contains(&ours)).collect()
        });
        ringfence(&world, &["audit", "verify"]).ok();
        Asker::start(&world, Through::Mcp, "ls").end();
        world.close();
    }
}
