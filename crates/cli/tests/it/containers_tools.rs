//! Tools whose programs run in containers.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::containers::engines;
use crate::support::entries;

#[test]
fn a_tool_runs_code_in_a_container() {
    for engine in engines() {
        let arguments = format!(r#"{{"code": "print(6 * 7)", "runtime": "{}"}}"#, engine.name);
        let output = engine
            .dir
            .run(["tool", "run_code", &arguments, "--json", "--no-engine"]);
        let answer: Value = serde_json::from_str(output.ok()).unwrap();
        assert_eq!(answer["stdout"], "42\n", "{answer}");
        assert_eq!(answer["meta"]["runtime"], engine.name);
        assert_eq!(engine.left_by(output.pid), Vec::<String>::new());
    }
}

#[test]
fn what_a_tools_program_leaves_is_read_by_either_path() {
    for engine in engines() {
        let tool = |name: &str, arguments: Value| {
            let output = engine
                .dir
                .run(["tool", name, &arguments.to_string(), "--no-engine", "--json"]);
            serde_json::from_str::<Value>(output.ok()).unwrap()
        };
        let state = engine.dir.path("state").canonicalize().unwrap();
        let output = state.join("ringfence/output/local");
        let code = format!(
            "import os\nopen('/output/a', 'w').write('by the one')\nopen('{}/b', 'w').write('by the other')\n\
             open('/output/later', 'w').write('')\nos.utime('/output/later', (4e9, 4e9))",
            output.display()
        );
        tool("run_code", json!({"code": code, "runtime": engine.name}));
        for (name, expected) in [("a", "by the one"), ("b", "by the other")] {
            for path in [format!("/output/{name}"), output.join(name).display().to_string()] {
                let read = tool("file_read", json!({"path": path}));
                assert_eq!(read["text"], expected, "{path}");
            }
        }
        // The next program finds them; what it changes is told, and what it removes is gone.
        let code = "cat /output/a /output/b; echo ', changed' >> /output/a; rm /output/b";
        let next = tool(
            "run_code",
            json!({"code": code, "language": "bash", "runtime": engine.name}),
        );
        assert_eq!(next["stdout"], "by the oneby the other", "{next}");
        assert_eq!(
            next["meta"]["output_files"],
            json!([{"path": "a", "bytes": 20}]),
            "{next}"
        );
        let left: Vec<String> = entries(&output);
        assert_eq!(left, ["a", "later"]);
    }
}

/// Programs in root's containers run as another user.
#[test]
fn the_directory_of_a_user_is_one_for_tools_and_programs_in_containers() {
    for engine in engines() {
        let users = engine.dir.path("users").display().to_string();
        let users =
            format!("[permissions.filesystem]\nuser_scope = 'user'\nuser_root = '{users}/{{user_id}}'\n");
        engine.dir.write("config/ringfence/ringfence.toml", &users);
        let tool = |user: &str, tool: &str, arguments: Value| {
            let arguments = arguments.to_string();
            let output = engine
                .dir
                .run(["tool", tool, &arguments, "--json", "--no-engine", "--user", user]);
            serde_json::from_str::<Value>(output.ok()).unwrap()
        };
        tool(
            "ann",
            "file_write",
            json!({"path": "d/in.txt", "content": "one "}),
        );
        let code = "open('d/in.txt', 'a').write('two'); open('out.txt', 'w').write(open('d/in.txt').read())";
        let ran = tool("ann", "run_code", json!({"code": code, "runtime": engine.name}));
        assert_eq!(
            (&ran["exit_code"], &ran["stderr"]),
            (&0.into(), &"".into()),
            "{ran}"
        );
        let read = tool("ann", "file_read", json!({"path": "out.txt"}));
        assert!(read.to_string().contains("one two"), "{read}");
        let local = tool(
            "ann",
            "run_code",
            json!({"code": "open('out.txt', 'a').write('!')"}),
        );
        assert_eq!(local["exit_code"], 0, "{local}");
        // Other users cannot enter.
        let mode = |path: &str| fs::metadata(engine.dir.path(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("users"), mode("users/ann")), (0o700, 0o700));
        fs::remove_dir_all(engine.dir.path("users")).unwrap();
        engine.dir.write("config/ringfence/ringfence.toml", "");
    }
}

/// Files beside the code work without and with a workspace.
#[test]
fn files_that_come_along_with_code_are_there_in_every_container() {
    for engine in engines() {
        let code = "print(open('a.txt').read() + open('/workspace/d/b.txt').read()); open('d/c', 'w')";
        let arguments = |code: &str| {
            json!({"code": code, "runtime": engine.name, "files": {"a.txt": "one ", "d/b.txt": "two"}})
                .to_string()
        };
        let run = |options: &[&str], code: &str| {
            let arguments = arguments(code);
            let first = ["tool", "run_code", &arguments, "--json", "--no-engine"];
            let output = engine.dir.run(first.iter().chain(options));
            let answer: Value = serde_json::from_str(output.ok()).unwrap();
            assert_eq!(engine.left_by(output.pid), Vec::<String>::new());
            answer
        };
        let answer = run(&[], code);
        assert_eq!(
            (&answer["stdout"], &answer["stderr"]),
            (&"one two\n".into(), &"".into()),
            "{answer}"
        );
        // The only warning is the missing digest of the image.
        let warnings = answer["meta"]["warnings"].as_array();
        let others = |warning: &&Value| !warning.to_string().contains("is not pinned");
        assert_eq!(warnings.into_iter().flatten().find(others), None, "{answer}");
        // The limits of a run still apply beside them.
        let full = run(&[], "open('big', 'wb').write(bytes(65 << 20))");
        assert!(
            full["stderr"]
                .as_str()
                .unwrap()
                .contains("No space left on device"),
            "{full}"
        );
        let workspace = engine.workspace("shared");
        assert_eq!(run(&["--workspace", &workspace], code)["stdout"], "one two\n");
        assert_eq!(
            fs::read_to_string(engine.dir.path("shared/a.txt")).unwrap(),
            "one "
        );
        assert_eq!(entries(&engine.dir.path("tmp")), [""; 0]);
    }
}
