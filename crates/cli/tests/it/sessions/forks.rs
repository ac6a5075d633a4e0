//! Forks of sessions: independent copies.

use serde_json::{Value, json};

use super::{STUBBORN, engine, engine_with, evaluate, lasting, lost, session, sessions, value};
use crate::world::{Mode, Place, World};

#[track_caller]
fn fork(world: &World, from: &str, to: &str) {
    session(world, &["fork", from, to]).ok();
}

#[test]
fn a_fork_begins_as_its_original_is_and_goes_its_own_way() {
    engine(|world| {
        evaluate(
            world,
            "a",
            "import math\nx = [1]\nopen('f', 'w').write('one')\nprint('held back', end='')",
        );
        fork(world, "a", "b");
        assert_eq!(
            value(world, "b", "x, open('f').read(), math.pi > 3"),
            "([1], 'one', True)"
        );
        evaluate(world, "b", "x.append(2); open('f', 'w').write('two')");
        evaluate(world, "a", "x.append(3)");
        fork(world, "b", "c");
        assert_eq!(value(world, "a", "x, open('f').read()"), "([1, 3], 'one')");
        assert_eq!(value(world, "b", "x, open('f').read()"), "([1, 2], 'two')");
        assert_eq!(value(world, "c", "x, open('f').read()"), "([1, 2], 'two')");
        let listed = sessions(world);
        let seen: Vec<_> = listed
            .iter()
            .map(|session| (&session["id"], &session["evaluations"], &session["forked_from"]))
            .collect();
        let (a, b, c) = (json!("a"), json!("b"), json!("c"));
        let counts = [json!(3), json!(4), json!(4)];
        assert_eq!(
            seen,
            [
                (&a, &counts[0], &Value::Null),
                (&b, &counts[1], &a),
                (&c, &counts[2], &b)
            ]
        );
    });
}

/// A session that has awaited has an event loop, whose descriptors a fork shares.
#[test]
fn a_fork_awaits_beside_its_original() {
    engine(|world| {
        evaluate(world, "a", "import asyncio\nawait asyncio.sleep(0)\nx = 1");
        fork(world, "a", "b");
        for (id, expected) in [("b", "2"), ("a", "1"), ("b", "2")] {
            if id == "b" {
                evaluate(world, "b", "x = 2");
            }
            assert_eq!(value(world, id, "await asyncio.sleep(0.001, x)"), expected);
        }
    });
}

#[test]
fn a_fork_has_a_fence_and_limits_of_its_own() {
    engine(|world| {
        session(world, &["new", "a", "--memory", "96MiB"]).ok();
        evaluate(world, "a", "kept = b'k' * (40 << 20)");
        fork(world, "a", "b");
        let own = "import os\n[os.readlink(f'/proc/self/ns/{n}') for n in ('pid', 'mnt', 'net', 'ipc', 'uts', 'user')]";
        let namespaces = [value(world, "a", own), value(world, "b", own)].map(|value| {
            let names = value.as_str().unwrap().to_owned();
            names.split(", ").map(str::to_owned).collect::<Vec<_>>()
        });
        for (one, other) in namespaces[0].iter().zip(&namespaces[1]) {
            assert_ne!(one, other);
        }
        let run = evaluate(world, "b", "sum(map(str.isdigit, os.listdir('/proc'))) <= 2");
        assert_eq!(run.get("meta.session.value"), "True");
        assert_eq!(
            run.get("meta.isolation"),
            evaluate(world, "a", "1").get("meta.isolation")
        );
        // Each has the limit to itself.
        evaluate(world, "a", "more = b'm' * (30 << 20)").ended("exited", 0, 0);
        evaluate(world, "b", "more = b'm' * (30 << 20)").ended("exited", 0, 0);
        lost(
            &evaluate(world, "b", "most = b'm' * (80 << 20)"),
            "memory_exceeded",
            -9,
            137,
        );
        assert_eq!(value(world, "a", "len(more)"), "31457280");
    });
}

#[test]
fn neither_end_takes_the_other_along() {
    engine(|world| {
        evaluate(world, "a", "x = 1");
        for name in ["b", "c", "d"] {
            fork(world, "a", name);
        }
        let over = world.json(["--session", "b", "--timeout", "300ms", "-c", STUBBORN]);
        lost(&over, "timed_out", -1, 124);
        assert_eq!(value(world, "a", "x"), "1");
        lost(&evaluate(world, "a", "import os; os._exit(3)"), "exited", 3, 3);
        assert_eq!(value(world, "c", "x"), "1");
        // The name is free, even if forks of its earlier session live on.
        assert_eq!(value(world, "a", "'x' in globals()"), "False");
        session(world, &["rm", "c"]).ok();
        fork(world, "d", "e");
        session(world, &["rm", "d"]).ok();
        assert_eq!(value(world, "e", "x"), "1");
    });
}

#[test]
fn what_cannot_be_forked_is_refused_and_stays_whole() {
    engine(|world| {
        evaluate(
            world,
            "a",
            "import threading\nx = 1\ngo = threading.Event()\nt = threading.Thread(target=go.wait)\nt.start()",
        );
        let threads = session(world, &["fork", "a", "b"]);
        threads.refused(125, "a session that has more than one thread");
        assert!(
            threads.stderr.contains("let its threads end first"),
            "{threads:?}"
        );
        assert_eq!(sessions(world).len(), 1);
        assert_eq!(value(world, "a", "go.set(); t.join(); x"), "1");
        fork(world, "a", "b");
        session(world, &["fork", "a", "b"]).refused(125, "the session `b` already exists");
        session(world, &["fork", "nobody", "c"]).refused(125, "no session `nobody`");
        session(world, &["fork", "a", "c", "--user", "bob"]).refused(125, "no session `a`");
        assert_eq!(value(world, "b", "x"), "1");
    });
    engine_with("max_sessions = 1", |world| {
        evaluate(world, "a", "1");
        session(world, &["fork", "a", "b"]).refused(125, "limit_exceeded");
        assert_eq!(sessions(world).len(), 1);
    });
}

#[test]
fn without_namespaces_there_are_no_forks() {
    let Some(world) = World::new(Mode::Engine, Place::Container) else {
        return;
    };
    evaluate(&world, "a", "x = 1").ended("exited", 0, 0);
    let refused = session(&world, &["fork", "a", "b"]);
    assert_eq!(refused.status, 125, "{refused:?}");
    assert!(
        refused.stderr.contains("the session `a` cannot be forked"),
        "{refused:?}"
    );
    assert_eq!(evaluate(&world, "a", "x").get("meta.session.value"), "1");
    session(&world, &["rm", "a"]).ok();
    world.close();
}

#[test]
fn a_fork_waits_for_the_evaluation() {
    engine(|world| {
        evaluate(world, "a", "import time\nlog = []");
        let code = "log.append('in')\nprint('begun', flush=True)\ntime.sleep(0.2)\nlog.append('out')";
        let mut running = world.call(["--session", "a", "-c", code]).start();
        std::io::Read::read_exact(running.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        fork(world, "a", "b");
        assert!(running.wait().unwrap().success());
        assert_eq!(value(world, "b", "log"), "['in', 'out']");
    });
}

/// A session that resists a fork harms itself alone.
#[test]
fn a_session_that_will_not_be_forked_harms_itself_alone() {
    engine(|world| {
        evaluate(world, "witness", "x = 1");
        for code in [
            "import os; os.close(5)",
            "import os; os.register_at_fork(before=lambda: os._exit(3))",
            "import os; os.register_at_fork(after_in_child=lambda: os._exit(3))",
            "import os; os.register_at_fork(after_in_parent=lambda: os._exit(3))",
            "import os; os.register_at_fork(before=lambda: os.write(3, b'x' * 99))",
            "import os, time; os.register_at_fork(before=lambda: time.sleep(1000))",
        ] {
            evaluate(world, "a", code).ended("exited", 0, 0);
            session(world, &["fork", "a", "b"]);
            for name in ["a", "b"] {
                // Whichever of them is still alive ends on request.
                session(world, &["rm", name]);
            }
            assert_eq!(sessions(world).len(), 1, "{code}");
        }
        fork(world, "witness", "b");
        assert_eq!(value(world, "b", "x"), "1");
    });
}

#[test]
fn many_forks_leave_nothing() {
    engine_with("max_sessions = 40\npool_size = 1", |world| {
        evaluate(world, "a", "x = 1");
        for number in 0..30 {
            fork(world, "a", &format!("f{number}"));
        }
        session(world, &["rm", "a"]).ok();
        for number in 0..10 {
            session(world, &["rm", &format!("f{number}")]).ok();
        }
        assert_eq!(sessions(world).len(), 20);
        assert_eq!(value(world, "f29", "x"), "1");
    });
}

#[test]
fn a_client_that_vanishes_from_a_fork_interrupts_the_fork_alone() {
    engine(|world| {
        evaluate(world, "a", "x = 1");
        fork(world, "a", "b");
        let other = lasting(world, "a");
        let mut child = lasting(world, "b");
        child.kill().unwrap();
        child.wait().unwrap();
        // It waits for the interrupted evaluation.
        assert_eq!(value(world, "b", "x"), "1");
        assert_eq!(sessions(world)[0]["idle_seconds"], serde_json::Value::Null);
        session(world, &["rm", "a"]).ok();
        assert_eq!(other.wait_with_output().unwrap().status.code(), Some(130));
    });
}
