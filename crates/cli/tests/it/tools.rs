//! The toolbox through `ringfence tool`: schemas, permissions, deadlines, bounds, runners.

use std::fs;

use serde_json::{Value, json};

use crate::leftovers;
use crate::support::{Dir, Output, entries, eventually_none, finish};
use crate::world::{Mode, Place, World};

/// A setting with a user configuration, for single tool calls.
pub(crate) struct Tools {
    pub(crate) dir: Dir,
    options: Vec<String>,
}

/// A typed error, as printed.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) hint: String,
    pub(crate) status: i32,
}

impl Tools {
    pub(crate) fn new(config: &str) -> Self {
        let dir = Dir::new();
        dir.write("config/ringfence/ringfence.toml", config);
        Self {
            dir,
            options: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, options: &[&str]) -> Self {
        self.options = options.iter().map(|&option| option.to_owned()).collect();
        self
    }

    pub(crate) fn output(&self, tool: &str, arguments: &Value) -> Output {
        let mut command = self.dir.command(["tool", tool, "-", "--json"]);
        finish(command.args(&self.options), arguments.to_string().as_bytes())
    }

    /// Returns the result of a tool.
    #[track_caller]
    pub(crate) fn ask(&self, tool: &str, arguments: Value) -> Value {
        serde_json::from_str(self.output(tool, &arguments).ok()).unwrap()
    }

    /// Returns the error of a tool: typed on standard output, with a hint on standard error.
    #[track_caller]
    pub(crate) fn refused(&self, tool: &str, arguments: Value) -> Refused {
        let output = self.output(tool, &arguments);
        assert_ne!(output.status, 0, "{output:?}");
        let printed: Value = serde_json::from_str(&output.stdout).unwrap();
        let text = |name: &str| printed["error"][name].as_str().unwrap().to_owned();
        let (kind, message, hint) = (text("type"), text("message"), text("hint"));
        assert!(!message.is_empty() && !hint.is_empty(), "{output:?}");
        assert!(output.stderr.contains(&format!("error: {kind}: ")), "{output:?}");
        assert!(output.stderr.contains("hint: "), "{output:?}");
        Refused {
            kind,
            message,
            hint,
            status: output.status,
        }
    }
}

#[test]
fn the_list_names_every_tool_with_its_schema() {
    let tools = Tools::new("");
    let listed = tools.dir.run(["tool", "--list", "--json"]);
    let listed: Vec<Value> = serde_json::from_str(listed.ok()).unwrap();
    let named = |name: &str| listed.iter().find(|tool| tool["name"] == name);
    for name in [
        "run_python_code",
        "run_code",
        "shell",
        "file_read",
        "file_write",
        "file_list",
        "file_delete",
        "http_fetch",
    ] {
        let tool = named(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
        assert!(tool["description"].as_str().unwrap().len() > 40, "{name}");
    }
    assert_eq!(named("run_code").unwrap()["outputSchema"]["type"], "object");
    let words = tools.dir.run(["tool", "--list"]);
    assert!(
        words.ok().contains("run_python_code {code, timeout?}"),
        "{words:?}"
    );
}

#[test]
fn arguments_that_do_not_fit_are_refused_and_the_field_is_named() {
    let tools = Tools::new("");
    for (tool, arguments, words) in [
        ("run_code", json!({}), "\"code\" is a required property"),
        ("run_code", json!({"code": 1}), "`/code`: 1 is not of type"),
        (
            "run_code",
            json!({"code": "", "lang": "python"}),
            "'lang' was unexpected",
        ),
        (
            "run_code",
            json!({"code": "", "language": "cobol"}),
            "`/language`: \"cobol\"",
        ),
        ("run_code", json!({"code": "", "timeout": 0}), "`/timeout`: 0"),
        ("run_code", json!({"code": "", "timeout": -5}), "`/timeout`: -5"),
        (
            "run_code",
            json!({"code": "", "timeout": "forever"}),
            "`/timeout`: \"forever\"",
        ),
        (
            "run_code",
            json!({"code": "", "session": "../x"}),
            "`/session`: \"../x\"",
        ),
        ("run_code", json!([]), "is not of type \"object\""),
        ("shell", json!({"command": ""}), "`/command`: \"\""),
        ("shell", json!({"command": "id", "args": "x"}), "`/args`: \"x\""),
        (
            "shell",
            json!({"command": "id", "args": ["a", 2]}),
            "`/args/1`: 2",
        ),
        (
            "shell",
            json!({"command": "id", "working_dir": "../up"}),
            "leads out of the workspace",
        ),
    ] {
        let refused = tools.refused(tool, arguments.clone());
        assert_eq!(
            (refused.kind.as_str(), refused.status),
            ("invalid_arguments", 2),
            "{arguments}"
        );
        assert!(
            refused.message.contains(words),
            "{arguments}: {}",
            refused.message
        );
    }
    let not_json = finish(&mut tools.dir.command(["tool", "run_code", "{code"]), b"");
    not_json.refused(2, "the arguments are not JSON");
    assert_eq!(tools.refused("no_such_tool", json!({})).kind, "not_found");
}

/// Returns tools with invalid arguments, and words of the message and of the hint.
#[rustfmt::skip]
fn mistakes() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    vec![
        ("run_code", json!({}), "\"code\" is a required", "members: code, language?, runtime?"),
        ("run_code", json!({"code": "", "lang": ""}), "'lang' was", "members: code, language?, runtime?"),
        ("run_code", json!({"code": "", "timeout": "5 s"}), "\"5 s\" cannot be read", "`timeout`: Timeout in seconds above 0, or"),
        ("run_python_code", json!({"code": "", "timeout": true}), "true cannot be read", "`timeout`: Timeout in seconds above 0, or"),
        ("run_code", json!({"code": "", "runtime": "lokal"}), "\"lokal\"", "standard library and the packages"),
        ("run_code", json!({"code": "", "session": "a b"}), "\"a b\" does not match", "`session`: Name of"),
        ("run_code", json!({"code": "", "runtime": "e2b"}), "the runtime `e2b` is not available", "use the runtime `local`"),
        ("shell", json!({"command": "ls -la"}), "cannot start ls -la", "each argument in `args`"),
        ("shell", json!({"command": "no-such"}), "cannot start no-such", "check that the file exists"),
        ("shell", json!({"command": "echo", "args": ["a\0"]}), "`/args/0` holds NUL", "write it to a file"),
        ("shell", json!({"command": "echo", "args": ["a".repeat(200_000)]}), "are too long", "into a file"),
        ("shell", json!({"command": "ls", "working_dir": "no"}), "cannot start in `no`: No such", "of the workspace that exists"),
        ("shell", json!({"command": "ls", "working_dir": "file"}), "cannot start in `file`: Not a dir", "of the workspace"),
        ("file_read", json!({"path": ""}), "it is empty", "relative to the workspace"),
        ("file_read", json!({"path": "full"}), "is a directory, not a regular file", "list it with `file_list`"),
        ("file_read", json!({"path": "no"}), "`no` does not exist", "list the directory"),
        ("file_list", json!({"path": "file"}), "`file` is a file, not a directory", "`file_read`"),
        ("file_write", json!({"path": "~/x", "content": ""}), "begins with `~`", "relative to the workspace"),
        ("file_write", json!({"path": "file/x", "content": ""}), "is below a file", "another name"),
        ("file_delete", json!({"path": "full"}), "is a directory, not an empty one", "delete what it holds first"),
        ("http_fetch", json!({"url": "https://example.com/"}), "no host is allowed", "`egress.allowed_hosts`"),
    ]
}

/// An error for a person or a model states its position, and what to do.
#[test]
fn an_error_says_where_it_is_and_what_to_do() {
    let tools = Tools::new("");
    fs::create_dir_all(tools.dir.path("work/project/full/inner")).unwrap();
    tools.dir.write("work/project/file", "x");
    let tools = tools.with(&["--workspace", "project"]);
    for (tool, arguments, words, hint) in mistakes() {
        let refused = tools.refused(tool, arguments);
        assert!(refused.message.contains(words), "{words}: {refused:?}");
        assert!(refused.hint.contains(hint), "{hint}: {refused:?}");
        assert!(!refused.message.starts_with(&refused.kind), "{refused:?}");
    }
    let beyond = tools.output("file_read", &json!({"path": "file", "offset": 9}));
    assert!(beyond.ok().contains("\"lines\": 1"), "{beyond:?}");
    let not_utf8 = finish(
        &mut tools.dir.command(["tool", "run_code", "-"]),
        b"{\"code\": \"\xff\"}",
    );
    not_utf8.refused(2, "the arguments are not UTF-8");
}

#[test]
fn a_tool_that_is_denied_is_neither_listed_nor_used() {
    let tools = Tools::new("[permissions]\ndenied_tools = ['shell']");
    let listed = tools.dir.run(["tool", "--list"]);
    assert!(!listed.ok().contains("shell {"), "{listed:?}");
    let refused = tools.refused("shell", json!({"command": "id"}));
    assert_eq!(
        (refused.kind.as_str(), refused.status),
        ("permission_denied", 125)
    );
    assert_eq!(tools.ask("run_python_code", json!({"code": "print(1)"})), "1\n");
    // A rule about an unknown tool is an error: a typo would leave the intended tool allowed.
    let tools = Tools::new("[permissions]\ndenied_tools = ['shel']");
    tools
        .dir
        .run(["tool", "--list"])
        .refused(2, "found `shel`; did you mean `shell`?");
}

#[test]
fn python_answers_with_text_whatever_happens() {
    let tools = Tools::new("[sandbox]\nblock_dangerous_imports = true");
    let ask = |code: &str| {
        let answer = tools.ask("run_python_code", json!({"code": code, "timeout": "2s"}));
        answer.as_str().unwrap().to_owned()
    };
    assert_eq!(ask("print('hello')"), "hello\n");
    for beyond in [json!(1e12), json!("99h")] {
        let answer = tools.ask("run_python_code", json!({"code": "print(1)", "timeout": beyond}));
        let answer = answer.as_str().unwrap();
        assert!(
            answer.starts_with("1\n[warning: the caller asked for more time"),
            "{answer}"
        );
    }
    assert_eq!(ask(""), "");
    let error = ask("print(1)\n1 / 0");
    assert!(error.starts_with("1\nTraceback"), "{error}");
    assert!(
        error.contains("line 2") && error.ends_with("ZeroDivisionError: division by zero\n[exit code 1]")
    );
    assert!(ask("def").contains("SyntaxError"));
    assert!(ask("import os").contains("os"));
    let timed_out = ask("while True: pass");
    // Less than requested if the program started late.
    let in_time = ["timed out after 2s", "timed out after 1"];
    assert!(in_time.iter().any(|told| timed_out.contains(told)), "{timed_out}");
    assert!(ask("import sys; sys.exit(7)").ends_with("[exit code 7]"));
}

#[test]
fn every_language_answers_in_one_shape() {
    let tools = Tools::new("");
    for (language, code) in [
        ("python", "print(input())"),
        ("bash", "read line; echo $line"),
        (
            "javascript",
            "console.log(require('fs').readFileSync(0).toString())",
        ),
    ] {
        let arguments = json!({"code": code, "language": language, "stdin": "through"});
        let result = tools.ask("run_code", arguments);
        assert_eq!(result["stdout"], "through\n", "{result}");
        assert_eq!(result["meta"]["language"], language);
        assert_eq!(result["meta"]["isolation"]["seccomp"], "fence");
    }
    let refused = tools.refused("run_code", json!({"code": "1", "runtime": "e2b"}));
    assert_eq!(refused.kind, "runtime_unavailable");
}

/// Files in `/output` are read by the path that the program wrote, whatever tool ran it.
#[test]
fn output_files_are_kept_for_the_conversation() {
    let tools = Tools::new("");
    for tool in ["run_code", "run_python_code"] {
        let code = format!("open('/output/{tool}.txt', 'w').write('by {tool}')");
        let told = tools.ask(tool, json!({"code": code})).to_string();
        assert!(!told.contains("discarded"), "{told}");
        let path = format!("/output/{tool}.txt");
        let read = tools.ask("file_read", json!({"path": path}));
        assert_eq!(read["text"], format!("by {tool}"), "{read}");
    }
}

/// A full output directory takes no more files, and the run says so.
#[test]
fn a_discarded_output_file_is_told() {
    let tools = Tools::new("");
    let code = "open('/output/chart.png', 'w').write('x')";
    let warnings = |tools: &Tools| {
        let result = tools.ask("run_code", json!({"code": code}));
        assert_eq!(result["meta"]["output_files"][0]["path"], "chart.png", "{result}");
        result["meta"]["warnings"].to_string()
    };
    assert_eq!(warnings(&tools), "null");
    let output = entries(&tools.dir.path("state/ringfence/output"));
    let output = output.iter().find(|name| !name.starts_with('.')).unwrap();
    let full = tools.dir.path(&format!("state/ringfence/output/{output}/full"));
    // Zeros that no block holds count as what they would take elsewhere: a copy writes them.
    fs::File::create(&full).unwrap().set_len(257 << 20).unwrap();
    let told = warnings(&tools);
    assert!(
        told.contains("/output/chart.png was discarded with the run: there is no workspace"),
        "{told}"
    );
    let text = tools.ask("run_python_code", json!({"code": code})).to_string();
    assert!(text.contains("/output/chart.png was discarded"), "{text}");
    tools.ask("file_delete", json!({"path": "/output/full"}));
    assert_eq!(warnings(&tools), "null");
    fs::File::create(&full).unwrap().set_len(257 << 20).unwrap();
    fs::create_dir(tools.dir.path("work/project")).unwrap();
    let told = warnings(&tools.with(&["--workspace", "project"]));
    assert!(
        told.contains("was discarded with the run: write files to /workspace"),
        "{told}"
    );
}

#[test]
fn a_caller_shortens_the_limit_and_never_lengthens_it() {
    let tools =
        Tools::new("[permissions.tool_limits]\nrun_code_timeout_secs = 0.4\nshell_timeout_secs = 0.4");
    let code = "import time; time.sleep(30)";
    for (timeout, limit) in [
        (json!(null), 0.4),
        (json!(60), 0.4),
        (json!(1e12), 0.4),
        (json!("300ms"), 0.3),
    ] {
        let arguments = json!({"code": code, "timeout": timeout});
        let result = tools.ask("run_code", arguments);
        assert_eq!(result["meta"]["outcome"], "timed_out", "{result}");
        assert_eq!(result["exit_code"], -1);
        let held = result["meta"]["resource_limits"]["timeout"].as_f64().unwrap();
        assert!(held <= limit && held > limit - 0.1, "{held}");
        let warned = result["meta"]["warnings"]
            .to_string()
            .contains("asked for more time");
        assert_eq!(warned, timeout.as_f64().is_some(), "{result}");
    }
    let shell = json!({"command": "sleep", "args": ["30"], "timeout": 60});
    let result = tools.ask("shell", shell);
    assert_eq!(
        (&result["timed_out"], &result["exit_code"]),
        (&json!(true), &json!(null))
    );
    leftovers::none(&tools.dir, &[], 0);
}

#[test]
fn a_limit_may_be_extended_by_the_configuration_up_to_a_cap() {
    let limits = "[permissions.tool_limits]\nat_limit = 'extend'\nrun_code_timeout_secs = 0.2\nhard_timeout_secs = 5\n";
    let tools = Tools::new(limits);
    let result = tools.ask(
        "run_code",
        json!({"code": "import time; time.sleep(0.5); print('done')"}),
    );
    assert_eq!(result["stdout"], "done\n");
    let warnings = result["meta"]["warnings"].to_string();
    assert!(
        warnings.contains("the limit of 200ms was extended by the configuration, to 5s at most"),
        "{warnings}"
    );
    let endless = tools.ask("run_code", json!({"code": "while True: pass"}));
    assert_eq!(endless["meta"]["outcome"], "timed_out");
    let told = endless["stderr"].as_str().unwrap();
    assert!(told.contains("timed out after 5s"), "{endless}");
    // An explicit lower value is kept.
    let asked = tools.ask(
        "run_code",
        json!({"code": "while True: pass", "timeout": "100ms"}),
    );
    let told = asked["stderr"].as_str().unwrap();
    assert!(told.contains("timed out after 100ms"), "{asked}");
}

#[test]
fn the_fenced_runner_starts_programs_without_a_shell() {
    let tools = Tools::new("");
    let result = tools.ask(
        "shell",
        json!({"command": "echo", "args": ["$HOME; id", "*", "a b"]}),
    );
    assert_eq!(result["stdout"], "$HOME; id * a b\n");
    assert_eq!(
        (&result["exit_code"], &result["runner"]),
        (&json!(0), &json!("fenced"))
    );
    assert_eq!(result["isolation"]["net_ns"], true);
    let secret = tools.dir.write("home/secret", "x");
    assert!(secret.exists());
    let outside = tools.ask("shell", json!({"command": "cat", "args": [secret]}));
    assert_eq!(outside["exit_code"], 1, "{outside}");
    assert!(
        outside["stderr"]
            .as_str()
            .unwrap()
            .contains("No such file or directory")
    );
    assert_eq!(tools.ask("shell", json!({"command": "false"}))["exit_code"], 1);
    assert_eq!(
        tools.refused("shell", json!({"command": "no-such-program"})).kind,
        "not_found"
    );
    assert_eq!(
        tools.refused("shell", json!({"command": "echo hello; id"})).kind,
        "not_found"
    );
}

#[test]
fn the_host_runner_is_a_choice_that_the_result_tells() {
    let tools = Tools::new("[permissions.shell]\nrunner = 'host'");
    let secret = tools.dir.write("home/secret", "seen");
    let result = tools.ask("shell", json!({"command": "cat", "args": [secret]}));
    assert_eq!(
        (&result["stdout"], &result["runner"]),
        (&json!("seen"), &json!("host"))
    );
    assert_eq!(result["isolation"]["seccomp"], false);
    assert_eq!(result["isolation"]["pid_ns"], false);
    // Still without a shell, and with a scrubbed environment.
    let result = tools.ask("shell", json!({"command": "echo", "args": ["$(id)"]}));
    assert_eq!(result["stdout"], "$(id)\n");
    // Code stays in the fence.
    let code = json!({"code": format!("open({:?})", tools.dir.path("home/secret"))});
    assert_eq!(tools.ask("run_code", code)["exit_code"], 1);
    // A project's own file may not set it.
    let tools = Tools::new("");
    tools
        .dir
        .write("work/ringfence.toml", "[permissions.shell]\nrunner = 'host'");
    let output = tools.output("shell", &json!({"command": "true"}));
    assert!(output.ok().contains("\"runner\": \"fenced\""), "{output:?}");
    assert!(
        output.stderr.contains("does not count in a project's own file"),
        "{output:?}"
    );
}

#[test]
fn the_host_runner_ends_the_whole_tree() {
    let tools = Tools::new("[permissions.shell]\nrunner = 'host'");
    let pids = tools.dir.path("work/pids");
    // A child, a grandchild in its own session, and one that ignores SIGTERM and the like.
    let script = format!(
        "setsid bash -c 'trap \"\" TERM HUP INT; echo $$ >> {0}; sleep 1000 & echo $! >> {0}; wait' & \
         echo $$ >> {0}; until [ $(wc -l < {0}) -ge 3 ]; do :; done; echo all; wait",
        pids.display()
    );
    let arguments = json!({"command": "bash", "args": ["-c", script], "timeout": 1.5});
    let result = tools.ask("shell", arguments);
    assert_eq!(
        (&result["timed_out"], &result["stdout"]),
        (&json!(true), &json!("all\n")),
        "{result}"
    );
    let pids = fs::read_to_string(pids).unwrap();
    assert_eq!(pids.lines().count(), 3);
    eventually_none("the tree of the command", || {
        let alive = pids
            .lines()
            .filter(|pid| fs::metadata(format!("/proc/{pid}")).is_ok());
        alive.collect::<Vec<_>>()
    });
}

#[test]
fn output_without_end_is_cut_and_costs_nothing() {
    let tools = Tools::new("[permissions.tool_limits]\nmax_output_bytes = 5000");
    let result = tools.ask(
        "shell",
        json!({"command": "head", "args": ["-c", "50000000", "/dev/zero"]}),
    );
    assert_eq!(
        (&result["truncated"], &result["exit_code"]),
        (&json!(true), &json!(0))
    );
    assert!(result["stdout"].as_str().unwrap().len() < 6_000);
    let text = tools.ask("run_python_code", json!({"code": "print('x' * 10**7)"}));
    let text = text.as_str().unwrap();
    assert!(
        text.contains("... (output truncated)") && text.len() < 6_000,
        "{}",
        text.len()
    );
}

#[test]
fn the_answer_is_the_same_with_an_engine() {
    let world = World::new(Mode::Engine, Place::Here).unwrap();
    let ask = |tool: &str, arguments: &str, more: &[&str]| {
        let mut command = world.dir.command(["tool", tool, arguments, "--json"]);
        let output = finish(command.args(more), b"");
        serde_json::from_str::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    for (tool, arguments) in [
        ("run_code", r#"{"code": "print(1)"}"#),
        ("shell", r#"{"command": "echo", "args": ["1"]}"#),
        ("shell", r#"{"command": "no-such-program"}"#),
    ] {
        let (mut there, mut here) = (ask(tool, arguments, &[]), ask(tool, arguments, &["--no-engine"]));
        if tool == "run_code" {
            assert_eq!(
                (&there["meta"]["warm"], &here["meta"]["warm"]),
                (&json!(true), &json!(false))
            );
        }
        for result in [&mut there, &mut here] {
            for volatile in [
                "/duration",
                "/meta/warm",
                "/meta/cpu_seconds",
                "/meta/peak_memory_bytes",
                // The rest of the tool's own timeout.
                "/meta/resource_limits/timeout",
            ] {
                if let Some(value) = result.pointer_mut(volatile) {
                    *value = Value::Null;
                }
            }
        }
        assert_eq!(there, here, "{tool}");
    }
}
