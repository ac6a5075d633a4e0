//! Sandboxes that a person creates in a server.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::containers::{Engine, engines};
use crate::network::{OPEN, Server};
use crate::support::{Dir, Output, eventually_none, finish, none_within};
use crate::world::World;

/// A server under test, and a container engine.
struct Place {
    world: World,
    engine: Engine,
}

/// A client that follows a log.
struct Following {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Following {
    /// Returns the next line; empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn places() -> Vec<Place> {
    let place = |engine| {
        let world = World::before_engine();
        world.start_engine();
        Place { world, engine }
    };
    engines().into_iter().map(place).collect()
}

impl Place {
    fn sandbox(&self, args: &[&str]) -> Output {
        let all = ["sandbox"].iter().chain(args);
        finish(&mut self.world.command(&[], all), b"")
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.insert(1, "--json");
        let output = self.sandbox(&all);
        serde_json::from_str(output.ok()).unwrap()
    }

    /// Creates a sandbox; returns its name.
    #[track_caller]
    fn create(&self, options: &[&str]) -> String {
        let made = self.json(&[&self.of_template(options)[..], options].concat());
        made[0]["name"].as_str().unwrap().to_owned()
    }

    /// Returns the words that create a container of a template, the one that `options` name or else the default one.
    fn of_template(&self, options: &[&str]) -> Vec<&str> {
        let mut words = vec!["create", "--engine", self.engine.name];
        if !options.contains(&"--template") {
            words.extend(["--template", "code-executor"]);
        }
        words
    }

    fn state(&self, name: &str) -> String {
        let all = self.json(&["ls"]);
        let found = all
            .as_array()
            .unwrap()
            .iter()
            .find(|sandbox| sandbox["name"] == name);
        found.map_or_else(String::new, |sandbox| {
            sandbox["state"].as_str().unwrap().to_owned()
        })
    }

    /// Follows the output of a sandbox's commands.
    fn follow(&self, name: &str) -> Following {
        let mut command = self.world.command(&[], ["sandbox", "logs", "--follow", name]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Following { child, output }
    }

    /// Waits until a sandbox has ended, and asserts that nothing is left of it.
    #[track_caller]
    fn gone(&self, name: &str) {
        let state = || Some(self.state(name)).filter(|state| !state.starts_with("destroyed"));
        none_within(Duration::from_secs(60), name, || state().into_iter().collect());
        assert_eq!(self.there(name), Vec::<String>::new());
    }

    /// Returns the names of the containers of this sandbox in the container engine.
    fn there(&self, name: &str) -> Vec<String> {
        let filter = format!("name={name}");
        let listed = finish(
            self.engine
                .dir
                .program(self.engine.name)
                .args(["ps", "-aq", "--filter", &filter]),
            b"",
        );
        let volumes = finish(
            self.engine
                .dir
                .program(self.engine.name)
                .args(["volume", "ls", "-q", "--filter", &filter]),
            b"",
        );
        listed
            .ok()
            .lines()
            .chain(volumes.ok().lines())
            .map(str::to_owned)
            .collect()
    }
}

#[test]
fn a_sandbox_is_made_used_watched_and_removed() {
    for place in places() {
        let name = place.create(&["--name", &format!("test-{}", std::process::id())]);
        assert_eq!(name, format!("fw-sandbox-test-{}", std::process::id()));
        let wrote = place.sandbox(&[
            "run",
            &name,
            "--",
            "bash",
            "-c",
            "echo kept > /output/x; echo $0 >&2; exit 3",
        ]);
        assert_eq!(
            (wrote.status, wrote.stdout.as_str(), wrote.stderr.as_str()),
            (3, "", "bash\n")
        );
        let read = place.sandbox(&["run", &name, "--", "cat", "/output/x"]);
        assert_eq!(read.ok(), "kept\n");
        let used: Value =
            serde_json::from_str(place.sandbox(&["stats", "--json", "--once", &name]).ok()).unwrap();
        assert!(used["memory_bytes"].as_u64() > Some(0), "{used}");
        let logs = place.sandbox(&["logs", &name]);
        assert_eq!((logs.ok(), logs.stderr.as_str()), ("kept\n", "bash\n"));
        let mut following = place.follow(&name);
        place.sandbox(&["pause", &name]).ok();
        assert_eq!(place.state(&name), "paused");
        place.sandbox(&["pause", &name]).refused(125, "cannot be paused");
        let short = name.strip_prefix("fw-sandbox-").unwrap();
        let paused = place.sandbox(&["run", short, "--", "true"]);
        paused.refused(125, &format!("the sandbox `{short}` is paused"));
        let hint = format!("hint: resume it with `ringfence sandbox resume {short}`\n");
        assert!(paused.stderr.ends_with(&hint), "{paused:?}");
        place.sandbox(&["resume", &name]).ok();
        assert_eq!(place.state(&name), "running");
        assert_eq!(place.there(&name).len(), 2);
        place.sandbox(&["run", &name, "--", "echo", "further"]).ok();
        assert_eq!(following.line(), "kept\n");
        assert_eq!(following.line(), "further\n");
        for program in ["nosuch", "/no/such"] {
            let missing = place.sandbox(&["run", &name, "--", program]);
            let expected = format!("there is no program `{program}` in the sandbox\n");
            assert_eq!(
                (missing.status, missing.stdout.as_str(), missing.stderr.as_str()),
                (127, "", expected.as_str())
            );
        }
        place.sandbox(&["rm", &name]).ok();
        assert_eq!(following.line(), "");
        assert_eq!(place.there(&name), Vec::<String>::new());
        place.sandbox(&["rm", &name]).refused(125, "there is no sandbox");
    }
}

#[test]
fn a_sandbox_has_no_more_of_the_hosts_disk_than_its_size() {
    for place in places() {
        let name = place.create(&[]);
        let bash = |script: &str| place.sandbox(&["run", &name, "--", "bash", "-c", script]);
        let full = bash("head -c 300M /dev/zero > /output/big; stat -c %s /output/big");
        assert_eq!(full.stdout, format!("{}\n", 64 << 20), "{full:?}");
        assert!(full.stderr.contains("No space left on device"), "{full:?}");
        let freed = bash("rm /output/big; echo x > /output/x; cat /output/x");
        assert_eq!(freed.ok(), "x\n", "{freed:?}");
        place.sandbox(&["rm", &name]).ok();
        assert_eq!(place.there(&name), Vec::<String>::new());
    }
}

#[test]
fn a_sandbox_ends_when_its_time_is_up() {
    for place in places() {
        let name = place.create(&["--max-duration", "2s"]);
        place.gone(&name);
        assert_eq!(place.state(&name), "destroyed (its time was up)");
        let spent = place.create(&[]);
        let output = place.sandbox(&["run", &spent, "--timeout", "300ms", "--", "sleep", "600"]);
        assert_eq!(output.status, 124, "{output:?}");
        place.gone(&spent);
    }
}

#[test]
fn every_template_starts() {
    for place in places() {
        for template in [
            "ai-provider",
            "code-executor",
            "policy-sandbox",
            "integration-test",
        ] {
            let name = place.create(&["--template", template]);
            assert!(name.starts_with("fw-sandbox-"), "{template}");
        }
    }
}

#[test]
fn one_user_sees_nothing_of_anothers_sandboxes() {
    for place in places() {
        let name = place.create(&["--user", "ann"]);
        for args in [
            &["rm", "--user", "bob", &name][..],
            &["pause", &name],
            &["run", "--user", "bob", &name, "--", "true"],
        ] {
            place.sandbox(args).refused(125, "there is no sandbox");
        }
        assert_eq!(place.json(&["ls", "--user", "bob"]), Value::Array(Vec::new()));
        assert_eq!(place.json(&["ls"]), Value::Array(Vec::new()));
        let all = place.json(&["ls", "--all"]);
        assert_eq!(all[0]["name"], name.as_str());
        assert_eq!(all[0]["user"], "ann");
        let lines = place.sandbox(&["ls", "--all"]);
        assert!(
            lines.ok().contains(&name) && lines.stdout.ends_with("  ann\n"),
            "{lines:?}"
        );
        place.sandbox(&["rm", "--user", "ann", &name]).ok();
    }
}

#[test]
fn an_engine_that_ends_takes_its_sandboxes_along() {
    for place in places() {
        let name = place.create(&[]);
        place.world.stop_engine("TERM");
        assert_eq!(place.there(&name), Vec::<String>::new());
    }
}

#[test]
fn what_a_killed_engine_left_is_removed_when_the_next_one_starts() {
    for place in places() {
        let name = place.create(&[]);
        // From here on the first server to see it removes it: it may be that of another test.
        place.world.stop_engine("KILL");
        place.world.start_engine();
        eventually_none("the orphan", || place.there(&name));
    }
}

/// Two servers with one container engine: the sandboxes of each live until their end, or until their server
/// dies.
#[test]
fn an_engine_leaves_what_another_one_has_and_removes_what_a_dead_one_left() {
    for place in places() {
        let world = World::before_engine();
        world.start_engine();
        let engine = Engine {
            name: place.engine.name,
            dir: Dir::new(),
        };
        let other = Place { world, engine };
        // Each looks for orphans at its first use of the container engine.
        let (first, second) = (place.create(&[]), other.create(&[]));
        place.world.stop_engine("TERM");
        assert_eq!(place.there(&first), Vec::<String>::new());
        place.world.start_engine();
        let third = place.create(&[]);
        let says = ["run", &second, "--", "echo", "lives"];
        assert_eq!(other.sandbox(&says).ok(), "lives\n");

        other.world.stop_engine("KILL");
        place.world.stop_engine("TERM");
        place.world.start_engine();
        let fourth = place.create(&[]);
        eventually_none("what the dead one left", || place.there(&second));
        assert_eq!(place.there(&third), Vec::<String>::new());
        assert_eq!(place.there(&fourth).len(), 2);
        place.world.stop_engine("TERM");
    }
}

#[test]
fn what_cannot_be_made_is_told() {
    for place in places() {
        let create = |options: &[&str]| place.sandbox(&[&place.of_template(options)[..], options].concat());
        let unknown = create(&["--template", "none"]);
        unknown.refused(2, "there is no template `none`");
        assert!(
            unknown
                .stderr
                .contains("ai-provider, code-executor, integration-test, policy-sandbox")
        );
        create(&["--image", "no-such-image:1"]).refused(125, "there is no image no-such-image:1");
        create(&["--name", "No_Such"]).refused(2, "cannot name a container");
        create(&["--image=--privileged"]).refused(125, "is not an image name");
    }
    let world = World::here();
    finish(&mut world.command(&[], ["sandbox", "ls"]), b"").refused(125, "sandboxes live in a server");
}

#[test]
fn commands_of_a_restricted_sandbox_reach_its_hosts_alone() {
    for place in places() {
        let server = Server::new();
        let config = format!(
            "{OPEN}[templates.near]\nnetwork_mode = 'restricted'\nallowed_hosts = ['127.0.0.1:{}']\n",
            server.port
        );
        place.world.dir.write("config/ringfence/ringfence.toml", config);
        let name = place.create(&["--template", "near"]);
        let run = |command: &[&str]| -> Value {
            let output = place.sandbox(&[&["run", "--json", &name, "--"], command].concat());
            serde_json::from_str(&output.stdout).unwrap()
        };
        let ran = run(&["curl", "--silent", &server.url()]);
        assert_eq!(
            (&ran["status"], &ran["stdout"]),
            (&0.into(), &"hello".into()),
            "{ran}"
        );
        let target = format!("127.0.0.1:{}", server.port);
        let attempt = json!({"target": target, "verdict": "connected"});
        assert_eq!(ran["egress"]["attempts"], json!([attempt]));
        let status = "curl --silent --output /dev/null --write-out '%{http_code}' http://evil.test/ || echo; echo $HOME";
        let ran = run(&["bash", "-c", status]);
        assert_eq!(ran["stdout"], "403/workspace\n", "{ran}");
        assert_eq!(ran["egress"]["attempts"][0]["verdict"], "refused");
        let around = format!("exec 3<>/dev/tcp/127.0.0.1/{} || exit 9", server.port);
        assert_eq!(run(&["bash", "-c", &around])["status"], 9);
        assert_eq!(server.visits(), 1);
        assert_eq!(place.sandbox(&["logs", &name]).ok(), "hello403/workspace\n");
        // A command that exceeds its timeout ends alone.
        let late = place.sandbox(&["run", "--timeout", "1s", &name, "--", "sleep", "1000"]);
        assert_eq!(
            (late.status, late.stderr.contains("and was ended")),
            (124, true),
            "{late:?}"
        );
        let mut left = run(&["bash", "-c", "cat /proc/[0-9]*/comm; kill -9 $$"]);
        assert_eq!(left["status"], 137);
        assert!(!left["stdout"].take().as_str().unwrap().contains("sleep"));
        assert_eq!(place.state(&name), "running");
        place.sandbox(&["rm", &name]).ok();
        assert_eq!(place.there(&name), Vec::<String>::new());
        for (template, words) in [
            (
                "[templates.wrong]\nallowed_hosts = ['http://a.test/']\n",
                "`templates.wrong.allowed_hosts`: `http://a.test/` is a URL",
            ),
            (
                "[templates.ai-provider]\nallowed_hosts = ['a.test']\n",
                "`templates.ai-provider.allowed_hosts`: the seccomp filter `strict` allows no network",
            ),
        ] {
            let config = format!("{OPEN}{template}");
            place.world.dir.write("config/ringfence/ringfence.toml", config);
            place.sandbox(&place.of_template(&[])).refused(2, words);
            place.world.dir.run(["config", "check"]).refused(2, words);
        }
    }
}
