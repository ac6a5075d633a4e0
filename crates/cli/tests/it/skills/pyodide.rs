//! Programs in Pyodide that call functions of the host, and programs there that attempt attacks.

use serde_json::Value;

use super::{CONFORMANCE, PROBE, put};
use crate::pyodide::installed;
use crate::world::{Run, World};

/// Writes anything to the program's end of the bridge, and reads the replies.
const RAW: &str = "
import json
port, heard = device._bridge().channel.port, ''
def say(text): port.send(text)
def call(id, path='Probe.count', **data): say(json.dumps({'type': 'call', 'id': id, 'data': {'path': path, **data}}) + '\\n')
def hear():
    global heard
    while '\\n' not in heard:
        text = port.taken()
        if text is None: return ''
        heard += text
        if not text: port.wait()
    line, _, heard = heard.partition('\\n')
    return line + '\\n'
";

/// Creates a world with skills whose programs run in Pyodide and may import anything.
fn world() -> World {
    world_of(World::here())
}

fn world_of(world: World) -> World {
    put(&world.dir, "probe.py", PROBE);
    let config = format!(
        "[skills.sandbox]\nblocked_imports = []\ndirectory = '{}'\n",
        installed().display()
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    world
}

#[track_caller]
fn run(world: &World, options: &[&str], code: &str) -> Run {
    let fixed = ["--runtime", "pyodide", "--skills", "skills"];
    world.json([&fixed, options, &["-c", code]].concat())
}

/// Runs code with the raw bridge, and asserts that another program is served afterwards.
#[track_caller]
fn raw(timeout: &str, code: &str) -> Run {
    let world = world();
    let ran = run(&world, &["--timeout", timeout], &format!("{RAW}\n{code}"));
    let after = run(&world, &["--timeout", "60s"], "print(device.Probe.add(1))");
    assert_eq!(after.stdout(), "2\n", "{after:#?}");
    world.close();
    ran
}

/// Asserts that a program's message closes the bridge, with a reason for the program and in its result.
fn closed(code: &str, why: &str) {
    let run = raw(
        "60s",
        &format!("{code}\nlast = ''\nwhile line := hear(): last = line\nprint(last)"),
    );
    let told: Value = serde_json::from_str(run.stdout().trim()).unwrap_or_default();
    assert_eq!(told["data"]["kind"], "closed", "{run:#?}");
    assert!(told["data"]["error"].as_str().unwrap().contains(why), "{run:#?}");
    assert!(run.get("meta.warnings").to_string().contains(why), "{run:#?}");
    assert_eq!(run.get("exit_code"), 0, "{run:#?}");
}

#[test]
fn a_program_can_rely_on_its_bridge() {
    let world = world();
    let run = run(&world, &["--memory", "512MiB", "--timeout", "60s"], CONFORMANCE);
    assert_eq!(run.get("exit_code"), 0, "{run:#?}");
    let checks = CONFORMANCE
        .lines()
        .filter(|line| line.starts_with("def "))
        .count()
        - 1;
    let held = run.stdout().lines().filter(|line| line.starts_with("holds: "));
    assert_eq!(held.count(), checks, "{run:#?}");
    world.close();
}

/// The program runs in the server, and its calls are answered by the client process.
#[test]
fn an_engine_runs_programs_that_call_functions() {
    let world = world_of(World::before_engine());
    world.start_engine();
    let ready = (0..20).any(|_| {
        let run = run(&world, &["--timeout", "60s"], "print(device.Probe.add(1))");
        assert_eq!(run.stdout(), "2\n", "{run:#?}");
        run.get("meta.warm") == true
    });
    assert!(ready, "never warm");
    world.close();
}

#[test]
fn nonsense_closes_the_bridge_and_is_told() {
    closed("say('hello\\n')", "is not a message");
    closed("say('[' * 100_000 + '\\n')", "nested deeper");
    closed("say('x' * 1_100_000)", "longer than 1048576 bytes");
}

#[test]
fn a_hundred_thousand_calls_are_too_many() {
    closed(
        "
for number in range(100_000):
    if port.room() < 200 or port.taken() is None: break
    call(str(number))
",
        "a run may make 1000 calls",
    );
}

#[test]
fn more_than_there_is_room_for_ends_the_program() {
    let code =
        "for number in range(16): call(str(number), 'Pace.nap', args=[60])\nwhile True: say('x' * 1_000_000)";
    let run = raw("60s", code);
    run.ended("unknown", 125, 125);
    let warnings = run.get("meta.warnings").to_string();
    assert!(warnings.contains("sent a malformed message"), "{run:#?}");
}

/// Unread answers accumulate; the program's output arrives nevertheless.
#[test]
fn a_program_that_does_not_listen_holds_up_itself_alone() {
    let code = "
for number in range(16): call(str(number), 'Probe.much', args=[900_000])
print('y' * 1_000_000)
";
    assert_eq!(raw("60s", code).get("meta.stdout_bytes"), 1_000_001);
    let code = format!("{code}\nwhile True: pass");
    raw("2s", &code).ended("timed_out", -1, 124);
}

/// JavaScript objects under a program's control are its own claims, and pass through the gatekeeper as such.
#[test]
fn forged_messages_are_worth_no_more_than_its_own() {
    let forged = r#"
import base64
from pyodide.ffi import create_proxy, to_js
text = base64.b64encode(b'{"type":"call","id":"9","data":{"path":"Probe._private"}}\n').decode()
to_js(b'1').constructor.prototype.toBase64 = create_proxy(lambda *rest: text)
"#;
    let code = format!(
        "{forged}\nsay('anything')\nanswer = hear()\nraise SystemExit(3 if 'not_found' in answer else 4)"
    );
    let run = raw("60s", &code);
    assert_eq!(run.get("meta.outcome"), "exited", "{run:#?}");
    assert_eq!(run.get("exit_code"), 3, "{run:#?}");
}

#[test]
fn what_a_program_makes_of_its_own_end_is_its_own_business() {
    let code = "
type(device).search_skills = lambda self, query='': ['forged']
device.Probe.add = lambda a: 'forged'
print(device.search_skills(), device.Probe.add(1))
call('1', 'Probe.add', args=[1], kwargs={'minus': True})
print(hear(), end='')
call('2', '../probe')
print(json.loads(hear())['data']['kind'])
";
    let run = raw("60s", code);
    let expected =
        "['forged'] forged\n{\"type\":\"result\",\"id\":\"1\",\"data\":{\"value\":0}}\nnot_found\n";
    assert_eq!(run.stdout(), expected, "{run:#?}");
}

#[test]
fn a_program_without_skills_has_no_bridge() {
    let world = world();
    let code = "print('device' in globals())";
    assert_eq!(run(&world, &["--timeout", "60s"], code).stdout(), "True\n");
    let without = world.json(["--runtime", "pyodide", "--timeout", "60s", "-c", code]);
    assert_eq!(without.stdout(), "False\n", "{without:#?}");
    world.close();
}
