//! The tool `sandbox_exec`: programs in kept-alive containers.

mod files;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::containers::{Engine, engines};
use crate::mcp::{Client, text};
use crate::support::{Dir, Output, eventually, eventually_none, finish, none_within};
use crate::world::World;

/// The uid of programs in root's containers.
const NOBODY: u32 = 65_534;

/// A server under test, and a container engine.
struct Place {
    world: World,
    engine: Engine,
}

/// Returns a place for each container engine, with these keys of `codeExecution`.
fn places(keys: &str) -> Vec<Place> {
    let place = |engine: Engine| {
        let world = World::before_engine();
        configure(&world, engine.name, keys);
        world.start_engine();
        Place { world, engine }
    };
    engines().into_iter().map(place).collect()
}

fn configure(world: &World, engine: &str, keys: &str) {
    // Some calls are queued while containers start for others, which takes a while on a busy machine.
    let patience = if keys.contains("timeout") {
        ""
    } else {
        "timeout = 120"
    };
    let text = format!("[codeExecution]\ncontainerRuntime = '{engine}'\n{patience}\n{keys}\n");
    world.dir.write("config/ringfence/ringfence.toml", text);
}

impl Place {
    fn command(&self, options: &[&str], arguments: &Value) -> Command {
        let arguments = arguments.to_string();
        let mut args = vec!["tool", "sandbox_exec", &arguments];
        args.extend(options);
        self.world.command(&[], args)
    }

    fn exec(&self, options: &[&str], arguments: &Value) -> Output {
        finish(&mut self.command(options, arguments), b"")
    }

    #[track_caller]
    fn bash(&self, code: &str) -> String {
        self.exec(&[], &json!({"language": "bash", "code": code}))
            .ok()
            .to_owned()
    }

    #[track_caller]
    fn python(&self, code: &str) -> String {
        self.exec(&[], &json!({"language": "python", "code": code}))
            .ok()
            .to_owned()
    }

    /// Returns the complete result.
    #[track_caller]
    fn result(&self, options: &[&str], arguments: &Value) -> Value {
        let mut all = vec!["--json"];
        all.extend(options);
        let output = self.exec(&all, arguments);
        let parsed = serde_json::from_str(&output.stdout);
        parsed.map_err(|error| format!("{error}: {output:?}")).unwrap()
    }

    fn start(&self, options: &[&str], arguments: &Value) -> Child {
        let mut command = self.command(options, arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Starts a call that runs until [`Self::release`].
    fn begin(&self, name: &str) -> Child {
        let code = format!(
            "touch /output/{name}.up; until [ -e /output/{name}.go ]; do read -t 0.01 < <(:) || :; done; echo released"
        );
        let child = self.start(&[], &json!({"language": "bash", "code": code}));
        let up = format!("/output/{name}.up");
        eventually("the call runs", || self.holder(&up).is_some());
        child
    }

    /// Returns the container that holds a file. A call's files reach the host only after its end.
    fn holder(&self, file: &str) -> Option<String> {
        let running = self.running();
        let names = running.iter().filter_map(|line| line.split(' ').next());
        let holds = |name: &&str| self.inside(name, &["test", "-e", file]).status == 0;
        names.into_iter().find(holds).map(str::to_owned)
    }

    /// Runs a command in a container through the container engine.
    fn inside(&self, container: &str, command: &[&str]) -> Output {
        let mut program = self.engine.dir.program(self.engine.name);
        finish(program.args(["exec", container]).args(command), b"")
    }

    #[track_caller]
    fn release(&self, name: &str, child: Child) {
        // A container started meanwhile has the others' files, too.
        for line in self.running() {
            let container = line.split(' ').next().unwrap();
            self.inside(container, &["touch", &format!("/output/{name}.go")]);
        }
        assert_eq!(printed(child), "released\n");
    }

    /// Returns the host directory of a user's output files.
    fn output(&self, user: Option<&str>) -> PathBuf {
        let output = self.world.dir.path("state/ringfence/output");
        output
            .canonicalize()
            .unwrap_or(output)
            .join(user.unwrap_or("local"))
    }

    /// Returns the running containers of our server.
    fn running(&self) -> Vec<String> {
        self.engine.running(self.world.engine_pid().unwrap())
    }

    /// Runs this command of the container engine on the running container.
    #[track_caller]
    fn end(&self, how: &str) {
        let container = self.running()[0].split(' ').next().unwrap().to_owned();
        let mut program = self.engine.dir.program(self.engine.name);
        finish(program.args([how, &container]), b"").ok();
    }

    /// Creates a directory that programs may write to.
    fn workspace(&self) -> String {
        let path = self.world.dir.path("shared");
        fs::create_dir(&path).unwrap();
        if fs::metadata("/proc/self").is_ok_and(|us| std::os::unix::fs::MetadataExt::uid(&us) == 0) {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::set_permissions(self.world.dir.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// Stops our server, which must leave nothing.
    #[track_caller]
    fn close(self) {
        let pid = self.world.engine_pid().unwrap();
        assert_eq!(
            self.world.stop_engine("TERM"),
            Some(0),
            "{}",
            self.world.engine_log()
        );
        assert_eq!(self.engine.left_by(pid), Vec::<String>::new());
    }
}

#[track_caller]
fn printed(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn python_and_bash_run_in_one_container_and_are_told_in_sections() {
    for place in places("") {
        assert_eq!(place.python("print(6 * 7)"), "42\n");
        assert_eq!(place.bash("echo kept > /tmp/x; echo $((6 * 7))"), "42\n");
        let told = place.bash("cat /tmp/x; echo err >&2; exit 3");
        assert_eq!(told, "kept\n[stderr]\nerr\n[exit code 3]\n");
        assert_eq!(place.running().len(), 1);
        let error = place.python("def f():\n    return 1 / 0\nf()");
        assert!(
            error.contains("File \"/code/main.py\", line 2, in f") && error.contains("ZeroDivisionError"),
            "{error}"
        );
        let long = place.python("print('é' * 20_000)\nimport sys\nsys.exit(4)");
        // Its end is kept as well as its start, and the last of the 10,000 characters is the newline.
        assert_eq!(long.chars().filter(|c| *c == 'é').count(), 9_999);
        assert!(
            long.ends_with("[exit code 4]\n[output truncated at 10000 characters]\n"),
            "{long}"
        );
        let result = place.result(&[], &json!({"language": "python", "code": "print(1)"}));
        let meta = &result["meta"];
        assert_eq!(
            (
                &result["stdout"],
                &meta["runtime"],
                &meta["warm"],
                &meta["outcome"]
            ),
            (
                &"1\n".into(),
                &place.engine.name.into(),
                &true.into(),
                &"exited".into()
            )
        );
        for layer in ["pid_ns", "mount_ns", "net_ns", "ipc_ns", "uts_ns", "no_new_privs"] {
            assert_eq!(meta["isolation"][layer], true, "{layer}: {result}");
        }
        assert_eq!(meta["resource_limits"]["memory_bytes"], 256 << 20, "{result}");
        let refused = place.exec(&[], &json!({"language": "perl", "code": "1"}));
        assert_eq!(refused.status, 2, "{refused:?}");
        place.close();
    }
}

#[test]
fn a_call_ends_at_its_time_and_takes_no_other_along() {
    for place in places("timeout = '20s'") {
        let other = place.begin("other");
        let late =
            json!({"language": "python", "code": "print('a', flush=True)\nwhile True: pass", "timeout": 1});
        let late = place.result(&[], &late);
        assert_eq!(
            (&late["exit_code"], &late["meta"]["timed_out"], &late["stdout"]),
            (&(-1).into(), &true.into(), &"a\n".into())
        );
        assert!(late["stderr"].as_str().unwrap().contains("timed out"), "{late}");
        let told = place.exec(
            &[],
            &json!({"language": "bash", "code": "sleep 600 & sleep 600", "timeout": "300ms"}),
        );
        assert!(told.ok().ends_with("[timed out]\n"), "{told:?}");
        // An argument may lower a limit, not raise it.
        let more = place.result(&[], &json!({"language": "bash", "code": "true", "timeout": 500}));
        assert!(
            more["meta"]["warnings"][0].as_str().unwrap().contains("20s"),
            "{more}"
        );
        // A cancelled call is killed alone.
        let taken_back = place.begin("taken-back");
        place.world.signal(&taken_back, "INT");
        let told = printed(taken_back);
        assert!(told.contains("execution cancelled"), "{told}");
        assert_eq!(place.running().len(), 1);
        place.release("other", other);
        let left = place.bash("cat /proc/[0-9]*/comm");
        assert!(!left.contains("sleep"), "{left}");
        place.close();
    }
}

#[test]
fn without_keep_alive_each_call_has_a_container_of_its_own() {
    for place in places("keepAlive = false") {
        assert_eq!(
            place.bash("echo 1 > /tmp/x; cat /tmp/x; echo 2 > /output/x"),
            "1\n"
        );
        assert_eq!(place.bash("cat /tmp/x 2> /dev/null; cat /output/x"), "2\n");
        // A pooled container waits for the next matching call, and serves only that.
        let not_yet = || {
            let result = place.result(
                &[],
                &json!({"language": "python", "code": "print(1); open('/tmp/x', 'x')"}),
            );
            assert_eq!(result["stdout"], "1\n", "{result}");
            (result["meta"]["warm"] != true)
                .then_some(result)
                .into_iter()
                .collect()
        };
        none_within(
            Duration::from_secs(60),
            "calls that no container waited for",
            not_yet,
        );
        let looked = place.exec(
            &["--session", "talk"],
            &json!({"language": "bash", "code": "ls /output"}),
        );
        assert_eq!(looked.ok(), "\n");
        place.close();
    }
}

#[test]
fn after_its_calls_a_container_is_replaced_and_no_running_call_is_cut() {
    for place in places("keepAliveMaxExecutions = 3") {
        let long = place.begin("long");
        let old = place.running();
        assert_eq!(place.bash("touch /tmp/old; echo 2"), "2\n");
        assert_eq!(place.bash("ls /tmp/old; touch /tmp/third"), "/tmp/old\n");
        assert_eq!(place.running(), old);
        assert_eq!(place.bash("ls /tmp"), "\n");
        assert_eq!(place.running().len(), 2);
        place.release("long", long);
        eventually("the old container goes", || place.running().len() == 1);
        assert_ne!(place.running(), old);
        place.close();
    }
}

#[test]
fn an_idle_container_goes_by_itself() {
    for place in places("keepAliveIdleTimeoutMin = '1s'") {
        let busy = place.begin("busy");
        assert_eq!(place.bash("echo 1"), "1\n");
        place.release("busy", busy);
        eventually_none("the idle container", || place.running());
        assert_eq!(place.bash("echo 2"), "2\n");
        place.close();
    }
}

#[test]
fn many_calls_at_once_share_one_container() {
    for place in places("") {
        let children: Vec<Child> = (0..16)
            .map(|number| {
                let code = format!("import os\nopen('/tmp/{number}', 'w').close()\nprint({number} * 2)");
                place.start(&[], &json!({"language": "python", "code": code}))
            })
            .collect();
        for (number, child) in children.into_iter().enumerate() {
            assert_eq!(printed(child), format!("{}\n", number * 2));
        }
        assert_eq!(place.running().len(), 1);
        assert_eq!(place.bash("ls /tmp | wc -l"), "16\n");
        place.close();
    }
}

#[test]
fn scopes_and_conversations_share_nothing() {
    for place in places("") {
        let sleeper = place.begin("sleeper");
        let look = json!({"language": "bash", "code": "ls /tmp /output; grep -q '[s]leeper.up' /proc/[0-9]*/cmdline 2> /dev/null && echo seen || echo unseen; touch /tmp/mine /output/mine"});
        let own = place.exec(&[], &look);
        assert_eq!(own.ok(), "/output:\nsleeper.up\n\n/tmp:\nseen\n");
        let [bob, talk] = [["--user", "bob"], ["--session", "talk"]];
        for options in [&bob, &talk] {
            let other = place.exec(options, &look);
            assert_eq!(other.ok(), "/output:\n\n/tmp:\nunseen\n", "{options:?}");
        }
        assert_eq!(place.running().len(), 3);
        let listed = finish(
            &mut place.world.command(&[], ["sandbox", "ls", "--user", "bob"]),
            b"",
        );
        // Below the titles of the columns.
        assert_eq!(listed.ok().lines().count(), 2, "{listed:?}");
        place.release("sleeper", sleeper);
        place.close();
    }
}

#[test]
fn an_engine_that_is_killed_leaves_nothing_after_the_next_start() {
    for place in places("") {
        assert_eq!(place.bash("echo 1"), "1\n");
        let pid = place.world.engine_pid().unwrap();
        place.world.stop_engine("KILL");
        place.world.start_engine();
        eventually_none("what the killed engine left", || place.engine.left_by(pid));
        assert_eq!(place.bash("echo 2"), "2\n");
        place.close();
    }
}

#[test]
fn without_an_engine_of_ours_a_container_lives_as_long_as_the_process() {
    for place in places("") {
        let output = place.exec(
            &["--no-engine"],
            &json!({"language": "python", "code": "print(1)"}),
        );
        assert_eq!(output.ok(), "1\n");
        assert_eq!(place.engine.left_by(output.pid), Vec::<String>::new());
        assert_eq!(place.running(), Vec::<String>::new());
        place.close();
    }
}

#[test]
fn a_container_that_dies_ends_its_calls_as_unknown_and_the_next_gets_another() {
    for place in places("") {
        let running = place.start(
            &["--json"],
            &json!({"language": "bash", "code": "touch /output/up; sleep 600"}),
        );
        eventually("the call runs", || place.holder("/output/up").is_some());
        place.end("kill");
        let result: Value = serde_json::from_str(&printed(running)).unwrap();
        assert_eq!(
            (&result["meta"]["outcome"], &result["exit_code"]),
            (&"unknown".into(), &125.into()),
            "{result}"
        );
        let told =
            "[warning: the container that was kept for these calls had ended, and this one ran in a new one";
        for _ in ["it died under a call", "while it was idle"] {
            let again = place.bash("echo again");
            assert!(again.starts_with(&format!("again\n{told}")), "{again}");
            assert_eq!(place.bash("echo further"), "further\n");
            assert_eq!(place.running().len(), 1);
            place.end("kill");
        }
        place.close();
    }
}

#[test]
fn a_kept_container_is_measured_and_removed_by_hand_and_nothing_else() {
    for place in places("") {
        let sandbox = |args: &[&str]| {
            let all = ["sandbox"].iter().chain(args);
            finish(&mut place.world.command(&[], all), b"")
        };
        let running = place.start(
            &["--json"],
            &json!({"language": "bash", "code": "touch /output/up; sleep 600"}),
        );
        eventually("the call runs", || place.holder("/output/up").is_some());
        let listed: Value = serde_json::from_str(sandbox(&["ls", "--json"]).ok()).unwrap();
        let name = listed[0]["name"].as_str().unwrap();
        let used: Value = serde_json::from_str(sandbox(&["stats", "--json", "--once", name]).ok()).unwrap();
        assert!(used["memory_bytes"].as_u64() > Some(0), "{used}");
        for args in [
            &["pause", name][..],
            &["resume", name],
            &["logs", name],
            &["run", name, "--", "true"],
        ] {
            sandbox(args).refused(125, "is reserved for `sandbox_exec`");
        }
        sandbox(&["rm", "--user", "bob", name]).refused(125, "there is no sandbox");
        sandbox(&["rm", name]).ok();
        let result: Value = serde_json::from_str(&printed(running)).unwrap();
        assert_eq!(result["meta"]["outcome"], "unknown", "{result}");
        sandbox(&["rm", name]).refused(125, "there is no sandbox");
        assert_eq!(place.running(), Vec::<String>::new());
        let again = place.bash("echo again");
        assert!(
            again.starts_with("again\n[warning: the container that was kept"),
            "{again}"
        );
        place.close();
    }
}

#[test]
fn memory_is_limited_for_the_container() {
    let hungry = json!({"language": "python", "code": "print(len(bytearray(300 << 20)))"});
    for place in places("maxMemory = '96MiB'") {
        let eaten = place.result(&[], &hungry);
        assert_eq!(
            (&eaten["meta"]["outcome"], &eaten["exit_code"]),
            (&"memory_exceeded".into(), &(-9).into()),
            "{eaten}"
        );
        assert_eq!(place.bash("echo still here"), "still here\n");
        place.close();
    }
    for place in places("maxMemory = '512MiB'") {
        let plenty = place.exec(&[], &hungry);
        assert_eq!(plenty.ok(), "314572800\n");
        place.close();
    }
}

#[test]
fn a_connection_keeps_its_container_and_takes_it_along() {
    let ways = [&[][..], &["--keep-workspace"]];
    for (engine, options) in engines().into_iter().zip(ways) {
        let world = World::here();
        configure(&world, engine.name, "");
        let mut client = Client::greeted(&world, options);
        let pid = client.pid();
        client.call("file_write", &json!({"path": "in", "content": "hello\n"}));
        let copy =
            json!({"language": "bash", "code": "cat in; cp in out; cp in /output/left; touch /tmp/kept"});
        assert_eq!(text(&client.call("sandbox_exec", &copy)), "hello\n");
        let again = client.call("sandbox_exec", &json!({"language": "bash", "code": "ls /tmp"}));
        assert_eq!(text(&again), "kept\n");
        assert_eq!(again["structuredContent"]["meta"]["warm"], true, "{again}");
        for path in ["out", "/output/left"] {
            let read = client.call("file_read", &json!({"path": path}));
            assert_eq!(read["structuredContent"]["text"], "hello\n", "{path}: {read}");
        }
        assert_eq!(engine.running(pid).len(), 1);
        let left = client.leave();
        // A kept workspace is reported.
        if options.is_empty() {
            left.well();
        }
        assert_eq!(engine.left_by(pid), Vec::<String>::new());
    }
}

#[test]
fn a_missing_engine_is_told_or_done_without_as_configured() {
    let world = World::here();
    let run = |world: &World| {
        let socket = format!("unix://{}", world.dir.path("none.sock").display());
        let env = [("DOCKER_HOST".into(), socket.into())];
        let arguments = json!({"language": "python", "code": "print(6 * 7)"}).to_string();
        let args = ["tool", "--no-engine", "sandbox_exec", &arguments];
        finish(&mut world.command(&env, args), b"")
    };
    let missing = run(&world);
    missing.refused(125, "Docker daemon not available");
    assert!(
        missing
            .stderr
            .contains("Set SANDBOX_TYPE=local or start Docker daemon"),
        "{missing:?}"
    );
    configure(&world, "docker", "fallback = 'local'");
    let instead = run(&world);
    let text = instead.ok();
    assert!(
        text.starts_with("42\n[warning: there was no container (Docker daemon not available"),
        "{text}"
    );
    // A project's file may not set it.
    configure(&world, "docker", "");
    world
        .dir
        .write("work/ringfence.toml", "[codeExecution]\nfallback = 'local'\n");
    let passed_over = run(&world);
    assert_eq!(passed_over.status, 125, "{passed_over:?}");
    assert!(
        passed_over.stderr.contains("codeExecution.fallback"),
        "{passed_over:?}"
    );
}

#[test]
fn commands_of_shell_fall_back_as_configured() {
    let dir = Dir::new();
    let run = |fallback: &str| {
        let text = format!("[permissions.shell]\nrunner = 'container'\ncontainer_fallback = '{fallback}'\n");
        dir.write("config/ringfence/ringfence.toml", text);
        let mut command = dir.command([
            "tool",
            "--json",
            "--no-engine",
            "shell",
            r#"{"command": "echo", "args": ["hi"]}"#,
        ]);
        finish(
            command.env(
                "DOCKER_HOST",
                format!("unix://{}", dir.path("none.sock").display()),
            ),
            b"",
        )
    };
    let required = run("none");
    assert_eq!(required.status, 125, "{required:?}");
    assert!(
        required.stderr.contains("Docker daemon not available"),
        "{required:?}"
    );
    for fallback in ["fenced", "host"] {
        let answer: Value = serde_json::from_str(run(fallback).ok()).unwrap();
        assert_eq!(
            (&answer["runner"], &answer["stdout"]),
            (&fallback.into(), &"hi\n".into()),
            "{answer}"
        );
        let warning = answer["warnings"][0].as_str().unwrap();
        assert!(warning.contains("there was no container"), "{warning}");
    }
}
