//! Pauses, forks and snapshots, through the command line and over HTTP.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

use super::ends::running;
use super::{Lab, everywhere};
use crate::api::{BEARER, Surface};
use crate::support::{eventually, eventually_none, finish};
use crate::world::{World, skip};

/// Runs `ringfence sandbox ARGS… --json`.
fn json(lab: &Lab, args: &[&str]) -> Value {
    let output = lab.sandbox(&[args, &["--json"]].concat());
    serde_json::from_str(output.ok()).unwrap()
}

/// Pauses `lab`. `false`, and a word about it, if this machine has no freezer.
fn paused(lab: &Lab) -> bool {
    let output = lab.sandbox(&["pause", "lab"]);
    if output.status == 0 {
        return true;
    }
    output.refused(125, "freezer");
    skip::<()>(&output.stderr).is_some()
}

#[test]
fn a_paused_sandbox_says_so_until_it_is_resumed() {
    everywhere(|lab| {
        lab.bash("echo kept > file").ok();
        if !paused(lab) {
            return;
        }
        assert_eq!(lab.json(&["get", "lab"])["state"], "paused");
        assert!(lab.sandbox(&["ls"]).ok().contains("paused"));
        for args in [
            &["exec", "lab", "--", "true"][..],
            &["run", "lab", "-c", "1"],
            &["files", "lab"],
            &["cp", "lab:/workspace/file", "-"],
            &["fork", "lab"],
            &["snapshot", "create", "lab"],
        ] {
            let output = lab.sandbox(args);
            assert!(output.stderr.contains("hint: resume it first"), "{output:?}");
            output.refused(125, "is paused");
        }
        lab.sandbox(&["resume", "lab"]).ok();
        assert_eq!(lab.bash("cat file").ok(), "kept\n");
        // A client that leaves in the middle leaves a sandbox that is paused or runs, and says which.
        for (act, milliseconds) in (0..12).map(|n| (["pause", "resume"][n % 2], 3 * n as u64)) {
            let mut client = UnixStream::connect(lab.world.socket()).unwrap();
            let request =
                format!("POST /v1/sandboxes/lab/{act} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
            client.write_all(request.as_bytes()).unwrap();
            std::thread::park_timeout(Duration::from_millis(milliseconds));
        }
        lab.sandbox(&["pause", "lab"]).ok();
        lab.sandbox(&["resume", "lab"]).ok();
        assert_eq!(lab.bash("cat file").ok(), "kept\n");
        lab.sandbox(&["pause", "lab"]).ok();
        lab.sandbox(&["rm", "lab"]).ok();
        lab.sandbox(&["pause", "lab"]).refused(125, "");
    });
}

#[test]
fn ctrl_c_ends_the_client_of_a_paused_sandbox() {
    everywhere(|lab| {
        let lasting = |seconds: &str| format!("touch /tmp/ready; exec sleep {seconds}");
        let mut client = lab.start(&["exec", "lab", "--", "bash", "-c", &lasting("6001")]);
        lab.appears("/tmp/ready");
        // While it runs, Ctrl-C is the command's: its status is the client's.
        lab.world.signal(&client, "INT");
        assert_eq!(client.wait().unwrap().code(), Some(130));
        lab.bash("rm /tmp/ready").ok();
        let mut client = lab.start(&["exec", "lab", "--", "bash", "-c", &lasting("6002")]);
        lab.appears("/tmp/ready");
        if !paused(lab) {
            lab.world.signal(&client, "INT");
            client.wait().unwrap();
            return;
        }
        lab.world.signal(&client, "INT");
        assert_eq!(client.wait().unwrap().code(), Some(130));
        // The command goes with its client, as soon as it can.
        lab.sandbox(&["resume", "lab"]).ok();
        eventually("the command has ended", || {
            lab.json(&["get", "lab"])["processes"] == 0
        });
        lab.bash("rm /tmp/ready").ok();
        let mut client = lab.start(&["exec", "lab", "--", "bash", "-c", &lasting("6003")]);
        lab.appears("/tmp/ready");
        lab.sandbox(&["pause", "lab"]).ok();
        lab.world.signal(&client, "TERM");
        assert!(!client.wait().unwrap().success());
    });
}

/// Returns the command lines of `sleep` that contain this text.
fn sleeping(mark: &str) -> Vec<String> {
    let mut all = running(mark);
    all.retain(|line| line.starts_with("sleep"));
    all
}

#[test]
fn no_server_leaves_a_paused_process_to_the_next() {
    for signal in ["TERM", "KILL"] {
        let lab = Lab::with_sandbox();
        let mark = format!("{}.77{}", 31_536_000 + std::process::id(), signal.len());
        lab.bash(&format!("(setsid sleep {mark} &) >/dev/null 2>&1")).ok();
        eventually("it runs", || sleeping(&mark).len() == 1);
        if paused(&lab) {
            lab.world.stop_engine(signal);
            // In version 1 a frozen process outlives a server that is killed, without running, until the next one starts.
            lab.world.start_engine();
            eventually_none("processes", || sleeping(&mark));
        }
        lab.close();
    }
}

#[test]
fn forks_and_snapshots_have_the_files() {
    everywhere(|lab| {
        lab.bash("mkdir d && echo one > d/file").ok();
        let forks = lab.sandbox(&["fork", "--count", "2", "lab"]);
        let forks: Vec<&str> = forks.ok().lines().collect();
        assert_eq!(forks.len(), 2);
        for id in forks {
            assert_eq!(lab.sandbox(&["exec", id, "--", "cat", "d/file"]).ok(), "one\n");
        }
        let forked = lab.json(&["fork", "lab"]);
        assert_eq!(
            forked["not_copied"],
            serde_json::json!(["processes", "contexts", "name"])
        );
        assert_eq!(
            lab.sandbox(&["snapshot", "create", "lab", "--name", "base"]).ok(),
            "base\n"
        );
        lab.sandbox(&["snapshot", "create", "lab", "--name", "base"])
            .refused(125, "already exists");
        // It is there when the server comes back, and belongs to its user.
        lab.world.stop_engine("TERM");
        lab.world.start_engine();
        let all = json(lab, &["snapshot", "ls"]);
        assert_eq!(all[0]["name"], "base", "{all}");
        assert_eq!(all[0]["not_copied"], Value::Null, "{all}");
        lab.sandbox(&["create", "--name", "set", "--env", "A=b", "--ports"])
            .ok();
        let kept = lab.sandbox(&["snapshot", "create", "set", "--name", "of-set"]);
        assert_eq!(
            kept.stderr,
            "note: the snapshot has the sandbox's files, without its `ports`, `env`: give them to `create` again\n"
        );
        lab.sandbox(&["snapshot", "rm", "of-set"]).ok();
        lab.sandbox(&["rm", "set"]).ok();
        assert!(lab.sandbox(&["snapshot", "ls"]).ok().contains("bytes"));
        assert_eq!(
            json(lab, &["snapshot", "ls", "--user", "ann"]),
            Value::Array(Vec::new())
        );
        lab.sandbox(&["snapshot", "rm", "--user", "ann", "base"])
            .refused(125, "there is no snapshot `base`");
        lab.sandbox(&["create", "--user", "ann", "--snapshot", "base"])
            .refused(125, "there is no snapshot `base`");
        lab.sandbox(&[
            "create",
            "--name",
            "lab",
            "--runtime",
            lab.runtime,
            "--snapshot",
            "base",
        ])
        .ok();
        assert_eq!(lab.bash("cat d/file").ok(), "one\n");
        lab.sandbox(&["snapshot", "rm", "base"]).ok();
        assert_eq!(json(lab, &["snapshot", "ls"]), Value::Array(Vec::new()));
        lab.sandbox(&["create", "--snapshot", "base"])
            .refused(125, "there is no snapshot `base`");
    });
}

#[test]
fn copies_have_no_files_of_mounts() {
    // The interpreter is below /tmp, whose files a sandbox has as its own.
    let world = World::before_engine();
    let venv = std::env::temp_dir().join(format!("rf-forked-venv-{}", std::process::id()));
    let mut make = world.dir.program("/usr/bin/python3");
    finish(make.args(["-m", "venv", "--without-pip"]).arg(&venv), b"").ok();
    let python = venv.join("bin/python");
    let config = format!(
        "[engine]\npool_size = 1\n[sandbox]\npython = '{}'\n",
        python.display()
    );
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine();
    let lab = Lab::of(world);
    lab.sandbox(&["create", "--name", "lab"]).ok();
    assert_eq!(
        lab.sandbox(&["run", "lab", "-c", "import sys; print(sys.prefix)"])
            .ok(),
        format!("{}\n", venv.display())
    );
    let counted = |path: &str| {
        let script = format!("find {path} -xdev | wc -l");
        lab.sandbox(&["exec", "lab", "--", "sh", "-c", &script])
            .ok()
            .trim()
            .to_owned()
    };
    assert_ne!(
        counted(venv.to_str().unwrap()),
        "0",
        "the sandbox sees the environment"
    );
    lab.bash("echo own > /tmp/own; echo one > file").ok();
    let fork = lab.sandbox(&["fork", "lab"]);
    let read = lab.sandbox(&["exec", fork.ok().trim(), "--", "cat", "/tmp/own", "file"]);
    assert_eq!(read.ok(), "own\none\n");
    lab.sandbox(&["snapshot", "create", "lab", "--name", "base"]).ok();
    let bytes = json(&lab, &["snapshot", "ls"])[0]["size"].as_u64().unwrap();
    assert!(bytes < 100_000, "{bytes}");
    let made = lab.sandbox(&["create", "--snapshot", "base"]);
    let run = lab.sandbox(&["run", made.ok().trim(), "-c", "print(open('/tmp/own').read())"]);
    assert_eq!(run.ok(), "own\n\n");
    lab.sandbox(&["snapshot", "rm", "base"]).ok();
    lab.close();
    std::fs::remove_dir_all(venv).unwrap();
}

#[test]
fn a_key_has_its_own_copies() {
    let lab = Lab::of(crate::api::world());
    lab.sandbox(&["create", "--name", "lab"]).ok();
    let made = json(&lab, &["snapshot", "create", "lab"]);
    let id = made["id"].as_str().unwrap();
    let key = Surface::loopback(&lab.world);
    let ask = |line: &str, body: &str| key.ask(line, &[BEARER], body).json();
    assert_eq!(
        ask("GET /v1/snapshots", "")["snapshots"],
        Value::Array(Vec::new())
    );
    for (line, body) in [
        (format!("GET /v1/snapshots/{id}"), String::new()),
        (format!("DELETE /v1/snapshots/{id}"), String::new()),
        (
            "POST /v1/sandboxes".to_owned(),
            format!(r#"{{"snapshot": "{id}"}}"#),
        ),
        ("POST /v1/sandboxes/lab/fork".to_owned(), "{}".to_owned()),
        ("POST /v1/sandboxes/lab/snapshots".to_owned(), "{}".to_owned()),
        ("POST /v1/sandboxes/lab/pause".to_owned(), String::new()),
        ("GET /v1/sandboxes/lab/events".to_owned(), String::new()),
    ] {
        let answer = ask(&line, &body);
        assert_eq!(answer["error"]["type"], "not_found", "{line}: {answer}");
    }
    // The same key makes its own, from a sandbox of its own.
    let own = ask("POST /v1/sandboxes", r#"{"name": "own"}"#);
    assert!(own["id"].is_string(), "{own}");
    let kept = ask("POST /v1/sandboxes/own/snapshots", r#"{"name": "kept"}"#);
    assert_eq!(kept["name"], "kept", "{kept}");
    assert_eq!(json(&lab, &["snapshot", "ls"]).as_array().unwrap().len(), 1);
    lab.sandbox(&["snapshot", "rm", id]).ok();
    assert_eq!(key.ask("DELETE /v1/snapshots/kept", &[BEARER], "").status, 200);
    lab.close();
}
