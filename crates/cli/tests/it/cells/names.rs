//! Creation, names, users and refusals.

use serde_json::{Value, json};

use super::Lab;
use crate::json_output::assert_error;
use crate::support::{Dir, finish};
use crate::world::{Mode, Place, World};

const KEY: &str = "a fixed key of any form, 0123456789";

#[test]
fn a_sandbox_is_created_described_and_removed() {
    let lab = Lab::here();
    let created = lab.json(&[
        "create",
        "--name",
        "lab",
        "--memory",
        "128MiB",
        "--disk",
        "32MiB",
        "--cpus",
        "0.5",
        "--pids",
        "20",
        "--env",
        "GREETING=hello there",
        "--metadata",
        "team=red",
        "--metadata",
        "run=7",
        "--allow-host",
        "api.example.com",
        "--timeout",
        "10m",
    ]);
    let told = lab.json(&["get", "lab"]);
    for about in [&created, &told] {
        assert_eq!(about["id"].as_str().unwrap().len(), 20);
        assert_eq!(about["id"], told["id"]);
        assert_eq!(
            (
                &about["name"],
                &about["runtime"],
                &about["state"],
                &about["image"]
            ),
            (&json!("lab"), &json!("local"), &json!("running"), &json!("host"))
        );
        assert_eq!(about["metadata"], json!({"team": "red", "run": "7"}));
        assert_eq!(about["allowed_hosts"], json!(["api.example.com"]));
        let limits = &about["resources"];
        assert_eq!(
            (
                &limits["memory_limit"],
                &limits["disk_limit"],
                &limits["cpu_limit"],
                &limits["pids_limit"]
            ),
            (&json!(128 << 20), &json!(32 << 20), &json!(0.5), &json!(20))
        );
    }
    assert_eq!(lab.bash("echo $GREETING").ok(), "hello there\n");
    assert!(lab.bash("echo $HTTP_PROXY").ok().starts_with("http://"));
    let hosts = |options: &[&str]| lab.json(&[&["create"], options].concat())["allowed_hosts"].take();
    assert_eq!(hosts(&["--network", "none"]), json!([]));
    let alone = lab.sandbox(&["create", "--network", "allowlist"]);
    assert!(alone.stderr.contains("no host is allowed"), "{alone:?}");
    // As with runs, the configuration's hosts are on the list.
    let config = "[egress]\nallowed_hosts = ['b.test']\n";
    lab.world.dir.write("config/ringfence/ringfence.toml", config);
    assert_eq!(hosts(&[]), json!([]));
    assert_eq!(hosts(&["--network", "allowlist"]), json!(["b.test"]));
    assert_eq!(hosts(&["--allow-host", "a.test"]), json!(["a.test", "b.test"]));
    lab.close();
}

#[test]
fn a_sandbox_has_an_id_until_it_is_removed() {
    let lab = Lab::with_sandbox();
    let told = lab.json(&["get", "lab"]);
    let id = told["id"].as_str().unwrap();
    assert_eq!(lab.sandbox(&["exec", id, "--", "echo", "same"]).ok(), "same\n");
    let listed = lab.json(&["ls"]);
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["id"]),
        (1, &json!(id))
    );
    let line = lab.sandbox(&["ls"]);
    assert!(
        line.ok().starts_with("ID   ")
            && line
                .stdout
                .contains(&format!("\n{id}  lab   local    running  0 ")),
        "{line:?}"
    );
    assert_eq!(lab.sandbox(&["rm", "lab"]).ok(), "");
    lab.sandbox(&["exec", "lab", "--", "true"])
        .refused(125, "the sandbox `lab` was removed at 20");
    lab.sandbox(&["exec", id, "--", "true"])
        .refused(125, "was removed at 20");
    assert_eq!(lab.json(&["ls"]), json!([]));
    lab.close();
}

/// Mistakes beside the sandbox `lab`, with exit status, error type and part of the message.
const MISTAKES: &[(&[&str], i32, &str, &str)] = &[
    (
        &["create", "--name", "a b"],
        2,
        "invalid_arguments",
        "`a b` cannot name",
    ),
    (&["create", "--env", "=x"], 2, "invalid_arguments", "NAME=value"),
    (
        &["create", "--metadata", "=x"],
        2,
        "invalid_arguments",
        "NAME=VALUE",
    ),
    (
        &["create", "--allow-host", "https://a.test"],
        2,
        "invalid_arguments",
        "write only its host",
    ),
    (
        &["create", "--network", "none", "--allow-host", "a.test"],
        2,
        "invalid_arguments",
        "--allow-host has no effect with --network none",
    ),
    (&["create", "--timeout", "9999h"], 2, "invalid_arguments", "24h"),
    (
        &["create", "--runtime", "docker", "--with", "x"],
        2,
        "invalid_arguments",
        "this machine's interpreters",
    ),
    (&["create", "--name", "lab"], 125, "conflict", "already exists"),
    (
        &["fork", "--count", "0", "lab"],
        2,
        "invalid_arguments",
        "from 1 to 16",
    ),
    (
        &["files", "--depth", "0", "lab"],
        2,
        "invalid_arguments",
        "from 1",
    ),
    (&["files", "lab", "nosuch"], 125, "not_found", "/workspace/nosuch"),
    (
        &["files", "lab", "/"],
        125,
        "invalid_arguments",
        "permission denied: /",
    ),
    (
        &["port", "lab", "http"],
        2,
        "invalid_arguments",
        "from 1 to 65535",
    ),
    (&["cp", "/dev/zero", "lab:x"], 2, "invalid_arguments", "a device"),
    (&["cp", "nosuch:x", "-"], 125, "not_found", "no sandbox `nosuch`"),
    (&["get", "nosuch"], 125, "not_found", "no sandbox `nosuch`"),
    (
        &["timeout", "nosuch", "1h"],
        125,
        "not_found",
        "no sandbox `nosuch`",
    ),
    (&["rm", "nosuch"], 125, "not_found", "no sandbox `nosuch`"),
    (
        &["run", "lab", "nosuch.py"],
        2,
        "invalid_arguments",
        "cannot read",
    ),
    (
        &["exec", "nosuch", "--", "true"],
        125,
        "not_found",
        "no sandbox `nosuch`",
    ),
    (
        &["exec", "lab", "--", "ls -la"],
        127,
        "not_found",
        "no program `ls -la`",
    ),
    (
        &["exec", "lab", "--", "nosuch"],
        127,
        "not_found",
        "no program `nosuch`",
    ),
    (
        &["exec", "-w", "/etc/passwd", "lab", "--", "true"],
        125,
        "invalid_arguments",
        "Not a directory",
    ),
];

#[test]
fn mistakes_have_a_status_a_type_and_a_hint() {
    let lab = Lab::with_sandbox();
    for (args, status, kind, words) in MISTAKES {
        let args = [&args[..1], &["--json"], &args[1..]].concat();
        let output = lab.sandbox(&args);
        assert_error(&output, *status, kind, words);
    }
    lab.sandbox(&["rm", "lab"]).ok();
    let none = lab.sandbox(&["ls"]);
    assert_eq!(
        (none.ok(), none.stderr.as_str()),
        ("", "note: there are no sandboxes\n")
    );
    let elsewhere = [("RINGFENCE_API_URL".into(), "http://127.0.0.1:1".into())];
    let mut list = lab.world.command(&elsewhere, ["sandbox", "ls"]);
    let told = finish(&mut list, b"");
    assert!(
        told.stderr.contains("RINGFENCE_API_URL is for the SDKs alone"),
        "{told:?}"
    );
    lab.close();
}

#[test]
fn paths_pipes_and_times_are_short_to_write() {
    let lab = Lab::with_sandbox();
    // A relative path is below /workspace, and a pipe is code.
    lab.sandbox_with(&["cp", "-", "lab:sub/x"], b"y").ok();
    assert!(
        lab.sandbox(&["files", "lab", "sub"])
            .ok()
            .contains("/workspace/sub/x")
    );
    assert_eq!(lab.sandbox_with(&["run", "lab"], b"print(6 * 7)").ok(), "42\n");
    lab.sandbox(&["run", "lab"])
        .refused(2, "found nothing in standard input");
    let before = lab.json(&["get", "lab"])["expires_at"].clone();
    assert!(lab.sandbox(&["timeout", "lab", "5h"]).ok().starts_with("until "));
    assert!(lab.json(&["get", "lab"])["expires_at"].as_str() > before.as_str());
    lab.sandbox(&["pause", "lab"]).ok();
    let paused = lab.bash("true");
    paused.refused(125, "the sandbox `lab` is paused");
    assert!(
        paused.stderr.contains("`ringfence sandbox resume lab`"),
        "{paused:?}"
    );
    lab.close();
}

#[test]
fn defaults_are_those_of_the_guide() {
    let lab = Lab::here();
    let id = lab.sandbox(&["create"]).ok().trim_end().to_owned();
    assert_eq!(id.len(), 20);
    let told = lab.json(&["get", &id]);
    let limits = &told["resources"];
    assert_eq!(
        (
            &limits["memory_limit"],
            &limits["disk_limit"],
            &limits["cpu_limit"],
            &limits["pids_limit"]
        ),
        (&json!(512 << 20), &json!(256 << 20), &json!(1.0), &json!(64))
    );
    assert_eq!(
        (&told["name"], &told["allowed_hosts"]),
        (&Value::Null, &json!([]))
    );
    lab.close();
}

#[test]
fn names_are_unique_and_users_have_their_own() {
    let lab = Lab::with_sandbox();
    lab.sandbox(&["create", "--name", "lab"])
        .refused(125, "a sandbox named `lab` already exists");
    lab.sandbox(&["create", "--memory", "64MiB", "--disk", "256MiB"])
        .refused(2, "`disk` (256MiB)");
    // The least memory has room for files and programs.
    lab.sandbox(&["create", "--memory", "16MiB", "--name", "small"])
        .ok();
    let fill = "head -c 7M /dev/zero > full && ls";
    let filled = lab.sandbox(&["exec", "small", "--", "bash", "-c", fill]);
    assert_eq!(filled.ok(), "full\n");
    lab.sandbox(&["rm", "small"]).ok();
    let less = lab.sandbox(&["create", "--memory", "15MiB"]);
    assert!(less.stderr.contains("between 16MiB and 64TiB"), "{less:?}");
    lab.sandbox(&["create", "--cpus", "1000"])
        .refused(2, "cpus `1000` is out of range; it must be between 0.01 and");
    lab.sandbox(&["create", "--user", "ann", "--name", "lab"]).ok();
    for args in [
        &["exec", "--user", "bob", "lab", "--", "true"][..],
        &["run", "--user", "bob", "lab", "-c", "1"],
        &["cp", "--user", "bob", "lab:/workspace/x", "-"],
        &["files", "--user", "bob", "lab"],
        &["get", "--user", "bob", "lab"],
        &["shell", "--user", "bob", "lab"],
        &["logs", "--user", "bob", "lab"],
        &["stats", "--once", "--user", "bob", "lab"],
        &["pause", "--user", "bob", "lab"],
        &["rm", "--user", "bob", "lab"],
        &["exec", "nosuch", "--", "true"],
        &["rm", "nosuch"],
    ] {
        lab.sandbox(args).refused(125, "there is no sandbox");
    }
    assert_eq!(lab.json(&["ls", "--user", "bob"]), json!([]));
    // Two of one name share nothing.
    lab.sandbox(&["exec", "--user", "ann", "lab", "--", "touch", "hers"])
        .ok();
    assert_eq!(lab.bash("ls").ok(), "");
    lab.sandbox(&["rm", "--user", "ann", "lab"]).ok();
    assert_eq!(lab.json(&["ls"]).as_array().unwrap().len(), 1);
    lab.close();
}

#[test]
fn what_does_not_work_yet_is_refused_by_name() {
    let lab = Lab::with_sandbox();
    let outside = lab.bash("ls /");
    assert!(
        outside.status != 0 && outside.stderr.contains("Permission denied"),
        "{outside:?}"
    );
    assert!(lab.bash("touch /usr/x").stderr.contains("Read-only"));
    assert_eq!(lab.bash("id -u").ok(), "1000\n");
    lab.close();
}

#[test]
fn without_a_server_it_says_what_to_start() {
    let dir = Dir::new();
    for args in [
        &["create"][..],
        &["ls"],
        &["exec", "lab", "--", "true"],
        &["cp", "-", "lab:/x"],
        &["rm", "lab"],
    ] {
        let refused = dir.run(["sandbox"].iter().chain(args));
        refused.refused(125, "no");
        assert!(refused.stderr.contains("ringfence serve"), "{refused:?}");
    }
}

#[test]
fn a_key_has_its_own_sandboxes() {
    let world = World::before_engine();
    let config = "[engine]\nlisten = '127.0.0.1:0'\npool_size = 1\n";
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine_with(&[("RINGFENCE_API_KEY", KEY)], &[]);
    let lab = Lab::of(world);
    let own = lab.json(&["create", "--name", "lab"])["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let access = lab.world.console();
    let address = access["address"].as_str().unwrap();
    let ask = |method: &str, path: &str, body: &str| -> Value {
        let mut curl = lab.world.dir.program("curl");
        let (url, key) = (
            format!("http://{address}/v1/sandboxes{path}"),
            format!("X-API-Key: {KEY}"),
        );
        let json = "Content-Type: application/json";
        curl.args(["-s", "-X", method, &url, "-H", &key, "-H", json]);
        if !body.is_empty() {
            curl.args(["-d", body]);
        }
        serde_json::from_str(finish(&mut curl, b"").ok()).unwrap()
    };
    for name in ["lab", &own] {
        let read = ask("GET", &format!("/{name}"), "");
        assert_eq!(read["error"]["type"], "not_found", "{read}");
        let run = ask("POST", &format!("/{name}/exec"), r#"{"command": ["true"]}"#);
        assert_eq!(run["error"]["type"], "not_found", "{run}");
    }
    assert_eq!(ask("GET", "", "")["sandboxes"], json!([]));
    for path in ["?user=local", "/lab?user=local"] {
        assert_eq!(ask("GET", path, "")["error"]["type"], "permission_denied");
    }
    // The name is free for it, and what it makes is not the user's.
    let made = ask("POST", "", r#"{"name": "lab"}"#);
    assert!(made["id"].is_string() && made["id"] != own.as_str(), "{made}");
    assert_eq!(
        ask("POST", "/lab/exec", r#"{"command": "echo $((6 * 7))"}"#)["stdout"],
        "42\n"
    );
    assert_eq!(lab.json(&["ls"]).as_array().unwrap().len(), 1);
    lab.close();
}

#[test]
fn an_ordinary_user_has_sandboxes() {
    let Some(world) = World::new(Mode::Engine, Place::User) else {
        return;
    };
    let lab = Lab::of(world);
    lab.sandbox(&["create", "--name", "lab"]).ok();
    assert_eq!(lab.bash("id -u; echo x > x; cat x").ok(), "1000\nx\n");
    assert_eq!(lab.sandbox(&["run", "lab", "-c", "6 * 7"]).ok(), "42\n");
    lab.sandbox_with(&["cp", "-", "lab:/workspace/y"], b"y").ok();
    assert_eq!(lab.sandbox(&["cp", "lab:/workspace/y", "-"]).ok(), "y");
    let fork = lab.sandbox(&["fork", "lab"]).ok().trim().to_owned();
    assert_eq!(lab.sandbox(&["exec", &fork, "--", "cat", "x"]).ok(), "x\n");
    // Without control groups of its own it is refused, and the sandbox runs on.
    let pause = lab.sandbox(&["pause", "lab"]);
    match pause.status {
        0 => assert_eq!(lab.sandbox(&["resume", "lab"]).ok(), ""),
        _ => pause.refused(125, "no control group with a freezer"),
    }
    assert_eq!(lab.bash("cat x").ok(), "x\n");
    lab.sandbox(&["rm", "lab"]).ok();
    lab.close();
}

/// Completes the last word by the script for bash; `compopt` is bash's, and works within a completion only.
const COMPLETE: &str = r#"
source <("$0" completions bash)
compopt() { :; }
COMP_WORDS=("$0" "$@") COMP_CWORD=$#
_ringfence_names "$0" "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

#[test]
fn bash_completes_names() {
    let lab = Lab::with_sandbox();
    lab.sandbox(&["create", "--name", "larch"]).ok();
    lab.sandbox(&["create", "--user", "bob", "--name", "last"]).ok();
    let names = lab.sandbox(&["ls", "--quiet"]);
    let mut names: Vec<&str> = names.ok().lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["lab", "larch"]);
    let completed = |words: &[&str]| {
        let dir = &lab.world.dir;
        let mut bash = dir.program("bash");
        bash.args(["-c", COMPLETE]).arg(dir.path("ringfence")).args(words);
        let mut words: Vec<String> = finish(&mut bash, b"").ok().lines().map(str::to_owned).collect();
        words.sort_unstable();
        words
    };
    for line in ["exec -it la", "rm lab la", "shell la", "snapshot create la"] {
        let words: Vec<&str> = ["sandbox"].into_iter().chain(line.split(' ')).collect();
        assert_eq!(completed(&words), ["lab", "larch"], "{line}");
    }
    lab.sandbox(&["snapshot", "create", "lab", "--name", "first"])
        .ok();
    lab.world.run(["--session", "notes", "-c", "1"]).ok();
    let key = lab.world.dir.run(["keys", "create", "ci"]).ok()[..11].to_owned();
    for (line, expected) in [
        ("sandbox snapshot rm fi", "first"),
        ("sandbox create --snapshot fi", "first"),
        ("session rm no", "notes"),
        ("keys revoke rf_", &*key),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(completed(&words), [expected], "{line}");
    }
    assert_eq!(completed(&["sandbox", "create", "fi"]), [""]);
    assert_eq!(completed(&["sandbox", "exec", "lar"]), ["larch"]);
    assert_eq!(completed(&["sandbox", "cp", "lar"]), ["larch:"]);
    // bash completes the files itself, with quotes, and no path behind a colon.
    lab.world.dir.write("la;id", "");
    assert_eq!(completed(&["sandbox", "cp", "la;"]), [""]);
    assert_eq!(completed(&["sandbox", "cp", "./a", "lab", ":"]), [""]);
    assert_eq!(
        completed(&["sandbox", "exec", "--color", ""]),
        ["always", "auto", "never"]
    );
    assert_eq!(completed(&["sandbox", "sna"]), ["snapshot"]);
    // The program of `exec` is no sandbox, nor is an option.
    assert_eq!(completed(&["sandbox", "exec", "lab", "la"]), [""]);
    assert!(completed(&["sandbox", "exec", "--js"]).contains(&"--json".to_owned()));
    lab.sandbox(&["snapshot", "rm", "first"]).ok();
    lab.close();
}
