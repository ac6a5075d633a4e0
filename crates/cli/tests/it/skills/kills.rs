//! Processes killed during calls over the bridge: this is reported, and nothing is left.

use super::ends::questions;
use super::places::{Place, in_places};
use super::put;
use crate::containers::engines;
use crate::support::{eventually, eventually_none, finish};

in_places!(
    [engine, session, kept, pyodide],
    [
        an_engine_that_is_killed_takes_its_calls_along,
        one_who_asks_and_is_killed_takes_its_calls_along,
    ]
);
in_places!([local], [one_who_asks_and_is_killed_takes_its_calls_along]);

/// Uses the process of a skill, and waits for approval within its next call.
const CODE: &str = "device.Probe.count()\ndevice.Probe.add(41)\nprint('answered')";

fn an_engine_that_is_killed_takes_its_calls_along(place: &Place) {
    let world = &place.world;
    let running = waiting(place);
    let engine = world.engine_pid().unwrap();
    assert_eq!(world.stop_engine("KILL"), Some(-1));
    let output = running.wait_with_output().unwrap();
    let (told, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(125), "{told}{said}");
    assert!(!told.contains("answered"), "{told}{said}");
    assert!(told.contains("error") || said.contains("error"), "{told}{said}");
    // The asking process lives, and has cancelled the program's question.
    assert_eq!(questions(world), 0);
    let audit = std::fs::read_to_string(world.dir.path("state/ringfence/audit/audit.jsonl")).unwrap();
    let record = audit.lines().find(|line| line.contains("device.Probe.add"));
    assert!(
        record.is_some_and(|record| record.contains("\"cancelled\"")),
        "{audit}"
    );
    world.start_engine();
    goes_on(place);
    eventually_none("containers of the server that was killed", || {
        let all = engines().into_iter();
        all.flat_map(|engines| engines.left_by(engine)).collect()
    });
}

fn one_who_asks_and_is_killed_takes_its_calls_along(place: &Place) {
    let mut running = waiting(place);
    running.kill().unwrap();
    running.wait().unwrap();
    eventually("the question is taken back", || questions(&place.world) == 0);
    goes_on(place);
}

/// Starts a program that waits within a call.
fn waiting(place: &Place) -> std::process::Child {
    put(&place.world.dir, "probe.toml", "[policy]\n'Probe.add' = 'ask'\n");
    let running = place.begin("300s", CODE);
    eventually("the question is there", || questions(&place.world) == 1);
    running
}

/// Asserts that others are served, and that the audit log is intact.
fn goes_on(place: &Place) {
    let world = &place.world;
    std::fs::remove_file(world.dir.path("work/skills/probe.toml")).unwrap();
    place.is_well();
    finish(&mut world.command(&[], ["audit", "verify"]), b"").ok();
}
