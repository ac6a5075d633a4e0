//! Programs that abuse their end of the bridge: other programs, and the server, are not harmed.

use serde_json::Value;

use super::places::{Place, in_places};
use crate::world::Run;

in_places!(
    [local, engine, session, docker, gvisor, kept],
    [
        nonsense_closes_the_bridge_and_is_told,
        a_flood_is_cut_off,
        a_hundred_thousand_calls_are_too_many,
        a_program_that_does_not_listen_holds_up_itself_alone,
        hanging_up_in_the_middle_harms_nobody,
        what_a_program_makes_of_its_own_end_is_its_own_business,
    ]
);
// Podman is slow, and its containers do not differ from Docker's in anything usable by a program here.
in_places!(
    [podman],
    [a_flood_is_cut_off, a_hundred_thousand_calls_are_too_many]
);

/// Writes to the raw channel, and reads from it.
const RAW: &str = "
import json, os
fd = device._descriptor
os.set_blocking(fd, True)
def say(text): os.write(fd, text.encode())
def call(id, path='Probe.count', **data): say(json.dumps({'type': 'call', 'id': id, 'data': {'path': path, **data}}) + '\\n')
def hear(stream=os.fdopen(os.dup(fd), 'r')): return stream.readline()
";

fn raw(place: &Place, code: &str) -> Run {
    place.run("60s", &format!("{RAW}\n{code}"))
}

/// Asserts that the program was told the reason before its bridge was closed, and that its result reports it.
fn closed(place: &Place, code: &str, why: &str) {
    let run = raw(
        place,
        &format!("{code}\nwhile line := hear(): print(line, end='')\nprint('closed')"),
    );
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

fn nonsense_closes_the_bridge_and_is_told(place: &Place) {
    closed(place, "say('hello\\n')", "is not a message");
    closed(
        place,
        "say('{\"type\":\"result\",\"id\":\"1\",\"data\":{\"value\":1}}\\n')",
        "only the host may send",
    );
    closed(place, "say('[' * 100_000 + '\\n')", "nested deeper");
    closed(
        place,
        "call('1', 'Pace.nap', args=[60]); call('1', 'Pace.nap', args=[60])",
        "the same id",
    );
    closed(place, "call('x' * 100)", "an id of 100 bytes");
}

fn a_flood_is_cut_off(place: &Place) {
    let code = "
try:
    for _ in range(100): say('x' * 1_000_000)
except OSError as error: print(type(error).__name__)
print(hear())
";
    let run = raw(place, code);
    assert!(run.stdout().contains("longer than 1048576 bytes"), "{run:#?}");
}

fn a_hundred_thousand_calls_are_too_many(place: &Place) {
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
    let run = raw(place, code);
    // The order of the last answers is not fixed, and those after the close are not delivered.
    assert!(
        run.stdout().contains("'limit_exceeded': 1, 'closed': 1"),
        "{run:#?}"
    );
    let warnings = run.get("meta.warnings").to_string();
    assert!(warnings.contains("a run may make 1000 calls"), "{run:#?}");
}

fn a_program_that_does_not_listen_holds_up_itself_alone(place: &Place) {
    let code = "
import threading
threading.Thread(target=lambda: [call(str(number), 'Probe.much', args=[900_000]) for number in range(60)], daemon=True).start()
import time; time.sleep(60)
";
    let run = place.run("2s", &format!("{RAW}\n{code}"));
    assert_eq!(run.get("meta.outcome"), "timed_out", "{run:#?}");
    place.is_well();
}

fn hanging_up_in_the_middle_harms_nobody(place: &Place) {
    let code = "
call('1', 'Pace.nap', args=[60])
say('{\"type\":\"call\"')
os.close(fd)
print('gone')
";
    assert_eq!(raw(place, code).stdout(), "gone\n");
}

fn what_a_program_makes_of_its_own_end_is_its_own_business(place: &Place) {
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
    let run = raw(place, code);
    let lines: Vec<&str> = run.stdout().lines().collect();
    assert_eq!(lines[0], "['forged'] forged");
    assert_eq!(lines[1], r#"{"type":"result","id":"1","data":{"value":0}}"#);
    assert_eq!(lines[2..], ["not_found", "not_found"]);
}
