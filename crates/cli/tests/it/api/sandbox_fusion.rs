//! SandboxFusion's protocol.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::{BEARER, KEY, Reply, Surface, loopback_address, world};
use crate::world::{repository, skip};

/// Sends what verl's client does: its headers and all of its fields, `null` for no input.
fn post(surface: &Surface, changes: &Value) -> Reply {
    let mut body = json!({
        "compile_timeout": 10,
        "run_timeout": 10,
        "code": "",
        "stdin": null,
        "memory_limit_MB": 1024,
        "language": "python",
        "files": {},
        "fetch_files": [],
    });
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    let headers = [
        BEARER,
        "Content-Type: application/json",
        "Accept: application/json",
    ];
    surface.ask("POST /run_code", &headers, &body.to_string())
}

/// Returns the status, the status of the run, its return code and its output.
#[track_caller]
fn ended(reply: &Reply) -> (String, String, Value, String) {
    assert_eq!(reply.status, 200, "{reply:?}");
    let told = reply.json();
    let run = &told["run_result"];
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    (
        text(&told["status"]),
        text(&run["status"]),
        run["return_code"].clone(),
        text(&run["stdout"]),
    )
}

#[test]
fn a_program_ends_as_the_protocol_says() {
    let world = world();
    let surface = Surface::loopback(&world);
    let check = |changes: Value, status: &str, run: &str, code: Value, stdout: &str| {
        let reply = post(&surface, &changes);
        let expected = (status.to_owned(), run.to_owned(), code, stdout.to_owned());
        assert_eq!(ended(&reply), expected, "{reply:?}");
        reply.json()
    };
    let told = check(
        json!({"code": "print(int(input()))", "stdin": "65535"}),
        "Success",
        "Finished",
        json!(0),
        "65535\n",
    );
    let members: Vec<&String> = told.as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        [
            "status",
            "message",
            "compile_result",
            "run_result",
            "executor_pod_name",
            "files"
        ]
    );
    assert_eq!(
        (&told["compile_result"], &told["files"]),
        (&Value::Null, &json!({}))
    );
    assert!(told["run_result"]["execution_time"].as_f64().unwrap() > 0.0);
    // The server's own limit holds, and the client is told.
    let message = told["message"].as_str().unwrap();
    assert!(
        message.starts_with("`memory_limit_MB` of 1024 has no effect"),
        "{told}"
    );

    let failed = check(
        json!({"code": "assert 1 == 2"}),
        "Failed",
        "Finished",
        json!(1),
        "",
    );
    assert!(
        failed["run_result"]["stderr"]
            .as_str()
            .unwrap()
            .contains("AssertionError")
    );
    let killed = "import os; os.kill(os.getpid(), 9)";
    check(json!({"code": killed}), "Failed", "Finished", json!(-9), "");
    let slow = json!({"code": "print(1, flush=True)\nwhile True: pass", "run_timeout": 0.3});
    check(slow, "Failed", "TimeLimitExceeded", Value::Null, "1\n");
    let greedy = json!({"code": "x = b'x' * (8 << 30)"});
    let greedy = post(&surface, &greedy).json();
    assert_eq!(
        (&greedy["status"], &greedy["run_result"]["status"]),
        (&json!("Failed"), &json!("Finished"))
    );

    world.close();
}

#[test]
fn files_and_other_languages_are_served() {
    let world = world();
    let surface = Surface::loopback(&world);
    let files = json!({"dir1/dir2/flag": "w6kK", "none": null});
    for (program, expected) in [
        (
            json!({"code": "cat dir1/dir2/flag; ls", "language": "bash", "files": files}),
            "é\ndir1\n",
        ),
        (
            json!({"code": "console.log(6 * 7)", "language": "nodejs"}),
            "42\n",
        ),
    ] {
        let reply = post(&surface, &program);
        assert_eq!(reply.json()["status"], "Success", "{reply:?}");
        assert_eq!(ended(&reply).3, expected);
    }
    world.close();
}

#[test]
fn what_cannot_be_carried_out_is_no_failure_of_a_program() {
    let world = world();
    let surface = Surface::loopback(&world);
    for (changes, part) in [
        (json!({"language": "cpp"}), "there is no language `cpp` here"),
        (
            json!({"language": "command"}),
            "there is no language `command` here",
        ),
        (json!({"fetch_files": ["a.txt"]}), "`fetch_files` is not served"),
        (
            json!({"files": {"picture": "/9j/"}}),
            "`files` takes text in UTF-8, and `picture` is none",
        ),
    ] {
        let told = post(&surface, &changes).json();
        assert_eq!(told["status"], "SandboxError", "{told}");
        assert!(told["message"].as_str().unwrap().contains(part), "{told}");
        assert_eq!(
            (&told["compile_result"], &told["run_result"]),
            (&Value::Null, &Value::Null)
        );
    }
    for (changes, part) in [
        (json!({"files": {"a": "*"}}), "the content of `a` is not base64"),
        (json!({"run_timeout": -1}), "timeout"),
        (json!({"scope": "root"}), "unknown field `scope`"),
    ] {
        let reply = post(&surface, &changes);
        reply.refused(422, "invalid_arguments");
        assert!(reply.body.contains(part), "{reply:?}");
    }
    let outside = post(&surface, &json!({"files": {"../a": "YQ=="}}));
    assert!(outside.status >= 400, "{outside:?}");
    surface
        .ask("POST /run_code", &[], r#"{"code": "", "language": "python"}"#)
        .refused(401, "unauthenticated");
    world.close();
}

/// Runs programs by the functions of `sandbox_fusion`, which knows the server's address alone.
const CLIENT: &str = r#"
import sys
from sandbox_fusion import RunCodeRequest, run_code
run = lambda **fields: run_code(RunCodeRequest(**fields), endpoint=sys.argv[1], max_attempts=1)
ended = run(code="print(input())", language="python", stdin="in", files={"a": None})
print(ended.status.value, ended.run_result.status.value, ended.run_result.return_code, ended.run_result.stdout.strip())
late = run(code="sleep 10", language="bash", run_timeout=0.2)
print(late.status.value, late.run_result.status.value, late.run_result.return_code)
try:
    run(code="", language="rust")
except Exception as error:
    print(error)
"#;

#[test]
fn clients_send_the_key_of_their_netrc() {
    let world = world();
    let surface = Surface::loopback(&world);
    let program = r#"{"code": "print(1)", "language": "python"}"#;
    let basic = |pair: &str| format!("Authorization: Basic {}", BASE64_STANDARD.encode(pair));
    let keyed = surface.ask("POST /run_code", &[&basic(&format!("any:{KEY}"))], program);
    assert_eq!(ended(&keyed).3, "1\n");
    for wrong in [
        basic("any:wrong"),
        basic(KEY),
        basic(&format!("{KEY}:")),
        basic(":"),
    ] {
        surface
            .ask("POST /run_code", &[&wrong], program)
            .refused(401, "unauthenticated");
    }

    let Ok(venv) = repository("target/adapters-venv").canonicalize() else {
        world.close();
        return skip("no target/adapters-venv (`cargo xtask setup` makes it)").unwrap_or_default();
    };
    let netrc = format!("machine 127.0.0.1 login ringfence password \"{KEY}\"\n");
    let netrc = world.dir.write("work/netrc", &netrc);
    fs::set_permissions(&netrc, fs::Permissions::from_mode(0o600)).unwrap();
    let url = format!("http://{}", loopback_address(&world));
    let python = |arguments: &[&OsStr]| {
        let mut client = world.dir.program(venv.join("bin/python"));
        let output = client
            .args(arguments)
            .arg(&url)
            .env("NETRC", &netrc)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let example = std::path::absolute(repository("examples/sdk/sandbox_fusion.py")).unwrap();
    assert_eq!(
        python(&[example.as_os_str()]),
        "right 1.0\nwrong 0.5\nbroken 0.0\nendless 0.0\n"
    );
    assert_eq!(
        python(&["-c".as_ref(), CLIENT.as_ref()]),
        "Success Finished 0 in\nFailed TimeLimitExceeded None\n\
         Sandbox responded with error: there is no language `rust` here; use python, bash or nodejs\n"
    );
    assert!(!world.engine_log().contains(KEY));
    world.close();
}
