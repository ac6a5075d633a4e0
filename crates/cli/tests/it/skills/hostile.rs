//! Programs that use their end of the bridge as they like: the others, and the engine, take no harm from it.

use serde_json::Value;

use super::{PROBE, put, run};
use crate::world::{Run, World};

/// Writes to the channel itself, and reads from it.
const RAW: &str = "
import json, os
fd = device._descriptor
os.set_blocking(fd, True)
def say(text): os.write(fd, text.encode())
def call(id, path='Probe.count', **data): say(json.dumps({'type': 'call', 'id': id, 'data': {'path': path, **data}}) + '\\n')
def hear(stream=os.fdopen(os.dup(fd), 'r')): return stream.readline()
";

fn raw(code: &str) -> Run {
    let world = World::here();
    put(&world.dir, "probe.py", PROBE);
    let run = run(&world, &[], &format!("{RAW}\n{code}"));
    // The host is well: another program is served.
    let after = super::run(&world, &[], "print(device.Probe.add(1))");
    assert_eq!(after.stdout(), "2\n", "{after:#?}");
    world.close();
    run
}

/// What the program was told before its bridge was closed, and that its result says so.
fn closed(code: &str, why: &str) {
    let run = raw(&format!(
        "{code}\nwhile line := hear(): print(line, end='')\nprint('closed')"
    ));
    let last = run.stdout().lines().rev().nth(1).unwrap_or_default();
    let told: Value = serde_json::from_str(last).unwrap_or_default();
    assert_eq!(told["data"]["kind"], "closed", "{run:#?}");
    assert!(told["data"]["error"].as_str().unwrap().contains(why), "{run:#?}");
    assert!(run.stdout().ends_with("closed\n"), "{run:#?}");
    let warnings = run.get("meta.warnings").to_string();
    assert!(
        warnings.contains("the bridge to the skills was closed") && warnings.contains(why),
        "{run:#?}"
    );
    assert_eq!(run.get("exit_code"), 0, "{run:#?}");
}

#[test]
fn nonsense_closes_the_bridge_and_is_told() {
    closed("say('hello\\n')", "no message");
    closed(
        "say('{\"type\":\"result\",\"id\":\"1\",\"data\":{\"value\":1}}\\n')",
        "only the host sends",
    );
    closed("say('[' * 100_000 + '\\n')", "nested deeper");
    closed(
        "call('1', 'Pace.nap', args=[60]); call('1', 'Pace.nap', args=[60])",
        "the same id",
    );
    closed("call('x' * 100)", "an id of 100 bytes");
}

#[test]
fn a_flood_is_cut_off() {
    let code = "
try:
    for _ in range(100): say('x' * 1_000_000)
except OSError as error: print(type(error).__name__)
print(hear())
";
    let run = raw(code);
    assert!(run.stdout().contains("longer than 1048576 bytes"), "{run:#?}");
}

#[test]
fn a_hundred_thousand_calls_are_too_many() {
    let code = "
import threading
def all():
    try:
        for number in range(100_000): call(str(number))
    except OSError: pass
threading.Thread(target=all).start()
kinds = {}
while line := hear():
    message = json.loads(line)
    kind = message['data'].get('kind', message['type'])
    kinds[kind] = kinds.get(kind, 0) + 1
print(kinds)
";
    let run = raw(code);
    // The order in which the last answers come is not fixed, and those behind the end are not given.
    assert!(
        run.stdout().contains("'limit_exceeded': 1, 'closed': 1"),
        "{run:#?}"
    );
    let warnings = run.get("meta.warnings").to_string();
    assert!(warnings.contains("a run may make 1000 calls"), "{run:#?}");
}

#[test]
fn a_program_that_does_not_listen_holds_up_itself_alone() {
    let code = "
import threading
threading.Thread(target=lambda: [call(str(number), 'Probe.much', args=[900_000]) for number in range(60)], daemon=True).start()
import time; time.sleep(60)
";
    let world = World::here();
    put(&world.dir, "probe.py", PROBE);
    let run = world.json([
        "--skills",
        "skills",
        "--timeout",
        "2s",
        "-c",
        &format!("{RAW}\n{code}"),
    ]);
    run.ended("timed_out", -1, 124);
    world.close();
}

#[test]
fn hanging_up_in_the_middle_harms_nobody() {
    let code = "
call('1', 'Pace.nap', args=[60])
say('{\"type\":\"call\"')
os.close(fd)
print('gone')
";
    assert_eq!(raw(code).stdout(), "gone\n");
}

#[test]
fn what_a_program_makes_of_its_own_end_is_its_own_business() {
    let code = "
type(device).search_skills = lambda self, query='': ['forged']
device.Probe.add = lambda a: 'forged'
print(device.search_skills(), device.Probe.add(1))
os.set_blocking(fd, True)
call('1', 'Probe.add', args=[1], kwargs={'minus': True})
print(hear(), end='')
call('2', 'Probe._private')
print(json.loads(hear())['data']['kind'])
call('3', '../probe')
print(json.loads(hear())['data']['kind'])
";
    let run = raw(code);
    let lines: Vec<&str> = run.stdout().lines().collect();
    assert_eq!(lines[0], "['forged'] forged");
    assert_eq!(lines[1], r#"{"type":"result","id":"1","data":{"value":0}}"#);
    assert_eq!(lines[2..], ["not_found", "not_found"]);
}
