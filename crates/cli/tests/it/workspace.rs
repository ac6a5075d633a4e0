//! One workspace for file tools and code, isolated from everybody else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::entries;
use crate::tools::Tools;
use crate::world::{Mode, Place, World};

const USERS: &str = "[permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'users/{user_id}'";

fn workspace(config: &str) -> Tools {
    let tools = Tools::new(config);
    fs::create_dir(tools.dir.path("work/project")).unwrap();
    tools.with(&["--workspace", "project"])
}

#[test]
fn what_a_tool_writes_is_there_for_code_and_the_other_way_round() {
    let tools = workspace("");
    let written = tools.ask(
        "file_write",
        json!({"path": "data/in.txt", "content": "one\ntwo\n"}),
    );
    assert_eq!(written["bytes_written"], 8);
    let code = "import os\nprint(os.getcwd(), open('data/in.txt').read(), open('/workspace/data/in.txt').read())\n\
                open('out.txt', 'w').write('from python')";
    let result = tools.ask("run_code", json!({"code": code}));
    assert_eq!(result["stdout"], "/workspace one\ntwo\n one\ntwo\n\n", "{result}");
    let bash = json!({"code": "cat out.txt; echo from bash >> out.txt", "language": "bash"});
    assert_eq!(tools.ask("run_code", bash)["stdout"], "from python");
    let shell = json!({"command": "cat", "args": ["in.txt"], "working_dir": "data"});
    assert_eq!(tools.ask("shell", shell)["stdout"], "one\ntwo\n");
    assert_eq!(
        tools.ask("file_read", json!({"path": "/workspace/out.txt"}))["text"],
        "from pythonfrom bash\n"
    );
    let listed = tools.ask("file_list", json!({}));
    let names: Vec<&Value> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["name"])
        .collect();
    assert_eq!(names, ["data", "out.txt"]);
    tools.ask("file_delete", json!({"path": "out.txt"}));
    let gone = tools.ask("run_code", json!({"code": "open('out.txt')"}));
    assert!(
        gone["stderr"].as_str().unwrap().contains("FileNotFoundError"),
        "{gone}"
    );
    // On the host the files are the user's own.
    assert_eq!(entries(&tools.dir.path("work/project")), ["data"]);
}

#[test]
fn a_run_works_in_the_same_place() {
    let tools = workspace("");
    tools.ask("file_write", json!({"path": "in", "content": "of a tool"}));
    let code = "import os; print(os.getcwd(), open('in').read()); open('out', 'w').write('of a run')";
    let run = tools.dir.run(["run", "--workspace", "project", "-c", code]);
    assert_eq!(run.ok(), "/workspace of a tool\n");
    assert_eq!(tools.ask("file_read", json!({"path": "out"}))["text"], "of a run");
    let both = [
        "run",
        "--workspace",
        "project",
        "--mount",
        ".:/workspace",
        "-c",
        "1",
    ];
    tools.dir.run(both).refused(2, "would hide the workspace");
    tools
        .dir
        .run(["run", "--workspace", "/proc", "-c", "1"])
        .refused(2, "kernel's view");
    // Each user's own, if the configuration gives them one; only the user's.
    let tools = Tools::new(USERS);
    let write = |user: &str| {
        tools.dir.run([
            "run",
            "--user",
            user,
            "-c",
            "open('mine', 'x'); import os; print(os.listdir())",
        ])
    };
    assert_eq!(
        (write("ann").ok(), write("bob").ok()),
        ("['mine']\n", "['mine']\n")
    );
    assert_eq!(entries(&tools.dir.path("work/users/ann")), ["mine"]);
}

#[test]
fn without_a_workspace_runs_are_private_and_file_tools_have_no_files() {
    let tools = Tools::new("");
    tools.ask("run_code", json!({"code": "open('left', 'w').write('x')"}));
    let again = tools.ask("run_code", json!({"code": "import os; print(os.listdir())"}));
    assert_eq!(again["stdout"], "[]\n");
    for (tool, arguments) in [
        ("file_read", json!({"path": "a"})),
        ("file_write", json!({"path": "a", "content": ""})),
        ("file_list", json!({"path": "."})),
        ("file_delete", json!({"path": "a"})),
    ] {
        let refused = tools.refused(tool, arguments);
        assert_eq!(
            (refused.kind.as_str(), refused.status),
            ("permission_denied", 125)
        );
        assert!(refused.message.contains("no workspace"), "{}", refused.message);
    }
    assert!(entries(&tools.dir.path("work")).is_empty());
}

#[test]
fn files_that_come_along_are_there_and_leave_nothing() {
    let tools = Tools::new("");
    let arguments = json!({
        "code": "print(open('a.txt').read() + open('d/b.txt').read()); open('c', 'w')",
        "files": {"a.txt": "one ", "d/b.txt": "two"},
    });
    assert_eq!(tools.ask("run_code", arguments)["stdout"], "one two\n");
    assert!(entries(&tools.dir.path("tmp")).is_empty());
    let outside = json!({"code": "1", "files": {"../a": "x"}});
    assert_eq!(tools.refused("run_code", outside).kind, "permission_denied");
    let many: serde_json::Map<String, Value> = (0..101).map(|n| (n.to_string(), json!(""))).collect();
    assert_eq!(
        tools
            .refused("run_code", json!({"code": "1", "files": many}))
            .kind,
        "limit_exceeded"
    );
    assert!(entries(&tools.dir.path("tmp")).is_empty());
    // Files written to a workspace are kept.
    let tools = workspace("");
    tools.ask("run_code", json!({"code": "1", "files": {"kept": "x"}}));
    assert_eq!(entries(&tools.dir.path("work/project")), ["kept"]);
}

/// Every path to another user's file, for each tool that takes one; the file exists and is readable for us,
/// the tool's user.
#[test]
fn two_users_cannot_reach_each_others_files_through_any_tool() {
    let tools = Tools::new(USERS);
    let ask = |user: &str, tool: &str, arguments: &Value| {
        let mut command = tools.dir.command(["tool", tool, "-", "--json", "--user", user]);
        let output = crate::support::finish(&mut command, arguments.to_string().as_bytes());
        serde_json::from_str::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    for user in ["ann", "bob"] {
        let secret = json!({"path": "secret", "content": format!("of {user}")});
        assert_eq!(ask(user, "file_write", &secret)["bytes_written"], 6);
        assert_eq!(
            ask(user, "file_read", &json!({"path": "secret"}))["text"],
            format!("of {user}")
        );
    }
    let users = tools.dir.path("work/users");
    symlink(users.join("bob"), users.join("ann/link")).unwrap();
    symlink("../bob/secret", users.join("ann/file")).unwrap();
    for (user, other) in [("ann", "bob"), ("bob", "ann")] {
        let theirs = users.join(other).join("secret");
        // It works outside.
        assert_eq!(fs::read_to_string(&theirs).unwrap(), format!("of {other}"));
        let mut paths = vec![
            format!("../{other}/secret"),
            format!("./../{other}/secret"),
            format!("x/../../{other}/secret"),
            format!("/workspace/../{other}/secret"),
            theirs.display().to_string(),
            format!("/proc/self/cwd/users/{other}/secret"),
        ];
        if user == "ann" {
            paths.extend(["link/secret".to_owned(), "file".to_owned()]);
        }
        for path in &paths {
            for (tool, arguments) in [
                ("file_read", json!({"path": path})),
                ("file_write", json!({"path": path, "content": "stolen"})),
                (
                    "file_write",
                    json!({"path": path, "content": "stolen", "append": true}),
                ),
                ("file_list", json!({"path": path.trim_end_matches("/secret")})),
            ] {
                let kind = ask(user, tool, &arguments)["error"]["type"].clone();
                assert!(
                    kind == "permission_denied" || kind == "not_found" || kind == "invalid_arguments",
                    "{tool} {path}: {kind}"
                );
            }
            // A link is the user's own to delete; its target is not.
            if path != "file" {
                let deleted = ask(user, "file_delete", &json!({"path": path}));
                assert!(deleted["error"]["type"].is_string(), "{path}: {deleted}");
            }
            assert!(theirs.exists(), "{path}");
            let working_dir = json!({"command": "cat", "args": ["secret"], "working_dir": path.trim_end_matches("/secret")});
            let shell = ask(user, "shell", &working_dir);
            assert!(!shell.to_string().contains(&format!("of {other}")), "{shell}");
        }
        through_code(&paths, &theirs, &|code| {
            ask(user, "run_code", &json!({"code": code}))
        });
        assert_eq!(fs::read_to_string(&theirs).unwrap(), format!("of {other}"));
    }
}

/// Tries each of these paths in a program: read, write, delete, list the directory.
fn through_code(paths: &[String], theirs: &Path, run: &dyn Fn(&str) -> Value) {
    let code = format!(
        "import os\n\
         own = ('', '.', '..', './..', 'x/../..', '/workspace/..')\n\
         for path in {paths:?} + ['/proc/1/root{0}', '/proc/self/root{0}']:\n\
         \x20   for act in (lambda: open(path).read(), lambda: open(path, 'w'), lambda: os.unlink(path),\n\
         \x20               lambda: os.path.dirname(path) in own and 1 / 0 or os.listdir(os.path.dirname(path))):\n\
         \x20       if path == 'file' and act.__code__.co_names == ('os', 'unlink', 'path'):\n\
         \x20           continue\n\
         \x20       try:\n            print('REACHED', path, act())\n\
         \x20       except (OSError, ZeroDivisionError):\n            pass\n",
        theirs.display()
    );
    let result = run(&code);
    assert_eq!(
        (&result["exit_code"], &result["stdout"]),
        (&json!(0), &json!("")),
        "{result}"
    );
}

#[test]
fn ids_that_would_lead_elsewhere_are_refused() {
    let tools = Tools::new(USERS);
    for id in [
        "../bob",
        "a/b",
        "",
        ".",
        "..",
        ".hidden",
        "a\nb",
        "ä",
        &"x".repeat(65),
    ] {
        let output = tools.dir.run(["tool", "file_list", "--user", id]);
        assert_eq!(output.status, 2, "{id:?}: {output:?}");
        assert!(output.stderr.contains("user id"), "{output:?}");
    }
    let sessions =
        "[permissions.filesystem]\nuser_scope = 'session'\nuser_root = 'users/{user_id}/{session_id}'";
    let tools = Tools::new(sessions);
    let refused = tools.refused("file_list", json!({}));
    assert_eq!(refused.kind, "permission_denied");
    assert!(
        refused.message.contains("names no session"),
        "{}",
        refused.message
    );
    let of = |session: &str, arguments: &[&str]| {
        let mut command = tools.dir.command(["tool", "--session", session]);
        crate::support::finish(command.args(arguments), b"")
    };
    of("one", &["file_write", r#"{"path": "a", "content": "x"}"#]).ok();
    assert!(of("one", &["file_list"]).ok().contains("\"a\""));
    assert!(!of("two", &["file_list"]).ok().contains("\"a\""));
    let shared = Tools::new("[permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'users/all'");
    let output = shared.dir.run(["tool", "file_list"]);
    output.refused(2, "`permissions.filesystem.user_root`");
}

#[test]
fn what_the_host_would_execute_is_read_and_not_written() {
    let tools = workspace("");
    let project = tools.dir.path("work/project");
    fs::create_dir_all(project.join(".git/hooks")).unwrap();
    fs::write(project.join(".git/config"), "[core]").unwrap();
    fs::write(project.join(".envrc"), "x").unwrap();
    assert_eq!(
        tools.ask("file_read", json!({"path": ".git/config"}))["text"],
        "[core]"
    );
    for path in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".envrc",
        ".GIT/config",
        "sub/.git/config",
        "ringfence.toml",
    ] {
        let refused = tools.refused("file_write", json!({"path": path, "content": "evil"}));
        assert_eq!(refused.kind, "permission_denied", "{path}");
    }
    assert_eq!(
        tools.refused("file_delete", json!({"path": ".envrc"})).kind,
        "permission_denied"
    );
    let code = "import os\nprint(open('.git/config').read())\n\
        for act in (lambda: open('.git/config', 'w'), lambda: open('.git/hooks/post-checkout', 'w'), lambda: open('.envrc', 'a'),\n\
        \x20           lambda: os.rename('.git', 'git'), lambda: os.unlink('.envrc')):\n\
        \x20   try:\n        print('REACHED', act())\n    except OSError as error:\n        print(error.strerror)\n";
    let result = tools.ask("run_code", json!({"code": code}));
    let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    let [read_only, busy] = ["Read-only file system", "Device or resource busy"];
    assert_eq!(
        lines,
        ["[core]", read_only, read_only, read_only, busy, busy],
        "{result}"
    );
    // Names that are not on the list are the user's own.
    let open = workspace("[permissions.filesystem]\nprotected = []");
    open.ask("file_write", json!({"path": ".envrc", "content": "mine"}));
}

#[test]
fn a_directory_that_must_stay_hidden_is_no_workspace() {
    let tools = Tools::new("");
    let state = tools.dir.path("state/ringfence");
    fs::create_dir_all(&state).unwrap();
    for (path, words) in [
        ("/proc", "kernel's view"),
        ("/", "refusing to show"),
        (state.to_str().unwrap(), "state directory"),
        ("no-such", "No such file"),
        ("/etc/passwd", "not a directory"),
    ] {
        tools
            .dir
            .run(["tool", "file_list", "--workspace", path])
            .refused(2, words);
    }
}

#[test]
fn users_have_no_directories_in_what_must_stay_hidden() {
    for root in ["/proc/{user_id}", "{STATE}/{user_id}", "{STATE}/../{user_id}"] {
        let tools = Tools::new("");
        let state = tools.dir.path("state/ringfence").display().to_string();
        let root = root.replace("{STATE}", &state);
        let config = format!("[permissions.filesystem]\nuser_scope = 'user'\nuser_root = '{root}'");
        tools.dir.write("config/ringfence/ringfence.toml", config);
        assert_eq!(tools.dir.run(["tool", "file_list"]).status, 2, "{root}");
    }
}

#[test]
fn a_lane_is_warm_for_its_workspace_and_for_no_other() {
    let world = World::new(Mode::Engine, Place::Here).unwrap();
    for name in ["one", "two"] {
        fs::create_dir(world.dir.path("work").join(name)).unwrap();
    }
    let ask = |workspace: &str, code: &str| {
        let mut command = world
            .dir
            .command(["tool", "run_code", "-", "--json", "--workspace", workspace]);
        let output = crate::support::finish(&mut command, json!({"code": code}).to_string().as_bytes());
        serde_json::from_str::<Value>(output.ok()).unwrap()
    };
    for round in 0..3 {
        for name in ["one", "two"] {
            let code = format!("open('{name}', 'a').write('x'); import os; print(os.listdir())");
            let result = ask(name, &code);
            assert_eq!(result["stdout"], format!("['{name}']\n"), "{round}: {result}");
            assert_eq!(result["meta"]["isolation"]["net_ns"], true);
        }
    }
    crate::support::eventually("a warm run in a workspace", || {
        ask("one", "1")["meta"]["warm"] == true
    });
}
