//! Runs in containers of Docker and Podman, each removed with its run.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::process::{Child, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::support::{Dir, Output, entries, eventually, eventually_none, finish};
use crate::world::{Mode, Place, World, skip};

pub(crate) const IMAGE: &str = "ringfence-sandbox:latest";
/// The uid of programs in root's containers.
const NOBODY: u32 = 65_534;

/// A container engine, and a directory to use it from.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    pub(crate) dir: Dir,
}

/// Returns the available engines, each with its own directory. In CI both are required.
pub(crate) fn engines() -> Vec<Engine> {
    let usable = |name: &'static str| {
        let dir = Dir::new();
        let inspected = finish(dir.program(name).args(["image", "inspect", IMAGE]), b"");
        if inspected.status != 0 {
            return skip(&format!(
                "no image {IMAGE} in {name} (`cargo xtask setup` makes it)"
            ));
        }
        Some(Engine { name, dir })
    };
    ["docker", "podman"].into_iter().filter_map(usable).collect()
}

impl Engine {
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let first = ["run", "--runtime", self.name];
        let all = first.iter().chain(args);
        self.dir.run(all)
    }

    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(args);
        let output = self.run(&all);
        let parsed = serde_json::from_str(&output.stdout);
        parsed.map_err(|error| format!("{error}: {output:?}")).unwrap()
    }

    fn python(&self, code: &str) -> Output {
        self.run(&["-c", code])
    }

    fn start(&self, args: &[&str]) -> Child {
        let first = ["run", "--runtime", self.name];
        let all = first.iter().chain(args);
        let mut command = self.dir.command(all);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Returns the remaining containers and volumes of this process.
    pub(crate) fn left_by(&self, pid: u32) -> Vec<String> {
        let format = "{{.Name}} {{.Labels}}";
        let listed = ["volume", "ls", "--format", format];
        let listed = finish(self.dir.program(self.name).args(listed), b"");
        let owned = format!(".{pid}.");
        let volumes = listed.ok().lines().filter(|line| line.contains(&owned));
        let volumes = volumes.map(str::to_owned).collect();
        [self.listed(pid, "--all"), volumes].concat()
    }

    /// Returns the running containers of this process.
    pub(crate) fn running(&self, pid: u32) -> Vec<String> {
        self.listed(pid, "--filter=status=running")
    }

    fn listed(&self, pid: u32, which: &str) -> Vec<String> {
        let format = "{{.Names}} {{.Labels}}";
        let listed = finish(
            self.dir
                .program(self.name)
                .args(["ps", which, "--no-trunc", "--format", format]),
            b"",
        );
        let owned = format!(".{pid}.");
        listed
            .ok()
            .lines()
            .filter(|line| line.contains(&owned))
            .map(str::to_owned)
            .collect()
    }

    /// Creates a workspace that programs may write to.
    pub(crate) fn workspace(&self, name: &str) -> String {
        let path = self.dir.path(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(self.dir.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }
}

#[test]
fn a_program_sees_nothing_of_the_host_and_changes_nothing_of_its_image() {
    for engine in engines() {
        let code = "import os, socket\n\
                    print(sorted(os.listdir('/sys/class/net')), os.getuid() != 0, os.path.exists('/var/run/docker.sock'))\n\
                    for act in (lambda: open('/etc/x', 'w'), lambda: os.mkdir('/x'), lambda: os.setuid(0),\n\
                    \x20           lambda: socket.create_connection(('192.0.2.1', 80), 1), lambda: open('/proc/sys/kernel/hostname', 'w')):\n\
                    \x20   try:\n        act(); print('done')\n    except OSError as error:\n        print(type(error).__name__)\n";
        let output = engine.python(code);
        let lines: Vec<&str> = output.ok().lines().collect();
        assert_eq!(lines[0], "['lo'] True False");
        assert!(lines[1..].iter().all(|line| *line != "done"), "{lines:?}");
        assert_eq!(lines.len(), 6);
    }
}

#[test]
fn files_come_and_go_through_the_places_that_are_shown() {
    for engine in engines() {
        let workspace = engine.workspace("shared");
        fs::create_dir(engine.dir.path("shared/.git")).unwrap();
        engine.dir.write("shared/in", "hello");
        let data = engine.dir.path("data");
        fs::create_dir(&data).unwrap();
        engine.dir.write("data/fixed", "fixed");
        let mount = format!("{}:/data", data.display());
        let out = engine.dir.path("out").display().to_string();
        let code = format!(
            "import os\n\
             open('/workspace/new', 'w').write(open('/workspace/in').read())\n\
             open('{out}/result', 'w').write(open('/data/fixed').read())\n\
             for path in ('/data/x', '/workspace/.git/hook', '/code/x'):\n\
             \x20   try:\n        open(path, 'w'); print('written', path)\n    except OSError:\n        print('refused')\n\
             print(os.listdir('/output'))\n"
        );
        let output = engine.run(&[
            "--workspace",
            &workspace,
            "--mount",
            &mount,
            "-o",
            &out,
            "-c",
            &code,
        ]);
        assert_eq!(
            output.ok(),
            "refused\nrefused\nrefused\n['result']\n",
            "{output:?}"
        );
        assert_eq!(
            fs::read_to_string(engine.dir.path("shared/new")).unwrap(),
            "hello"
        );
        assert_eq!(
            fs::read_to_string(engine.dir.path("out/result")).unwrap(),
            "fixed"
        );
        assert_eq!(entries(&engine.dir.path("shared/.git")), Vec::<String>::new());
        assert_eq!(entries(&engine.dir.path("tmp")), Vec::<String>::new());
    }
}

#[test]
fn what_leads_to_the_host_is_never_shown() {
    for engine in engines() {
        for path in [
            "/",
            "/run",
            "/var/run/docker.sock",
            "/proc",
            "/sys",
            "/dev",
            "/etc",
            "/var/lib/docker",
        ] {
            if !std::path::Path::new(path).exists() {
                continue;
            }
            let output = engine.run(&["--mount", &format!("{path}:/x"), "-c", "print(1)"]);
            assert!(
                matches!(output.status, 2 | 125) && output.stdout.is_empty(),
                "{path}: {output:?}"
            );
            assert!(output.stderr.contains("refusing to show"), "{path}: {output:?}");
        }
    }
}

#[test]
fn a_run_that_is_given_up_leaves_no_container() {
    for engine in engines() {
        let mut child = engine.start(&["-c", "import time; print('on', flush=True); time.sleep(600)"]);
        eventually("the container runs", || !engine.running(child.id()).is_empty());
        let interrupt = finish(
            engine
                .dir
                .program("kill")
                .args(["-TERM", &child.id().to_string()]),
            b"",
        );
        assert_eq!(interrupt.status, 0);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(engine.left_by(child.id()), Vec::<String>::new());
    }
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_one_and_nothing_else() {
    for engine in engines() {
        let (mut killed, mut living) = (engine.start(SLEEP), engine.start(SLEEP));
        eventually("both containers run", || {
            !engine.running(killed.id()).is_empty() && !engine.running(living.id()).is_empty()
        });
        killed.kill().unwrap();
        killed.wait().unwrap();
        // From here on the next run may be any on this machine, including those of other tests.
        assert_eq!(engine.python("print(1)").ok(), "1\n");
        eventually_none("the orphan", || engine.left_by(killed.id()));
        // A container, with its two volumes.
        assert_eq!(engine.left_by(living.id()).len(), 3);
        finish(
            engine
                .dir
                .program("kill")
                .args(["-TERM", &living.id().to_string()]),
            b"",
        );
        living.wait().unwrap();
        assert_eq!(engine.left_by(living.id()), Vec::<String>::new());
    }
}

const SLEEP: &[&str] = &["-c", "import time; time.sleep(600)"];

#[test]
fn a_container_that_dies_under_a_run_is_no_success() {
    for engine in engines() {
        let child = engine.start(&["--json", "-c", "import time; time.sleep(600)"]);
        let pid = child.id();
        eventually("the container runs", || !engine.running(pid).is_empty());
        let line = engine.running(pid).remove(0);
        let name = line.split(' ').next().unwrap();
        let removed = finish(engine.dir.program(engine.name).args(["rm", "--force", name]), b"");
        removed.ok();
        let output = child.wait_with_output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let outcome = result["meta"]["outcome"].as_str().unwrap();
        assert!(matches!(outcome, "unknown" | "signalled"), "{result}");
        assert_ne!(result["exit_code"], 0);
    }
}

#[test]
fn what_is_missing_is_told_with_the_fix() {
    let dir = Dir::new();
    let told = |name: &str, value: &str, args: &[&str]| {
        let mut command = dir.command(["run"].iter().chain(args));
        finish(command.env(name, value), b"")
    };
    let docker: &[&str] = &["--runtime", "docker", "-c", "1"];
    let nowhere = told("DOCKER_HOST", "unix:///no/such.sock", docker);
    nowhere.refused(125, "Docker daemon not available");
    assert!(
        nowhere
            .stderr
            .contains("Set SANDBOX_TYPE=local or start Docker daemon"),
        "{nowhere:?}"
    );
    told("DOCKER_HOST", "ssh://somewhere", docker).refused(125, "engines are not reached over ssh");
    let podman = told(
        "CONTAINER_HOST",
        "unix:///no/such.sock",
        &["--runtime", "podman", "-c", "1"],
    );
    podman.refused(125, "Podman service not available");
    for engine in engines() {
        let mut command = engine.dir.command(["run", "--runtime", engine.name, "-c", "1"]);
        let missing = finish(command.env("DOCKER_IMAGE", "no-such-image:1"), b"");
        missing.refused(125, "there is no image no-such-image:1");
        assert!(missing.stderr.contains("ringfence setup image"), "{missing:?}");
        fs::create_dir_all(engine.dir.path("state/ringfence")).unwrap();
        engine.dir.write("state/ringfence/images.json", "{");
        let damaged = engine.python("print(1)");
        damaged.refused(125, "images.json is damaged");
        assert!(damaged.stderr.contains("ringfence setup image"), "{damaged:?}");
    }
}

#[test]
fn an_image_that_is_not_pinned_is_told() {
    for engine in engines() {
        let told = |engine: &Engine| engine.python("print(1)").stderr.contains("is not pinned");
        fs::create_dir_all(engine.dir.path("state/ringfence")).unwrap();
        assert!(told(&engine));
        assert!(!told(&engine));
        let format = ["image", "inspect", "--format", "{{.Id}}", IMAGE];
        let id = finish(engine.dir.program(engine.name).args(format), b"");
        let id = id.ok().trim().trim_start_matches("sha256:");
        let pins = json!({ format!("{} {IMAGE}", engine.name): format!("sha256:{id}") });
        fs::create_dir_all(engine.dir.path("state/ringfence")).unwrap();
        engine.dir.write("state/ringfence/images.json", pins.to_string());
        assert!(!told(&engine));
    }
}

/// Starts a service that reports versions as Docker and as Podman do, sends `other` to every other request on
/// a socket, and reports the requests.
fn answering(dir: &Dir, versions: &'static str, other: &'static str) -> (String, mpsc::Receiver<String>) {
    let path = dir.path("fake.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (sender, asked) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            reader.read_line(&mut line).unwrap();
            let (status, body) = if line.starts_with("GET /version ") {
                ("200 OK".to_owned(), versions)
            } else if line.starts_with("GET /_ping ") {
                (format!("200 OK\r\nApi-Version: {versions}"), "OK")
            } else {
                ("500 No".to_owned(), other)
            };
            let length = body.len();
            // A client that only probes the socket has disconnected by now.
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: application/json\r\n\r\n{body}"
            );
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    (format!("unix://{}", path.display()), asked)
}

#[test]
fn an_engine_is_spoken_to_in_a_version_that_it_knows() {
    let check = |runtime: &str, versions: &'static str, expected: &str| {
        let dir = Dir::new();
        let (address, asked) = answering(&dir, versions, r#"{"message": "that far"}"#);
        let mut command = dir.command(["run", "--runtime", runtime, "-c", "1"]);
        command
            .env("DOCKER_HOST", &address)
            .env("CONTAINER_HOST", &address);
        finish(&mut command, b"").refused(125, expected);
        asked.try_iter().last().unwrap()
    };
    let old = r#"{"Version": "19.03.15", "ApiVersion": "1.40", "MinAPIVersion": "1.12"}"#;
    for (runtime, versions, name) in [
        ("docker", old, "Docker daemon"),
        ("podman", "1.40", "Podman service"),
    ] {
        let expected = format!("the API of {name} is too old: it is version 1.40, and 1.41 is needed");
        check(runtime, versions, &expected);
    }
    let ours = r#"{"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}"#;
    let later = r#"{"Version": "29.0.0", "ApiVersion": "1.52", "MinAPIVersion": "1.44"}"#;
    assert!(check("docker", ours, "that far").starts_with("GET /v1.41/info "));
    assert!(check("docker", later, "that far").starts_with("GET /v1.44/info "));
    assert!(check("podman", "1.41", "that far").starts_with("GET /v1.41/info "));
}

#[test]
fn a_socket_that_is_closed_to_us_is_told_with_the_fix() {
    let Some(world) = World::new(Mode::OneShot, Place::User) else {
        return;
    };
    for (runtime, words, fix) in [
        (
            "docker",
            "Docker daemon not available: no permission to use",
            "usermod",
        ),
        (
            "podman",
            "Podman service not available",
            "systemctl --user start podman.socket",
        ),
    ] {
        let refused = finish(
            &mut world.command(&[], ["run", "--runtime", runtime, "-c", "1"]),
            b"",
        );
        refused.refused(125, words);
        assert!(refused.stderr.contains(fix), "{refused:?}");
    }
}

/// The local fallback applies only if a person configured it.
#[test]
fn the_fence_of_this_machine_takes_over_as_configured() {
    let dir = Dir::new();
    let mut alone = dir.command(["run", "--runtime", "docker", "-c", "1"]);
    alone.env("DOCKER_HOST", "unix:///no/such.sock");
    alone.env("RINGFENCE_SANDBOX_DOCKER_FALLBACK", "none");
    finish(&mut alone, b"").refused(125, "Docker daemon not available");
    let mut tool = dir.command([
        "tool",
        "run_code",
        r#"{"code": "print(1)", "runtime": "docker"}"#,
        "--json",
    ]);
    tool.env("DOCKER_HOST", "unix:///no/such.sock");
    tool.env("RINGFENCE_SANDBOX_DOCKER_FALLBACK", "local");
    let answer: Value = serde_json::from_str(finish(&mut tool, b"").ok()).unwrap();
    assert_eq!(answer["meta"]["runtime"], "local", "{answer}");
    dir.write("work/ringfence.toml", "[sandbox.docker]\nfallback = 'local'\n");
    let mut project = dir.command(["run", "--runtime", "docker", "-c", "1"]);
    let passed_over = finish(project.env("DOCKER_HOST", "unix:///no/such.sock"), b"");
    passed_over.refused(
        2,
        "`sandbox.docker.fallback` may not be set by a project's own file",
    );
}

/// A program that fills a directory fails at the write, and the run reports the exceeded limit.
#[test]
fn what_a_run_fills_fails_there() {
    for engine in engines() {
        let fill = "import os\nfor place in '/output', '/workspace', '/tmp':\n\
            \x20   try: open(f'{place}/big', 'wb').write(bytes(80 << 20))\n\
            \x20   except OSError as error: print(place, error.strerror)\n\
            \x20   os.remove(f'{place}/big')\n\
            open('/output/kept', 'w').write('kept')\nraise OSError(28, os.strerror(28))";
        let out = engine.dir.path("out").display().to_string();
        let result = engine.json(&["-o", &out, "-c", fill]);
        let full =
            ["/output", "/workspace", "/tmp"].map(|place| format!("{place} No space left on device\n"));
        assert_eq!(result["stdout"], full.concat(), "{result}");
        assert_eq!(
            (&result["meta"]["outcome"], &result["exit_code"]),
            (&"exited".into(), &1.into()),
            "{result}"
        );
        let warning = result["meta"]["warnings"][0].as_str().unwrap();
        assert!(
            warning.contains("hold 64MiB") && warning.contains("`sandbox.disk`"),
            "{result}"
        );
        assert_eq!(
            result["meta"]["output_files"],
            json!([{"path": "kept", "bytes": 4}]),
            "{result}"
        );
        assert_eq!(fs::read_to_string(engine.dir.path("out/kept")).unwrap(), "kept");
    }
}

#[test]
fn the_container_runner_runs_commands_in_containers() {
    for engine in engines() {
        let config = format!(
            "[permissions.shell]\nrunner = 'container'\ncontainer_runtime = '{}'\ncontainer_image = '{IMAGE}'\n",
            engine.name
        );
        engine.dir.write("config/ringfence/ringfence.toml", config);
        let workspace = engine.workspace("shared");
        fs::create_dir(engine.dir.path("shared/sub")).unwrap();
        let shell = |arguments: &str| {
            let args = [
                "tool",
                "shell",
                arguments,
                "--json",
                "--no-engine",
                "--workspace",
                &workspace,
            ];
            let output = engine.dir.run(args);
            assert_eq!(engine.left_by(output.pid), Vec::<String>::new());
            output
        };
        let answer: Value =
            serde_json::from_str(shell(r#"{"command": "pwd", "working_dir": "sub"}"#).ok()).unwrap();
        assert_eq!(answer["stdout"], "/workspace/sub\n", "{answer}");
        assert_eq!(
            (&answer["runner"], &answer["exit_code"]),
            (&"container".into(), &0.into())
        );
        assert_eq!(answer["isolation"]["net_ns"], true);
        let words: Value =
            serde_json::from_str(shell(r#"{"command": "echo", "args": ["$HOME; id"]}"#).ok()).unwrap();
        assert_eq!(words["stdout"], "$HOME; id\n");
        let missing = shell(r#"{"command": "pwd", "working_dir": "none"}"#);
        assert!(
            missing.status == 125 && missing.stdout.contains("cannot start in `none`"),
            "{missing:?}"
        );
        assert!(!engine.dir.path("shared/none").exists());
        engine.dir.write(
            "config/ringfence/ringfence.toml",
            "[permissions.shell]\nrunner = 'container'\n",
        );
        let mut command = engine
            .dir
            .command(["tool", "shell", r#"{"command": "pwd"}"#, "--no-engine"]);
        let refused = finish(command.env("DOCKER_HOST", "unix:///no/such.sock"), b"");
        refused.refused(125, "Docker daemon not available");
    }
}

#[test]
fn an_image_is_gathered_from_this_machine() {
    for engine in engines() {
        let name = format!("ringfence-gathered-{}:1", std::process::id());
        let options = [
            "setup",
            "image",
            "--from",
            "host",
            "--engine",
            engine.name,
            "--image",
            &name,
        ];
        let made = engine.dir.run(options);
        assert!(made.ok().starts_with(&format!("{name} sha256:")), "{made:?}");
        let mut command = engine.dir.command([
            "run",
            "--runtime",
            engine.name,
            "-c",
            "import json, ssl; print('fine')",
        ]);
        let output = finish(command.env("DOCKER_IMAGE", &name), b"");
        finish(
            engine.dir.program(engine.name).args(["rmi", "--force", &name]),
            b"",
        );
        assert_eq!(output.ok(), "fine\n");
    }
}
