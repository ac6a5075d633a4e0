//! Artifacts: private, complete, and without credentials.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::entries;
use crate::world::{World, here};

here!(
    a_stored_run_is_private_and_complete,
    credentials_are_taken_out,
    only_so_many_are_kept,
    every_bad_end_is_stored,
    they_are_listed_and_shown,
    another_directory_can_be_named,
    a_directory_that_cannot_be_written_takes_no_result_away,
);

fn stored(world: &World) -> Vec<(String, Value)> {
    let directory = world.dir.path("state/ringfence/artifacts/executions");
    let names = entries(&directory).into_iter();
    let read = |name: String| {
        let text = fs::read_to_string(directory.join(&name)).unwrap();
        (name, serde_json::from_str(&text).unwrap())
    };
    names.map(read).collect()
}

fn a_stored_run_is_private_and_complete(world: &World) {
    let call = world.call([
        "--env",
        "MODE=fast",
        "-c",
        "import sys; print(sys.argv[1]); sys.exit(2)",
        "--",
        "arg",
    ]);
    let run = call.json();
    let path = run.get("meta.artifact").as_str().unwrap().to_owned();
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(
        mode(std::path::Path::new(&path).parent().unwrap().to_str().unwrap()),
        0o700
    );
    let all = stored(world);
    assert_eq!(all.len(), 1, "{all:?}");
    let (name, document) = &all[0];
    let stem = name.strip_suffix(".json").unwrap();
    assert!(stem.contains('_') && stem.starts_with("20"), "{name}");
    assert!(
        document["timestamp"].as_str().unwrap().starts_with("20"),
        "{document}"
    );
    assert_eq!(document["language"], "python");
    assert_eq!(
        (&document["result"]["stdout"], &document["result"]["exit_code"]),
        (&json!("arg\n"), &json!(2))
    );
    assert_eq!(
        document["result"]["meta"]["resource_limits"],
        *run.get("meta.resource_limits")
    );
    assert_eq!(document["metadata"]["args"], json!(["arg"]));
    assert_eq!(document["metadata"]["env"], json!([["MODE", "fast"]]));
}

fn credentials_are_taken_out(world: &World) {
    let (secret, token) = ("s3cr3t/Value+42", "ghp_abcdefghijklmnopqrstuvwxyz0123456789");
    let forms = "import base64, os, urllib.parse\ns = os.environ['API_KEY']\nprint(s)\nprint(base64.b64encode(s.encode()).decode())\n\
                 print(urllib.parse.quote(s, safe=''))\nprint(s.encode().hex())\n";
    let code = format!("{forms}TOKEN = '{token}'\nprint(TOKEN)\nraise SystemExit('the end')");
    let call = world.call(["--env", &format!("API_KEY={secret}"), "-c", &code, "--", token]);
    let run = call.env("OTHER_PASSWORD", "hunter2hunter2").json();
    assert!(
        run.stdout().contains(secret) && run.stdout().contains(token),
        "the caller sees all: {run:?}"
    );
    let failed = world.call(["-c", "print('x' * 100, 'hunter2' + 'hunter2'); 1/0"]);
    failed.env("OTHER_PASSWORD", "hunter2hunter2").json();
    let stored = stored(world);
    assert_eq!(stored.len(), 2);
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    for (_, document) in stored {
        let text = document.to_string();
        for form in [
            secret,
            token,
            "czNjcjN0L1ZhbHVlKzQy",
            "s3cr3t%2FValue%2B42",
            &hex,
            "hunter2hunter2",
        ] {
            assert!(!text.contains(form), "{form}: {text}");
        }
    }
}

fn only_so_many_are_kept(world: &World) {
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[artifacts]\nstore = 'always'\nkeep = 3\n",
    );
    for number in 0..6 {
        world.python(&format!("print({number})"));
    }
    let kept: Vec<_> = stored(world)
        .into_iter()
        .map(|(_, document)| document["result"]["stdout"].clone())
        .collect();
    assert_eq!(kept, ["3\n", "4\n", "5\n"]);
}

fn every_bad_end_is_stored(world: &World) {
    for (args, outcome) in [
        (&["-c", "1/0"][..], "exited"),
        (&["--timeout", "200ms", "-c", "while True: pass"], "timed_out"),
        (&["-c", "import os; os.kill(os.getpid(), 9)"], "signalled"),
        (&["-l", "bash", "-c", "exit 1"], "exited"),
    ] {
        let run = world.json(args);
        assert_eq!(run.get("meta.outcome"), outcome, "{run:?}");
        let (_, mut last) = stored(world).pop().unwrap();
        // A record contains neither its own path nor hints, which depend on who reads them.
        last["result"]["meta"]["artifact"] = run.get("meta.artifact").clone();
        let mut result = run.result.clone();
        result["meta"].as_object_mut().unwrap().remove("hints");
        assert_eq!(last["result"], result, "{args:?}");
    }
    let blocked = world
        .call(["-c", "import os"])
        .env("SANDBOX_BLOCK_DANGEROUS_IMPORTS", "true")
        .json();
    assert!(blocked.get("meta.artifact").is_string(), "{blocked:?}");
    assert_eq!(stored(world).len(), 5);
}

fn they_are_listed_and_shown(world: &World) {
    world.run(["-c", "print('one'); 1/0"]);
    world.run(["-l", "bash", "-c", "echo two; exit 4"]);
    let list = world.dir.run(["artifacts", "ls"]);
    let lines: Vec<_> = list.ok().lines().collect();
    assert_eq!(lines.len(), 3, "{list:?}");
    assert!(
        lines[0].starts_with("NAME ") && lines[1].contains("bash") && lines[2].contains("python"),
        "newest first: {list:?}"
    );
    let json: Value = serde_json::from_str(world.dir.run(["artifacts", "ls", "--json"]).ok()).unwrap();
    let name = json[1]["name"].as_str().unwrap();
    let shown = world.dir.run(["artifacts", "show", name]);
    assert!(
        shown.ok().contains("print('one'); 1/0") && shown.stdout.contains("ZeroDivisionError"),
        "{shown:?}"
    );
    let document: Value =
        serde_json::from_str(world.dir.run(["artifacts", "show", "--json", name]).ok()).unwrap();
    assert_eq!(document["result"]["exit_code"], 1);
}

fn another_directory_can_be_named(world: &World) {
    let place = world.dir.path("work/kept");
    world.dir.write(
        "config/ringfence/ringfence.toml",
        format!("[artifacts]\ndir = '{}'\n", place.display()),
    );
    let run = world.json(["-c", "1/0"]);
    assert!(
        run.get("meta.artifact")
            .as_str()
            .unwrap()
            .starts_with(place.to_str().unwrap()),
        "{run:?}"
    );
    assert_eq!(entries(&place.join("executions")).len(), 1);
}

fn a_directory_that_cannot_be_written_takes_no_result_away(world: &World) {
    world.dir.write(
        "config/ringfence/ringfence.toml",
        "[artifacts]\ndir = '/proc/nowhere'\n",
    );
    let run = world.json(["-c", "print(1); 1/0"]);
    run.ended("exited", 1, 1);
    assert_eq!((run.stdout(), run.get("meta.artifact")), ("1\n", &Value::Null));
    let warning = run.get("meta.warnings")[0].as_str().unwrap();
    let expected = "the artifact was not kept: cannot make its file: No such file or directory";
    assert!(warning.starts_with(expected), "{run:?}");
}
