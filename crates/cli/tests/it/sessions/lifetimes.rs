//! The users of sessions, their number, and their ends.

use serde_json::{Value, json};

use super::{STUBBORN, engine, engine_with, evaluate, kept, lasting, lost, session, sessions, value};
use crate::support::{eventually, eventually_none};
use crate::world::{Mode, Place, World, venv};

#[test]
fn users_do_not_see_each_others_sessions() {
    engine(|world| {
        evaluate(world, "a", "x = 'ours'");
        let theirs = world.json(["--user", "bob", "--session", "a", "-c", "'x' in globals()"]);
        assert_eq!(theirs.get("meta.session.value"), "False");
        let listed: Value =
            serde_json::from_str(session(world, &["ls", "--json", "--user", "bob"]).ok()).unwrap();
        assert_eq!(
            (listed.as_array().unwrap().len(), &listed[0]["evaluations"]),
            (1, &json!(1))
        );
        session(world, &["rm", "a", "--user", "eve"]).refused(125, "no session `a`");
        session(world, &["rm", "a", "--user", "bob"]).ok();
        assert_eq!(value(world, "a", "x"), "'ours'");
    });
}

#[test]
fn evaluations_of_one_session_wait_for_each_other() {
    engine(|world| {
        evaluate(world, "a", "import time\nlog = []");
        let code = "log.append('in')\ntime.sleep(0.02)\nlog.append('out')";
        let children: Vec<_> = (0..8)
            .map(|_| world.call(["--session", "a", "-c", code]).start())
            .collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        assert_eq!(value(world, "a", "log == ['in', 'out'] * 8"), "True");
        // An evaluation that times out in the queue is reported, and the running one is not harmed.
        let mut running = lasting(world, "a");
        world
            .run(["--session", "a", "--timeout", "100ms", "-c", "1"])
            .refused(125, "busy: the session `a`");
        // So is a cancelled one.
        let waiting = world.call(["--session", "a", "-c", "1"]).start();
        eventually("it can be told", || catches_term(waiting.id()));
        world.signal(&waiting, "TERM");
        let waiting = waiting.wait_with_output().unwrap();
        assert_eq!(waiting.status.code(), Some(125), "{waiting:?}");
        assert!(
            String::from_utf8_lossy(&waiting.stderr).contains("cancelled while it waited"),
            "{waiting:?}"
        );
        assert_eq!(value(world, "b", "1"), "1");
        assert_eq!(sessions(world)[0]["idle_seconds"], Value::Null);
        session(world, &["rm", "a"]).ok();
        assert_eq!(running.wait().unwrap().code(), Some(130));
        assert_eq!(sessions(world).len(), 1);
    });
}

/// Returns `true` if a process has a handler for SIGTERM (proc_pid_status(5)).
fn catches_term(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & (1 << 14) != 0
}

#[test]
fn idle_and_old_sessions_are_ended_by_the_clock() {
    engine_with("session_idle_minutes = '300ms'", |world| {
        evaluate(world, "a", "x = 1").ended("exited", 0, 0);
        eventually_none("idle sessions", || sessions(world));
        let fresh = evaluate(world, "a", "'x' in globals()");
        assert_eq!(fresh.get("meta.session.value"), "False");
        let why = fresh.get("meta.warnings").to_string();
        assert!(why.contains("it was not used for 300ms"), "{why}");
    });
    engine_with("session_lifetime_minutes = '1s'", |world| {
        evaluate(world, "a", "x = 1");
        // A running evaluation may finish, but usage does not extend the lifetime.
        let through = evaluate(world, "a", "import time; time.sleep(1.2); x");
        assert_eq!(through.get("meta.session.value"), "1");
        eventually_none("old sessions", || sessions(world));
        let why = evaluate(world, "a", "1").get("meta.warnings").to_string();
        assert!(why.contains("as old as a session may be (1s)"), "{why}");
    });
}

#[test]
fn there_are_only_so_many() {
    engine_with("max_sessions = 2", |world| {
        session(world, &["new", "a"]).ok();
        evaluate(world, "b", "1");
        let third = world.run(["--session", "c", "-c", "1"]);
        third.refused(125, "session limit reached (2)");
        for advice in ["ringfence session rm", "`engine.max_sessions`"] {
            assert!(third.stderr.contains(advice), "{third:?}");
        }
        session(world, &["new", "a"]).refused(125, "the session `a` already exists");
        session(world, &["rm", "a"]).ok();
        evaluate(world, "c", "1").ended("exited", 0, 0);
    });
}

#[test]
fn no_user_takes_the_share_of_another() {
    engine_with("max_sessions = 2", |world| {
        session(world, &["new", "a"]).ok();
        evaluate(world, "b", "1");
        session(world, &["new", "a", "--user", "bob"]).ok();
        session(world, &["new", "b", "--user", "bob"]).refused(125, "limit_exceeded");
        session(world, &["new", "c"]).refused(125, "limit_exceeded");
        assert_eq!(value(world, "b", "2"), "2");
        session(world, &["rm", "b"]).ok();
        let why = evaluate(world, "a", "1").get("meta.warnings").to_string();
        assert!(why.contains("another user needed its place"), "{why}");
    });
}

#[test]
fn what_it_was_made_with_stays() {
    engine(|world| {
        let data = world.dir.write("work/data", "shown");
        let mount = format!("{}:/data", data.display());
        let with = ["--session", "a", "--mount", &mount, "-c", "open('/data').read()"];
        assert_eq!(world.run(with).ok(), "'shown'\n");
        assert_eq!(world.run(with).ok(), "'shown'\n");
        assert_eq!(value(world, "a", "open('/data').read()"), "'shown'");
        let other = format!("{}:/other", data.display());
        let other = world.run(["--session", "a", "--mount", &other, "-c", "1"]);
        other.refused(125, "created with another set of mounts");
        // Its limits stay, too, and a run that asks for others says so.
        let same = world.json(["--session", "a", "--memory", "256MiB", "-c", "1"]);
        assert!(same.get("meta.warnings").is_null(), "{same:?}");
        let asked = world.json(["--session", "a", "--memory", "64MiB", "--pids", "9", "-c", "1"]);
        let told = asked.get("meta.warnings")[0].as_str().unwrap();
        assert!(
            told.contains("the session `a` keeps the limits")
                && told.contains("--memory and --pids had no effect"),
            "{told}"
        );
    });
}

#[test]
fn a_session_has_the_interpreter_of_its_engine() {
    let Some(python) = venv() else { return };
    engine(|world| {
        let evaluated = |options: &[&str]| {
            let code = ["--session", "a", "-c", "import sys; sys.executable"];
            // As within an activated virtual environment, or below a shim that puts another Python first.
            let mut path = std::path::Path::new(&python)
                .parent()
                .unwrap()
                .as_os_str()
                .to_owned();
            path.push(":/usr/bin:/bin");
            world
                .call([options, code.as_slice()].concat())
                .env("PATH", path)
                .output()
        };
        let own = value(world, "b", "import sys; sys.executable");
        assert_eq!(evaluated(&[]).ok(), format!("{}\n", own.as_str().unwrap()));
        evaluated(&["--python", &python]).refused(125, "set up for another interpreter");
    });
}

#[test]
fn what_is_no_use_of_a_session_is_refused() {
    let world = World::before_engine();
    world
        .run(["--session", "a", "-c", "1"])
        .refused(125, "sessions live in a server");
    session(&world, &["ls"]).refused(125, "sessions live in a server");
    world
        .run(["--session", "a", "-l", "bash", "-c", "1"])
        .refused(2, "a session is a Python interpreter");
    assert_eq!(world.run(["--session", "../a", "-c", "1"]).status, 2);
    assert_eq!(world.run(["--session", "a", "--unfenced", "-c", "1"]).status, 2);
    world.close();
}

#[test]
fn thirty_sessions_leave_nothing() {
    engine_with("max_sessions = 30\npool_size = 1", |world| {
        for number in 0..30 {
            let name = format!("s{number}");
            assert_eq!(
                value(world, &name, &format!("x = {number}; x")),
                number.to_string()
            );
        }
        assert_eq!(value(world, "s7", "x"), "7");
        for number in 0..10 {
            session(world, &["rm", &format!("s{number}")]).ok();
        }
        assert_eq!(sessions(world).len(), 20);
    });
}

#[test]
fn a_killed_engine_leaves_no_session() {
    let world = World::new(Mode::Engine, Place::Here).unwrap();
    evaluate(
        &world,
        "a",
        "import subprocess\np = subprocess.Popen(['sleep', '1009'])",
    );
    let running = lasting(&world, "b");
    assert_eq!(world.stop_engine("KILL"), Some(-1));
    assert_eq!(running.wait_with_output().unwrap().status.code(), Some(125));
    world.start_engine();
    assert_eq!(sessions(&world), [json!(null); 0]);
    assert_eq!(value(&world, "a", "1"), "1");
    world.close();
}

/// As an ordinary user, and where namespaces are forbidden, a session works as well as a run does.
#[test]
fn sessions_work_in_every_situation() {
    for place in [Place::User, Place::Container, Place::ContainerUser] {
        let Some(world) = World::new(Mode::Engine, place) else {
            continue;
        };
        evaluate(&world, "a", "x = 41").ended("exited", 0, 0);
        let run = evaluate(&world, "a", "x + 1");
        assert_eq!(run.get("meta.session.value"), "42", "{run:?}");
        let over = world.json(["--session", "a", "--timeout", "300ms", "-c", "while True: pass"]);
        kept(&over, "timed_out", -1, 124);
        assert_eq!(value(&world, "a", "x"), "41");
        let over = world.json(["--session", "a", "--timeout", "300ms", "-c", STUBBORN]);
        lost(&over, "timed_out", -1, 124);
        eventually("a new one is made", || {
            evaluate(&world, "a", "1").get("meta.session.evaluations") == 1
        });
        // Files on the host are measured between evaluations as well.
        if world.container() {
            let fill = "import threading\ndef fill():\n    with open('big', 'wb') as f:\n        for _ in range(90): f.write(bytes(1 << 20))\n\
                        threading.Timer(0.05, fill).start()";
            evaluate(&world, "a", fill).ended("exited", 0, 0);
            eventually_none("sessions that fill the disk", || sessions(&world));
            let why = evaluate(&world, "a", "1").get("meta.warnings").to_string();
            assert!(why.contains("exceeded its disk limit"), "{why}");
        }
        session(&world, &["rm", "a"]).ok();
        world.close();
    }
}
