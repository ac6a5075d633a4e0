//! Programs of LibreChat's that call their client's tools.

use serde_json::{Value, json};

use super::super::keys::Holder;
use super::super::world;
use super::{file, refused};

const TOOLS: &str = r#"[{"name": "get-x", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
                        {"name": "other", "description": "it's \"quoted\""}]"#;

fn with_tools(language: &str, code: &str) -> Value {
    let tools: Value = serde_json::from_str(TOOLS).unwrap();
    json!({"lang": language, "code": code, "tools": tools})
}

const PROGRAMMATIC: &str = "POST /librechat/v1/exec/programmatic";

/// Answers the calls of a round, and returns the next one.
#[track_caller]
fn answer(holder: &Holder, round: &Value, results: &[Value]) -> Value {
    assert_eq!(round["status"], "tool_call_required", "{round}");
    holder.ok(
        PROGRAMMATIC,
        &json!({"continuation_token": round["continuation_token"], "tool_results": results}),
    )
}

fn calls(round: &Value) -> Vec<(&str, &str, &Value)> {
    let calls = round["tool_calls"].as_array().unwrap().iter();
    calls
        .map(|call| {
            (
                call["id"].as_str().unwrap(),
                call["name"].as_str().unwrap(),
                &call["input"],
            )
        })
        .collect()
}

#[test]
fn a_program_calls_its_clients_tools_in_rounds() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    let code = "import os\n\
                seen = await asyncio.gather(get_x(a=1), get_x(2), other())\n\
                print(seen, os.getpid())\n\
                try:\n    await other(b=None)\nexcept ToolExecutionError as error:\n    print('caught', error)\n\
                open('made.txt', 'w').write('x')\n\
                print(os.getpid())\n\
                return";
    let round = holder.ok(PROGRAMMATIC, &with_tools("python", code));
    let asked = [
        ("call_001", "get-x", &json!({"a": 1})),
        ("call_002", "get-x", &json!({"a": 2})),
        ("call_003", "other", &json!({})),
    ];
    assert_eq!(calls(&round), asked);
    // What is left without a result is asked for again, and the results come in any order.
    let some = [
        json!({"call_id": "call_003", "result": [1, {"deep": "\u{e9}\n'"}]}),
        json!({"call_id": "call_001", "result": "one"}),
    ];
    let round = answer(&holder, &round, &some);
    assert_eq!(calls(&round), asked[1..2]);
    let round = answer(&holder, &round, &[json!({"call_id": "call_002", "result": null})]);
    assert_eq!(calls(&round), [("call_004", "other", &json!({}))]);
    let end = answer(
        &holder,
        &round,
        &[json!({"call_id": "call_004", "is_error": true, "error_message": "no such thing"})],
    );
    assert_eq!(
        (&end["status"], &end["stderr"]),
        (&json!("completed"), &json!("")),
        "{end}"
    );
    let lines: Vec<&str> = end["stdout"].as_str().unwrap().lines().collect();
    let (first, pid) = lines[0].rsplit_once(' ').unwrap();
    assert_eq!(
        first,
        "['one', None, [1, {'deep': '\u{e9}\\n\\''}]]".replace("'\u{e9}\\n\\''", "\"\u{e9}\\n'\"")
    );
    // One process from the beginning to the end: nothing is run again.
    assert_eq!((lines[1], lines[2]), ("caught no such thing", pid));
    file(&end, "made.txt");
    assert_eq!(holder.ok("GET /v1/sandboxes", &json!({}))["sandboxes"], json!([]));
    world.close();
}

#[test]
fn a_bash_program_calls_tools_too() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    let code = "set -eu\nx=$(get_x '{\"a\":\n 5}')\necho \"x is $x\"\nget_x & other '{}' & wait\nif (other '[]'); then echo no; fi\nother";
    let round = holder.ok(PROGRAMMATIC, &with_tools("bash", code));
    assert_eq!(calls(&round), [("call_001", "get-x", &json!({"a": 5}))]);
    let mut round = answer(
        &holder,
        &round,
        &[json!({"call_id": "call_001", "result": {"b": "c d"}})],
    );
    for id in ["call_002", "call_003"] {
        round = answer(&holder, &round, &[json!({"call_id": id, "result": id})]);
    }
    let end = answer(
        &holder,
        &round,
        &[json!({"call_id": "call_004", "is_error": true, "error_message": "not \"now\""})],
    );
    assert_eq!(
        (&end["status"], &end["error"]),
        (&json!("error"), &json!("Sandbox exited with code 1")),
        "{end}"
    );
    assert_eq!(
        end["stdout"],
        "x is {\"b\":\"c d\"}\n\"call_002\"\n\"call_003\"\n"
    );
    let told = end["stderr"].as_str().unwrap();
    assert!(
        told.contains("must be a JSON object") && told.contains(r#"not \"now\""#),
        "{told}"
    );
    world.close();
}

/// Returns the result of a call, to a program that waits.
fn asked(token: &str, id: &str) -> Value {
    json!({"continuation_token": token, "tool_results": [{"call_id": id, "result": 1}]})
}

#[test]
fn a_waiting_program_takes_results_of_its_tenant_alone() {
    let world = world();
    let holder = Holder::new(&world, &["--tenant", "team"]);
    let stranger = Holder::new(&world, &["--tenant", "others"]);
    let round = holder.ok(PROGRAMMATIC, &with_tools("python", "print(await get_x())"));
    let token = round["continuation_token"].as_str().unwrap();
    refused(
        &stranger.ask(PROGRAMMATIC, &asked(token, "call_001")),
        404,
        "no program waits",
    );
    refused(
        &holder.ask(PROGRAMMATIC, &asked("cnone", "call_001")),
        404,
        "no program waits",
    );
    // A result that nobody has asked for ends nothing.
    refused(
        &holder.ask(PROGRAMMATIC, &asked(token, "call_042")),
        400,
        "no result of a call",
    );
    assert_eq!(
        holder.ok(PROGRAMMATIC, &asked(token, "call_001"))["stdout"],
        "1\n"
    );
    refused(
        &holder.ask(PROGRAMMATIC, &asked(token, "call_001")),
        404,
        "no program waits",
    );

    world.close();
}

#[test]
fn lines_of_a_programs_own_reach_no_tool() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    // Tools that are not the client's, and lines that are none, reach nobody.
    let raw = r#"
import os, stat
def is_socket(number):
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False
bridge = next(filter(is_socket, range(3, 30)))
os.write(bridge, b'{"type": "call", "id": "z", "data": {"path": "rm-rf", "kwargs": {}}}\n')
print(await other())
os.write(bridge, b'{"type": "result", "id": "1", "data": {"value": 1}}\n')
try:
    await other()
except OSError as error:
    print(type(error).__name__)
"#;
    let round = holder.ok(PROGRAMMATIC, &with_tools("python", raw));
    assert_eq!(calls(&round), [("call_001", "other", &json!({}))]);
    let end = answer(
        &holder,
        &round,
        &[json!({"call_id": "call_001", "result": "fine"})],
    );
    assert_eq!(
        (&end["status"], &end["stdout"]),
        (&json!("completed"), &json!("fine\nConnectionError\n")),
        "{end}"
    );
    // Calls are kept up to a size: parsed, these would take gigabytes of the server.
    let many = "import json\nos.set_blocking(bridge, True)\nobjects = [{'a': {}}] * 24000\n\
                for number in range(64):\n    \
                    call = {'type': 'call', 'id': f'r{number}', 'data': {'path': 'other', 'kwargs': {'a': objects}}}\n    \
                    line = json.dumps(call).encode() + b'\\n'\n    \
                    while line: line = line[os.write(bridge, line):]\n";
    let find = &raw[..raw.find("os.write").unwrap()];
    let round = holder.ok(PROGRAMMATIC, &with_tools("python", &format!("{find}{many}")));
    assert!(calls(&round).len() < 8, "{}", calls(&round).len());
    // Standard output is never a message.
    let printed = r#"print('{"type":"call","id":"1","data":{"path":"other"}}')"#;
    assert_eq!(
        holder.ok(PROGRAMMATIC, &with_tools("python", printed))["status"],
        "completed"
    );

    world.close();
}

#[test]
fn programs_with_tools_end_at_their_limits() {
    let world = world();
    let holder = Holder::new(&world, &[]);
    let mut late = with_tools("python", "while True: pass");
    late["timeout"] = json!(300);
    let end = holder.ok(PROGRAMMATIC, &late);
    assert_eq!(
        (&end["status"], &end["error"]),
        (&json!("error"), &json!("Time limit exceeded"))
    );
    let failed = holder.ok(PROGRAMMATIC, &with_tools("python", "x = (\n"));
    assert!(
        failed["stderr"].as_str().unwrap().contains("SyntaxError"),
        "{failed}"
    );
    let failed = holder.ok(PROGRAMMATIC, &with_tools("python", "def f():\n    1/0\nf()"));
    let told = failed["stderr"].as_str().unwrap();
    assert!(
        told.contains(".main.py\", line 2, in f") && !told.contains("<string>"),
        "{told}"
    );
    for (wrong, words) in [
        (json!({"code": "1", "tools": []}), "1 to 100 tools"),
        (
            json!({"code": "1", "tools": [{"name": "a-b"}, {"name": "a_b"}]}),
            "needs a name",
        ),
        (
            json!({"code": "1", "lang": "js", "tools": [{"name": "a"}]}),
            "in python or bash",
        ),
        (json!({"tools": [{"name": "a"}]}), "expected `code`"),
    ] {
        refused(&holder.ask(PROGRAMMATIC, &wrong), 400, words);
    }
    // Programs that wait make room for newer ones, and end with the server.
    let tokens: Vec<Value> = (0..17)
        .map(|_| holder.ok(PROGRAMMATIC, &with_tools("bash", "other"))["continuation_token"].clone())
        .collect();
    refused(
        &holder.ask(PROGRAMMATIC, &asked(tokens[0].as_str().unwrap(), "call_001")),
        404,
        "no program waits",
    );
    assert_eq!(
        holder.ok(PROGRAMMATIC, &asked(tokens[16].as_str().unwrap(), "call_001"))["stdout"],
        "1\n"
    );
    world.close();
}
