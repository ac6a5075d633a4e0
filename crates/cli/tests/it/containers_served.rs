//! Runs in containers of a server.

use std::fs;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::containers::{Engine, engines};
use crate::support::{Output, entries, eventually, eventually_none, finish};
use crate::world::World;

/// A server under test, and a container engine.
struct Place {
    world: World,
    engine: Engine,
}

fn places() -> Vec<Place> {
    places_with("")
}

/// Returns a place for each container engine, with these lines in the server's configuration.
fn places_with(lines: &str) -> Vec<Place> {
    let place = |engine| {
        let world = World::before_engine();
        world.dir.write("config/ringfence/ringfence.toml", lines);
        world.start_engine();
        Place { world, engine }
    };
    engines().into_iter().map(place).collect()
}

impl Place {
    fn run(&self, args: &[&str]) -> Output {
        let first = ["run", "--runtime", self.engine.name];
        let all = first.iter().chain(args);
        finish(&mut self.world.command(&[], all), b"")
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let all = ["--json"].iter().chain(args).copied().collect::<Vec<_>>();
        let output = self.run(&all);
        let parsed = serde_json::from_str(&output.stdout);
        parsed.map_err(|error| format!("{error}: {output:?}")).unwrap()
    }

    /// Repeats the request until a pooled container serves it.
    #[track_caller]
    fn pooled(&self, args: &[&str]) -> Value {
        let mut attempts = (0..20).map(|_| {
            let result = self.json(args);
            let waited = result["meta"]["warm"] == true;
            if !waited {
                eventually("a container waits", || !self.running().is_empty());
            }
            waited.then_some(result)
        });
        attempts.find_map(|result| result).unwrap()
    }

    fn start(&self, args: &[&str]) -> Child {
        let first = ["run", "--runtime", self.engine.name];
        let all = first.iter().chain(args);
        let mut command = self.world.command(&[], all);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Returns the running containers of the server.
    fn running(&self) -> Vec<String> {
        self.engine.running(self.world.engine_pid().unwrap())
    }
}

const SLEEP: &[&str] = &["-c", "import time; time.sleep(600)", "--timeout", "600s"];

#[test]
fn the_engine_makes_the_container_and_ends_it_with_its_caller() {
    for place in places_with("[engine]\ncontainer_pool_size = 0\n") {
        let mut child = place.start(SLEEP);
        eventually("the container runs", || place.running().len() == 1);
        place.world.signal(&child, "TERM");
        assert_eq!(child.wait().unwrap().code(), Some(130));
        eventually_none("the container", || place.running());
        let mut child = place.start(SLEEP);
        eventually("the container runs", || place.running().len() == 1);
        let pid = place.world.engine_pid().unwrap();
        place.world.stop_engine("TERM");
        assert_eq!(place.engine.left_by(pid), Vec::<String>::new());
        assert_ne!(child.wait().unwrap().code(), Some(0));
        assert_eq!(entries(&place.world.dir.path("tmp")), Vec::<String>::new());
    }
}

#[test]
fn an_engine_that_is_set_up_otherwise_is_left_alone() {
    for place in places() {
        let all = ["run", "--runtime", place.engine.name, "-c", "print(1)"];
        let mut command = place.world.command(&[], all);
        let output = finish(command.env("DOCKER_IMAGE", "no-such-image:1"), b"");
        output.refused(125, "there is no image no-such-image:1");
        assert_eq!(place.run(&["-c", "print(1)"]).ok(), "1\n");
    }
}

/// Returns the part of a result that does not depend on the container.
fn same(result: &Value) -> Value {
    let meta = [
        "outcome",
        "timed_out",
        "truncated",
        "stdout_bytes",
        "stderr_bytes",
        "isolation",
        "resource_limits",
        "runtime",
        "language",
        "output_files",
    ];
    let meta = meta.map(|key| (key.to_owned(), result["meta"][key].clone()));
    // Each process warns once of an unpinned image.
    let warnings = result["meta"]["warnings"].as_array();
    let warnings = warnings
        .into_iter()
        .flatten()
        .filter(|warning| !warning.to_string().contains("is not pinned"));
    json!([
        warnings.collect::<Vec<_>>(),
        result["stdout"],
        result["stderr"],
        result["exit_code"],
        Value::Object(meta.into_iter().collect())
    ])
}

const PROGRAMS: &[&[&str]] = &[
    &[
        "-c",
        "import os, sys; print(os.getcwd(), os.getuid(), sys.stdin.read()); print(2, file=sys.stderr); sys.exit(3)",
    ],
    &["-c", "import os; os.kill(os.getpid(), 11)"],
    &[
        "-c",
        "import os; print(open('/output/x', 'w').write('1'), os.listdir('/workspace'))",
    ],
    &["--timeout", "1s", "-c", "print(1, flush=True)\nwhile True: pass"],
    &["--max-output", "1KiB", "-c", "print('x' * 5_000_000)"],
    &[
        "-c",
        "try: open('/output/x', 'wb').write(bytes(80 << 20))\nexcept OSError as error: print(error.errno)\nopen('/output/y', 'wb').truncate(80 << 20)",
    ],
    &[
        "-l",
        "bash",
        "-c",
        "echo $1 $TMPDIR $USER $K; ulimit -n -u -c; umask; exit 4",
        "--env",
        "K=v",
        "--",
        "word",
    ],
];

#[test]
fn a_container_that_waited_gives_the_same_result() {
    for place in places() {
        for args in PROGRAMS {
            let mut alone = vec!["--no-engine"];
            alone.extend(*args);
            let alone = place.json(&alone);
            assert_eq!(alone["meta"]["warm"], false, "{alone}");
            assert_eq!(same(&place.pooled(args)), same(&alone), "{args:?}");
        }
        let memory = ["--memory", "96MiB", "-c", "x = bytearray(300 << 20)"];
        let eaten = place.pooled(&memory);
        assert_eq!(
            (&eaten["meta"]["outcome"], &eaten["exit_code"]),
            (&json!("memory_exceeded"), &json!(-9))
        );
        let python = place.pooled(&["-c", "print(6 * 7)"]);
        assert_eq!(
            (&python["meta"]["warm"], &python["stdout"]),
            (&json!(true), &json!("42\n"))
        );
        assert!(
            python["meta"]["peak_memory_bytes"].as_u64() > Some(1 << 20),
            "{python}"
        );
    }
}

#[test]
fn each_container_serves_one_request_of_one_user() {
    for place in places() {
        let leave = [
            "-l",
            "bash",
            "-c",
            "cat /tmp/x /workspace/x; echo mine > /tmp/x; echo mine > /workspace/x; echo end",
        ];
        let first = place.pooled(&leave);
        let second = place.pooled(&leave);
        assert_eq!(
            (&first["stdout"], &second["stdout"]),
            (&json!("end\n"), &json!("end\n"))
        );
        // A pooled container of one user serves no other. The pool holds more than two if requests arrived
        // too fast.
        let other = ["--user", "bob", "-l", "bash", "-c", "true"];
        eventually("two containers wait", || place.running().len() >= 2);
        assert_eq!(place.json(&other)["meta"]["warm"], false);
        let limited = ["--pids", "50", "-l", "bash", "-c", "true"];
        assert_eq!(place.json(&limited)["meta"]["warm"], false);
    }
}

#[test]
fn a_container_that_waited_sees_what_the_next_one_would_see() {
    for place in places() {
        let workspace = place.engine.workspace("shared");
        let look = "cat file; echo x > .git/hook || echo kept";
        let args = ["--workspace", &workspace, "-l", "bash", "-c", look];
        let file = place.engine.dir.path("shared/file");
        fs::write(&file, "one\n").unwrap();
        assert_eq!(place.pooled(&args)["stdout"], "one\nkept\n");
        fs::write(&file, "two\n").unwrap();
        assert_eq!(place.pooled(&args)["stdout"], "two\nkept\n");
        // The pooled container was started before there was anything to protect.
        let hooks = place.engine.dir.path("shared/.git");
        fs::create_dir(&hooks).unwrap();
        std::os::unix::fs::chown(&hooks, Some(65_534), None).unwrap();
        assert_eq!(place.json(&args)["stdout"], "two\nkept\n");
        assert_eq!(place.pooled(&args)["stdout"], "two\nkept\n");
        assert_eq!(entries(&hooks), Vec::<String>::new());
        // Another directory now has that name.
        fs::rename(&workspace, place.engine.dir.path("old")).unwrap();
        place.engine.workspace("shared");
        fs::write(&file, "new\n").unwrap();
        assert_eq!(place.json(&args)["stdout"], "new\nkept\n");
    }
}

#[test]
fn what_waits_goes_with_the_engine_and_what_died_is_not_used() {
    for place in places() {
        let args = ["-c", "print(1)"];
        place.pooled(&args);
        eventually("two containers wait", || place.running().len() >= 2);
        let names = place.running();
        let names: Vec<&str> = names.iter().filter_map(|line| line.split(' ').next()).collect();
        let mut removing = place.engine.dir.program(place.engine.name);
        finish(removing.args(["rm", "--force"]).args(&names), b"").ok();
        assert_eq!(place.json(&args)["stdout"], "1\n");
        place.pooled(&args);
        let pid = place.world.engine_pid().unwrap();
        place.world.stop_engine("TERM");
        assert_eq!(place.engine.left_by(pid), Vec::<String>::new());
        assert_eq!(entries(&place.world.dir.path("tmp")), Vec::<String>::new());
        place.world.start_engine();
        place.pooled(&args);
        let pid = place.world.engine_pid().unwrap();
        eventually("a container waits", || !place.running().is_empty());
        place.world.stop_engine("KILL");
        place.world.start_engine();
        eventually_none("what the killed one left", || place.engine.left_by(pid));
    }
}
