//! Tools in every situation: as root, as a user, and both where namespaces are forbidden; with and without a
//! server.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use serde_json::{Value, json};

use crate::mcp::{self, Client};
use crate::support::{entries, finish};
use crate::world::{Place, World};

macro_rules! in_every_place {
    ($($name:ident),+ $(,)?) => {
        crate::world::everywhere!($($name),+);
        crate::world::tests!(in_container_as_user, OneShot, ContainerUser, $($name),+);
        crate::world::tests!(in_container_as_user_with_engine, Engine, ContainerUser, $($name),+);
    };
}

in_every_place!(
    code_runs_in_every_language,
    files_that_come_along_are_there_and_leave_nothing,
    a_users_workspace_is_shared_by_tools_and_code,
    a_workspace_of_ones_own_is_used_as_far_as_it_may_be,
    what_is_protected_stays_where_it_is,
    users_do_not_reach_each_other,
    commands_run_fenced_and_on_the_host,
    what_takes_too_long_ends,
    each_use_is_recorded_once,
    a_client_has_a_workspace_of_its_own,
);

const USERS: &str = "[permissions.filesystem]\nuser_scope = 'user'\nuser_root = 'users/{user_id}'\n";

/// Writes a user configuration, and makes the world accessible to others, like a project's directory.
fn configure(world: &World, text: &str) {
    world.dir.write("config/ringfence/ringfence.toml", text);
    for name in ["", "work"] {
        fs::set_permissions(world.dir.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn text(value: &Value) -> &str {
    assert!(value.is_string(), "no text: {value}");
    value.as_str().unwrap_or_default()
}

/// Returns the path at which code sees the workspace at `host`.
fn seen(world: &World, host: &str) -> String {
    if world.container() {
        world.dir.path(host).display().to_string()
    } else {
        "/workspace".to_owned()
    }
}

fn warned(result: &Value, words: &str) -> bool {
    let warnings = result
        .pointer("/meta/warnings")
        .or_else(|| result.get("warnings"));
    warnings.is_some_and(|warnings| warnings.to_string().contains(words))
}

/// Returns `true` if guests are another user than the caller: then they have that user's permissions only.
fn guests_are_nobody(world: &World) -> bool {
    world.place == Place::Container
}

fn code_runs_in_every_language(world: &World) {
    let said = world.tool(&[], "run_python_code", &json!({"code": "print('hello')"}));
    assert!(text(&said).starts_with("hello\n"), "{said}");
    let said = world.tool(&[], "run_python_code", &json!({"code": "1 / 0"}));
    assert!(
        text(&said).contains("ZeroDivisionError: division by zero\n[exit code 1]"),
        "{said}"
    );
    for (language, code) in [
        ("python", "import sys; print(input()); sys.exit(3)"),
        ("bash", "read -r line; echo $line; exit 3"),
        (
            "javascript",
            "console.log(require('fs').readFileSync(0).toString()); process.exit(3)",
        ),
    ] {
        let arguments = json!({"code": code, "language": language, "stdin": "through\n"});
        let result = world.tool(&[], "run_code", &arguments);
        if language == "javascript" && world.container() {
            // The image has no Node.js.
            assert_eq!(result["error"]["type"], "runtime_unavailable", "{result}");
            continue;
        }
        assert_eq!(text(&result["stdout"]).trim_end(), "through", "{result}");
        assert_eq!(
            (&result["exit_code"], &result["meta"]["outcome"]),
            (&json!(3), &json!("exited"))
        );
        assert_eq!(
            result["meta"]["isolation"]["pid_ns"],
            !world.container(),
            "{result}"
        );
        assert_eq!(result["meta"]["isolation"]["seccomp"], "fence", "{result}");
        assert_eq!(
            warned(&result, "this machine forbids namespaces"),
            world.container()
        );
    }
}

fn files_that_come_along_are_there_and_leave_nothing(world: &World) {
    let code = "import os, sys\nprint(open('a.txt').read(), open('d/b.txt').read())\nimport helper\n\
                open('a.txt', 'a').write('more'); os.remove('d/b.txt'); open('d/new', 'w')\n\
                print(sorted(os.listdir()), os.listdir('d'), open('a.txt').read())";
    let files = json!({"a.txt": "one", "d/b.txt": "two", "helper.py": "print('imported')"});
    let result = world.tool(&[], "run_code", &json!({"code": code, "files": files}));
    assert_eq!(
        result["stdout"], "one two\nimported\n['a.txt', 'd', 'helper.py'] ['new'] onemore\n",
        "{result}"
    );
    let bash = json!({"code": "cat a.txt > copy; cat copy", "language": "bash", "files": {"a.txt": "x"}});
    assert_eq!(world.tool(&[], "run_code", &bash)["stdout"], "x");
    assert_eq!(entries(&world.dir.path("work")), [""; 0]);
}

fn a_users_workspace_is_shared_by_tools_and_code(world: &World) {
    configure(world, USERS);
    let ann = |tool: &str, arguments: &Value| world.tool(&["--user", "ann"], tool, arguments);
    let written = ann("file_write", &json!({"path": "data/in.txt", "content": "one\n"}));
    assert_eq!(written["bytes_written"], 4, "{written}");
    let code = "import os\nprint(os.getcwd())\nopen('data/in.txt', 'a').write('two\\n')\n\
                os.makedirs('made'); open('made/out.txt', 'w').write(open(os.getcwd() + '/data/in.txt').read())";
    let result = ann("run_code", &json!({"code": code}));
    let place = seen(world, "work/users/ann");
    assert_eq!(
        (&result["stdout"], &result["exit_code"]),
        (&json!(format!("{place}\n")), &json!(0)),
        "{result}"
    );
    assert_eq!(
        warned(&result, "code sees the workspace at "),
        world.container(),
        "{result}"
    );
    assert!(!warned(&result, "may not: "), "{result}");
    // The tools accept the path that code sees and the host path.
    for path in [
        "made/out.txt".to_owned(),
        "/workspace/made/out.txt".to_owned(),
        format!("{place}/made/out.txt"),
        world
            .dir
            .path("work/users/ann/made/out.txt")
            .display()
            .to_string(),
    ] {
        assert_eq!(
            ann("file_read", &json!({"path": path}))["text"],
            "one\ntwo\n",
            "{path}"
        );
    }
    let changed = ann(
        "file_write",
        &json!({"path": "made/out.txt", "content": "three", "append": true}),
    );
    assert_eq!(changed["bytes_written"], 5, "{changed}");
    let bash = json!({"code": "cat made/out.txt; rm made/out.txt; rmdir made", "language": "bash"});
    assert_eq!(ann("run_code", &bash)["stdout"], "one\ntwo\nthree");
    let shell = json!({"command": "cat", "args": ["in.txt"], "working_dir": "data"});
    assert_eq!(ann("shell", &shell)["stdout"], "one\ntwo\n");
    let listed = ann("file_list", &json!({}));
    assert_eq!(listed["entries"].as_array().unwrap().len(), 1, "{listed}");
    let deleted = ann("file_delete", &json!({"path": "data/in.txt"}));
    assert_eq!(deleted["kind"], "file", "{deleted}");
    // One owner, whoever wrote.
    let users = world.dir.path("work/users");
    let owner = |name: &str| fs::metadata(users.join(name)).unwrap().uid();
    assert_eq!(owner("ann"), owner("ann/data"));
    let root = fs::metadata(world.dir.path("work")).unwrap().uid() == 0;
    assert_eq!(root, owner("ann") == 65_534);
}

fn a_workspace_of_ones_own_is_used_as_far_as_it_may_be(world: &World) {
    configure(world, "");
    let project = world.dir.path("work/project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("kept"), "kept").unwrap();
    let own = fs::metadata(world.dir.path("work")).unwrap().uid();
    for path in [&project, &project.join("kept")] {
        chown(path, Some(own), Some(own)).unwrap();
    }
    let ask = |tool: &str, arguments: &Value| world.tool(&["--workspace", "project"], tool, arguments);
    assert_eq!(
        ask("file_write", &json!({"path": "in", "content": "in"}))["bytes_written"],
        2
    );
    let code = "print(open('in').read(), open('kept').read())\n\
                try:\n    open('out', 'w').write('out')\nexcept PermissionError:\n    print('read-only')";
    let result = ask("run_code", &json!({"code": code}));
    let may_write = !guests_are_nobody(world);
    let expected = if may_write {
        "in kept\n"
    } else {
        "in kept\nread-only\n"
    };
    assert_eq!(result["stdout"], expected, "{result}");
    assert_eq!(warned(&result, "may not: write"), !may_write, "{result}");
    assert_eq!(project.join("out").exists(), may_write);
    let shell = ask("shell", &json!({"command": "cat", "args": ["in"]}));
    assert_eq!(
        (&shell["stdout"], warned(&shell, "may not: write")),
        (&json!("in"), !may_write)
    );
    if may_write {
        assert_eq!(ask("file_read", &json!({"path": "out"}))["text"], "out");
        assert_eq!(fs::metadata(project.join("out")).unwrap().uid(), own);
        return;
    }
    // As the warning advises.
    chown(&project, Some(65_534), None).unwrap();
    let result = ask("run_code", &json!({"code": "open('out', 'w').write('out')"}));
    assert_eq!(
        (&result["exit_code"], warned(&result, "may not")),
        (&json!(0), false),
        "{result}"
    );
    assert_eq!(ask("file_read", &json!({"path": "out"}))["text"], "out");
    // Also if code cannot even reach it.
    fs::set_permissions(&project, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&project, Some(0), None).unwrap();
    let result = ask("run_code", &json!({"code": "import os; print(os.listdir())"}));
    assert_eq!(result["exit_code"], 1, "{result}");
    assert!(warned(&result, "may not: read, write"), "{result}");
}

fn what_is_protected_stays_where_it_is(world: &World) {
    configure(world, "");
    let project = world.dir.path("work/project");
    fs::create_dir_all(project.join(".git/hooks")).unwrap();
    fs::create_dir(project.join("src")).unwrap();
    fs::write(project.join(".git/config"), "[core]").unwrap();
    fs::write(project.join("open"), "").unwrap();
    fs::write(world.dir.path("work/outside"), "precious").unwrap();
    std::os::unix::fs::symlink("../outside", project.join("link")).unwrap();
    let own = match world.place {
        Place::Container => 65_534,
        _ => fs::metadata(world.dir.path("work")).unwrap().uid(),
    };
    for name in [
        "",
        ".git",
        ".git/hooks",
        ".git/config",
        "src",
        "open",
        "../outside",
    ] {
        chown(project.join(name), Some(own), Some(own)).unwrap();
    }
    let code = "import os\nprint(open('.git/config').read())\n\
        for act in (lambda: open('.git/config', 'w'), lambda: open('.git/hooks/post-checkout', 'w'),\n\
        \x20           lambda: os.rename('.git', 'git'), lambda: os.unlink('.git/config'), lambda: open('link', 'w'),\n\
        \x20           lambda: os.link('.git/config', 'src/config'), lambda: os.rename('.git/config', 'src/config')):\n\
        \x20   try:\n        print('REACHED', act())\n    except OSError:\n        pass\n\
        open('open', 'w').write('changed'); open('src/new', 'w').write('new')\n";
    let result = world.tool(&["--workspace", "project"], "run_code", &json!({"code": code}));
    assert_eq!(
        (&result["stdout"], &result["exit_code"]),
        (&json!("[core]\n"), &json!(0)),
        "{result}"
    );
    assert_eq!(
        warned(&result, "`.git`, which is protected"),
        world.container(),
        "{result}"
    );
    assert_eq!(fs::read_to_string(project.join(".git/config")).unwrap(), "[core]");
    assert_eq!(fs::read_to_string(project.join("open")).unwrap(), "changed");
    assert_eq!(fs::read_to_string(project.join("src/new")).unwrap(), "new");
    assert_eq!(
        fs::read_to_string(world.dir.path("work/outside")).unwrap(),
        "precious"
    );
}

fn users_do_not_reach_each_other(world: &World) {
    configure(world, USERS);
    for user in ["ann", "bob"] {
        let arguments = json!({"path": "secret", "content": format!("of {user}")});
        let written = world.tool(&["--user", user], "file_write", &arguments);
        assert_eq!(written["bytes_written"], 6, "{written}");
        // It works for the user's own files.
        let own = json!({"code": "print(open('secret').read())"});
        assert_eq!(
            world.tool(&["--user", user], "run_code", &own)["stdout"],
            format!("of {user}\n")
        );
    }
    let theirs = world.dir.path("work/users/bob/secret");
    let ann = |tool: &str, arguments: &Value| world.tool(&["--user", "ann"], tool, arguments);
    for path in [
        "../bob/secret",
        theirs.to_str().unwrap(),
        "/workspace/../bob/secret",
    ] {
        for (tool, arguments) in [
            ("file_read", json!({"path": path})),
            ("file_write", json!({"path": path, "content": "stolen"})),
            ("file_delete", json!({"path": path})),
            ("file_list", json!({"path": path.trim_end_matches("/secret")})),
        ] {
            let refused = ann(tool, &arguments);
            assert_eq!(
                refused["error"]["type"], "permission_denied",
                "{tool} {path}: {refused}"
            );
        }
        let code = format!(
            "import os\npath = {path:?}\n\
             for act in (lambda: open(path).read(), lambda: open(path, 'w'), lambda: os.unlink(path),\n\
             \x20           lambda: os.symlink(path, 'link') or open('link').read(),\n\
             \x20           lambda: os.link(path, 'hard'), lambda: os.rename(path, 'mine')):\n\
             \x20   try:\n        print('REACHED', act())\n    except OSError:\n        pass\n\
             try:\n    print('REACHED', os.listdir(os.path.dirname(path)))\nexcept OSError:\n    pass\n"
        );
        let result = ann("run_code", &json!({"code": code}));
        let harmless = if path.starts_with("/workspace") && !world.container() {
            // The parent of the workspace there is the cell's own root.
            assert!(!result.to_string().contains("of bob"), "{result}");
            true
        } else {
            result["stdout"] == ""
        };
        assert!(harmless && result["exit_code"] == 0, "{result}");
        ann("file_delete", &json!({"path": "link"}));
    }
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "of bob");
}

fn commands_run_fenced_and_on_the_host(world: &World) {
    configure(world, "");
    let echo = json!({"command": "echo", "args": ["$HOME; id", "*"]});
    let result = world.tool(&[], "shell", &echo);
    assert_eq!(
        (&result["stdout"], &result["runner"], &result["exit_code"]),
        (&json!("$HOME; id *\n"), &json!("fenced"), &json!(0)),
        "{result}"
    );
    assert_eq!(result["isolation"]["seccomp"], "fence");
    // A request above the launcher's maximum is rejected, and the launcher survives.
    let long = json!({"command": "echo", "args": ["x".repeat(200_000)]});
    let refused = world.tool(&[], "shell", &long);
    assert_eq!(refused["error"]["type"], "invalid_arguments", "{refused}");
    assert_eq!(world.tool(&[], "shell", &echo)["exit_code"], 0);
    configure(
        world,
        "[permissions.shell]\nrunner = 'host'\n[sandbox]\nmemory = '40MiB'\ndisk = '1MiB'\npids = 8\n",
    );
    let script = "pwd; test $(id -u) = $0 && echo same user; head -c 3000000 /dev/zero > big; stat -c %s big; rm big; \
                  python3 -c 'print(len(bytearray(100 << 20)))'; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 5 & done; jobs | wc -l";
    let own = fs::metadata(world.dir.path("work")).unwrap().uid().to_string();
    let result = world.tool(
        &[],
        "shell",
        &json!({"command": "bash", "args": ["-c", script, own]}),
    );
    let place = world.dir.path("work").canonicalize().unwrap();
    let expected = format!("{}\nsame user\n3000000\n104857600\n10\n", place.display());
    assert_eq!(
        (&result["stdout"], &result["runner"]),
        (&json!(expected), &json!("host")),
        "{result}"
    );
    assert_eq!(result["isolation"]["seccomp"], false, "{result}");
    // The host runner works in the workspace, if there is one; code never runs on the host.
    fs::create_dir(world.dir.path("work/project")).unwrap();
    let result = world.tool(&["--workspace", "project"], "shell", &json!({"command": "pwd"}));
    assert_eq!(
        result["stdout"],
        format!("{}/project\n", place.display()),
        "{result}"
    );
    let code = json!({"code": "import os; print(len(bytearray(100 << 20)))"});
    assert_ne!(world.tool(&[], "run_code", &code)["exit_code"], 0);
}

fn what_takes_too_long_ends(world: &World) {
    configure(world, "[permissions.tool_limits]\nshell_timeout_secs = 0.5\n");
    let code = json!({"code": "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '1000'])\ntime.sleep(1000)", "timeout": "600ms"});
    let result = world.tool(&[], "run_code", &code);
    assert_eq!(
        (&result["meta"]["outcome"], &result["exit_code"]),
        (&json!("timed_out"), &json!(-1)),
        "{result}"
    );
    for runner in ["fenced", "host"] {
        configure(
            world,
            &format!("[permissions]\nshell.runner = '{runner}'\ntool_limits.shell_timeout_secs = 0.5\n"),
        );
        let script = "setsid sleep 1001 & setsid nohup sleep 1002 & trap '' TERM; sleep 1003";
        let arguments = json!({"command": "bash", "args": ["-c", script], "timeout": 1000});
        let result = world.tool(&[], "shell", &arguments);
        assert_eq!(
            (&result["timed_out"], &result["exit_code"], &result["runner"]),
            (&json!(true), &Value::Null, &json!(runner)),
            "{result}"
        );
    }
}

fn each_use_is_recorded_once(world: &World) {
    configure(world, USERS);
    for (tool, arguments) in [
        ("run_python_code", json!({"code": "print(1)"})),
        ("run_code", json!({"code": "exit 3", "language": "bash"})),
        ("run_code", json!({"code": 1})),
        ("shell", json!({"command": "true"})),
        ("file_write", json!({"path": "a", "content": "x"})),
        ("file_read", json!({"path": "../b"})),
        ("file_read", json!({"path": "a"})),
        ("file_list", json!({})),
        ("file_delete", json!({"path": "a"})),
        ("http_fetch", json!({"url": "http://127.0.0.1:9/"})),
        ("no_such_tool", json!({})),
    ] {
        world.tool(&["--user", "ann"], tool, &arguments);
    }
    finish(&mut world.command(&[], ["audit", "verify"]), b"").ok();
    let log = finish(
        &mut world.command(&[], ["audit", "tail", "--json", "-n", "100"]),
        b"",
    );
    // Runs that wait for a warm server have records, too.
    let used = log.ok().lines().filter(|line| !line.contains("\"tool\":\"run\""));
    assert_eq!(used.count(), 11, "{log:?}");
}

fn a_client_has_a_workspace_of_its_own(world: &World) {
    let mut client = Client::greeted(world, &[]);
    // Warnings about the machine are tested elsewhere.
    client.ask("logging/setLevel", &json!({"level": "error"}));
    client.call("file_write", &json!({"path": "d/in", "content": "one"}));
    let code = "print(open('d/in').read()); open('d/in', 'a').write(' two'); open('out', 'w').write('three')";
    let said = client.call("run_code", &json!({"code": code}));
    assert_eq!(said["structuredContent"]["stdout"], "one\n", "{said}");
    assert_eq!(said["structuredContent"]["exit_code"], 0, "{said}");
    for (path, content) in [("d/in", "one two"), ("/workspace/out", "three")] {
        let read = client.call("file_read", &json!({"path": path}));
        assert_eq!(mcp::text(&read), content);
    }
    client.call("file_write", &json!({"path": "out", "content": "four"}));
    assert!(
        client
            .python("open('out', 'a').write('five'); print(open('out').read(4))")
            .starts_with("four\n")
    );
    client.leave().well();
}
