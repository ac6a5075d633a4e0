//! Evaluations that are interrupted: the session keeps its variables, or ends soon.

use std::time::{Duration, Instant};

use super::{STUBBORN, engine, evaluate, kept, lasting, lost, session, sessions, value};
use crate::support::{eventually, eventually_none};
use crate::world::World;

/// The grace period of an interrupted evaluation, and time for a busy machine to end it.
const ENDED: Duration = Duration::from_secs(3 + 5);

#[track_caller]
fn over(world: &World, code: &str) -> crate::world::Run {
    world.json(["--session", "a", "--timeout", "300ms", "-c", code])
}

#[test]
fn a_timeout_keeps_the_variables() {
    engine(|world| {
        evaluate(world, "a", "x = 1\nimport subprocess, threading, time");
        for code in [
            "print('begun')\nwhile True: pass",
            "print('begun', flush=True)\ntime.sleep(1000)",
            "print('begun', flush=True)\nsubprocess.run(['sleep', '1000'])",
            "print('begun', flush=True)\nthreading.Event().wait()",
        ] {
            let run = over(world, code);
            kept(&run, "timed_out", -1, 124);
            assert_eq!(run.get("meta.timed_out"), true);
            assert_eq!(run.stdout(), "begun\n");
            let said = run.stderr();
            assert!(
                said.contains("KeyboardInterrupt\nexecution timed out after 300ms\n"),
                "{said}"
            );
            let next = evaluate(world, "a", "x += 1; x");
            next.ended("exited", 0, 0);
            assert_eq!(
                (next.get("stderr"), next.result["meta"].get("warnings")),
                (&"".into(), None)
            );
        }
        assert_eq!(value(world, "a", "x"), "5");
        let shown = world.run(["--session", "a", "--timeout", "300ms", "-c", "while True: pass"]);
        assert_eq!(shown.status, 124);
        let said = shown.stderr;
        let told = "error: execution timed out after 300ms\nwarning: the session `a` was interrupted and keeps its variables\n";
        assert!(said.contains(told), "{said}");
    });
}

/// Code that catches the interrupt may still return a value; the result says that it was late.
#[test]
fn the_value_of_an_interrupted_evaluation_is_kept() {
    engine(|world| {
        let code = "import time\ntry: time.sleep(1000)\nexcept KeyboardInterrupt: part = 7\npart";
        let run = over(world, code);
        kept(&run, "timed_out", -1, 124);
        assert_eq!(run.get("meta.session.value"), "7");
    });
}

#[test]
fn code_that_no_interrupt_stops_is_killed_with_its_session() {
    engine(|world| {
        evaluate(world, "witness", "x = 1");
        let in_c = "sum(range(10 ** 12))";
        let ignoring = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
        for code in [STUBBORN, in_c, ignoring] {
            evaluate(world, "a", "x = 1");
            let since = Instant::now();
            let run = over(world, code);
            let took = since.elapsed();
            lost(&run, "timed_out", -1, 124);
            assert!(took < ENDED, "{took:?}");
            let fresh = evaluate(world, "a", "x");
            fresh.ended("exited", 1, 1);
            let warned = fresh.get("meta.warnings").to_string();
            assert!(
                warned.contains("`a` before ended") && warned.contains("an evaluation timed out"),
                "{warned}"
            );
            assert_eq!(fresh.get("meta.session.evaluations"), 1);
            session(world, &["rm", "a"]).ok();
        }
        let shown = world.run(["--session", "a", "--timeout", "300ms", "-c", STUBBORN]);
        assert_eq!(shown.status, 124);
        assert_eq!(
            shown.stderr,
            "error: execution timed out after 300ms\nerror: the session `a` was ended and its variables are lost\n\
             hint: allow more with `--timeout 600ms` (`sandbox.timeout`)\n"
        );
        assert_eq!(value(world, "witness", "x"), "1");
    });
}

#[test]
fn what_is_printed_after_the_limit_is_bounded() {
    engine(|world| {
        let flood =
            "while True:\n    try:\n        while True: print('y' * 10_000)\n    except BaseException: pass";
        let run = over(world, flood);
        lost(&run, "timed_out", -1, 124);
        assert_eq!(run.get("meta.truncated"), true);
        assert!(run.stdout().len() < 11_000);
    });
}

/// The interrupt of one session reaches neither another one nor the processes that a session started before.
#[test]
fn an_interrupt_reaches_its_own_session_alone() {
    engine(|world| {
        let other = lasting(world, "b");
        evaluate(
            world,
            "a",
            "import subprocess\np = subprocess.Popen(['sleep', '1000'])",
        );
        kept(&over(world, "while True: pass"), "timed_out", -1, 124);
        assert_eq!(value(world, "a", "p.poll(), p.kill()"), "(None, None)");
        assert_eq!(
            sessions(world).iter().find(|one| one["id"] == "b").unwrap()["idle_seconds"],
            serde_json::Value::Null
        );
        session(world, &["rm", "b"]).ok();
        assert_eq!(other.wait_with_output().unwrap().status.code(), Some(130));
    });
}

#[test]
fn a_cancelled_evaluation_keeps_the_variables() {
    engine(|world| {
        evaluate(world, "a", "x = 1");
        let running = lasting(world, "a");
        world.signal(&running, "TERM");
        let output = running.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("the session `a` was interrupted and keeps its variables"),
            "{said}"
        );
        assert_eq!(value(world, "a", "x"), "1");
        let mut vanished = lasting(world, "a");
        vanished.kill().unwrap();
        vanished.wait().unwrap();
        eventually("the session is idle", || {
            !sessions(world)[0]["idle_seconds"].is_null()
        });
        assert_eq!(value(world, "a", "x"), "1");
    });
}

/// A client that is gone gives nobody more than the grace period.
#[test]
fn a_vanished_client_of_stubborn_code_takes_the_session_along() {
    engine(|world| {
        let mut child = world
            .call([
                "--session",
                "a",
                "--timeout",
                "300s",
                "-c",
                // Printed inside `try`: an interrupt before it would end the code, and the session would stay.
                "import time\nwhile True:\n    try:\n        print('begun', flush=True); time.sleep(1)\n    except BaseException: print('no')",
            ])
            .start();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        eventually_none("sessions", || sessions(world));
        let why = evaluate(world, "a", "1").get("meta.warnings").to_string();
        assert!(why.contains("an evaluation was cancelled"), "{why}");
    });
}

/// An interrupt that comes when the code has just ended stops neither the session nor the next evaluation.
#[test]
fn an_interrupt_at_the_very_end_does_no_harm() {
    engine(|world| {
        evaluate(world, "a", "import time\nx = 0");
        for length in 0..30 {
            let code = format!("time.sleep({})\nx += 1", 0.045 + f64::from(length) * 0.0005);
            let run = world.json(["--session", "a", "--timeout", "50ms", "-c", &code]);
            assert!(run.get("meta.session.ended").is_null(), "{run:?}");
            let next = evaluate(world, "a", "x += 1; None");
            next.ended("exited", 0, 0);
            assert_eq!(next.get("stderr"), "");
        }
    });
}
