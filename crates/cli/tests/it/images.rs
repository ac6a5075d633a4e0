//! Images built and pulled by the test's own engines, from a private registry.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::daemon::{Containers, Daemon};
use crate::support::{Dir, Output, eventually, finish};
use crate::world::skip;

/// In the network namespace of the test's own Docker, whose ports are private.
const REGISTRY: &str = "127.0.0.1:5000";
const SANDBOX: &str = "ringfence-sandbox:latest";

/// The first lines of the project's Dockerfile, as far as they work without the internet.
const BASE: &str = "FROM ringfence-sandbox:latest\nUSER 0:0\n\
    RUN rm -rf /workspace /output && mkdir -p /usr/local/bin && cd /usr/local/bin \\\n\
    && printf '#!/bin/sh\\necho \"told: $*\" >&2\\n' > apt-get && chmod 755 apt-get && cp apt-get groupadd && cp apt-get useradd\n";
const WITHOUT_PYTHON: &str = "FROM ringfence-sandbox:latest\nUSER 0:0\nRUN rm -f /usr/bin/python3*\n";

/// An image whose author wants unlimited disk, and a program that is run periodically.
const WITH_WISHES: &str = "FROM ringfence-sandbox:latest\nUSER 0:0\nRUN mkdir -p /data/deep && echo own > /data/own\n\
    VOLUME /data /data/deep /tmp /output /var/spool/\nHEALTHCHECK --interval=1s CMD touch /tmp/healthy\n";
const WITH_MANY_WISHES: &str = "FROM ringfence-sandbox:latest\n\
    VOLUME /v1 /v2 /v3 /v4 /v5 /v6 /v7 /v8 /v9 /v10 /v11 /v12 /v13 /v14 /v15 /v16 /v17\n";

/// A Docker, a Podman and a registry in their own network namespace.
struct Place {
    registry: Child,
    podman: Child,
    docker: Daemon,
}

/// A container engine, and the variable that points to it.
struct Engine<'a> {
    name: &'static str,
    host: (&'static str, String),
    dir: &'a Dir,
}

impl Place {
    fn new() -> Option<Self> {
        let dir = Dir::new();
        let found = finish(dir.program("docker-registry").arg("--version"), b"");
        if found.status != 0 {
            return skip("no docker-registry (`cargo xtask setup` installs it)");
        }
        // Requests to the Docker Hub go to the registry first.
        let mirrors = json!({"registry-mirrors": [format!("http://{REGISTRY}")]});
        dir.write("daemon.json", mirrors.to_string());
        let docker = Daemon::in_place(dir, Containers::End)?;
        let up = finish(inside(&docker, "ip").args(["link", "set", "lo", "up"]), b"");
        assert_eq!(up.status, 0, "{up:?}");
        let registry = start_registry(&docker);
        let podman = start_podman(&docker);
        let place = Self {
            registry,
            podman,
            docker,
        };
        eventually("Podman answers", || {
            UnixStream::connect(place.podman_socket()).is_ok()
        });
        Some(place)
    }

    fn podman_socket(&self) -> PathBuf {
        self.docker.dir.path("p.sock")
    }

    fn engines(&self) -> [Engine<'_>; 2] {
        let dir = &self.docker.dir;
        let podman = format!("unix://{}", self.podman_socket().display());
        let engine = |name, host| Engine { name, host, dir };
        [
            engine("docker", ("DOCKER_HOST", self.docker.host())),
            engine("podman", ("CONTAINER_HOST", podman)),
        ]
    }

    /// Builds an image and leaves it in the registry alone; returns its digest.
    fn publish(&self, name: &str, dockerfile: &str) -> String {
        let context = self.docker.dir.path("context");
        fs::create_dir_all(&context).unwrap();
        fs::write(context.join("Dockerfile"), dockerfile).unwrap();
        let name = format!("{REGISTRY}/{name}");
        let mut build = self.docker.dir.program("docker");
        build
            .env("DOCKER_HOST", self.docker.host())
            .env("DOCKER_BUILDKIT", "0");
        finish(build.args(["build", "--quiet", "-t", &name]).arg(context), b"").ok();
        eventually("the registry takes it", || {
            self.docker.docker(&["push", "--quiet", &name]).status == 0
        });
        let format = "{{index .RepoDigests 0}}";
        let digest = self.docker.docker(&["inspect", "--format", format, &name]);
        self.docker.docker(&["rmi", "--force", &name]).ok();
        digest.ok().trim().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for process in [&mut self.podman, &mut self.registry] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Returns the command of a program in the network namespace of the test's own Docker.
fn inside(docker: &Daemon, program: &str) -> Command {
    let mut command = docker.dir.program("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", docker.pid()));
    command.arg(program);
    command
}

fn start_registry(docker: &Daemon) -> Child {
    let data = docker.dir.path("registry");
    let text = json!({
        "version": "0.1",
        "storage": {"filesystem": {"rootdirectory": data}},
        "http": {"addr": REGISTRY},
    });
    let file = docker.dir.write("registry.json", text.to_string());
    quiet(inside(docker, "docker-registry").arg("serve").arg(file))
}

/// Starts a Podman with its own storage, which asks the registry for images of the Docker Hub.
fn start_podman(docker: &Daemon) -> Child {
    let dir = &docker.dir;
    let registries = format!(
        "[[registry]]\nlocation = 'docker.io'\n[[registry.mirror]]\nlocation = '{REGISTRY}'\ninsecure = true\n\
         [[registry]]\nlocation = '{REGISTRY}'\ninsecure = true\n"
    );
    let registries = dir.write("registries.conf", registries);
    let mut command = inside(docker, "unshare");
    command
        .args(["--mount", "--propagation", "private", "podman"])
        .arg("--root")
        .arg(dir.path("podman"))
        .arg("--runroot")
        .arg(dir.path("podman-run"))
        .args(["--runtime", "runc", "system", "service", "--time=0"])
        .arg(format!("unix://{}", dir.path("p.sock").display()))
        .env_remove("XDG_RUNTIME_DIR")
        .env("CONTAINERS_REGISTRIES_CONF", registries);
    quiet(&mut command)
}

fn quiet(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().unwrap()
}

impl Engine<'_> {
    /// Returns a Ringfence command with this image in its configuration.
    fn command(&self, image: &str, args: &[&str]) -> Command {
        let mut command = self.dir.command(args);
        command
            .env(self.host.0, &self.host.1)
            .env("RINGFENCE_SANDBOX_DOCKER_IMAGE", image)
            .env("RINGFENCE_CODE_EXECUTION_DOCKER_IMAGE", image)
            .env("RINGFENCE_CODE_EXECUTION_CONTAINER_RUNTIME", self.name);
        command
    }

    fn setup(&self, from: &str, image: &str) -> Output {
        let args = ["setup", "image", "--engine", self.name, "--from", from];
        finish(&mut self.command(image, &args), b"")
    }

    fn run(&self, image: &str, args: &[&str]) -> Output {
        let first = ["run", "--no-engine", "--runtime", self.name];
        let all: Vec<&str> = first.iter().chain(args).copied().collect();
        finish(&mut self.command(image, &all), b"")
    }

    /// Asserts that an image was built and its digest recorded.
    #[track_caller]
    fn noted(&self, image: &str, made: &Output) {
        let (name, digest) = made.ok().trim().split_once(' ').unwrap();
        assert_eq!(name, image, "{made:?}");
        assert!(digest.starts_with("sha256:"), "{made:?}");
        let noted = fs::read_to_string(self.dir.path("state/ringfence/images.json")).unwrap();
        assert!(noted.contains(digest), "{noted}");
    }

    fn call(&self, image: &str, language: &str, code: &str) -> Output {
        let arguments = json!({"language": language, "code": code});
        let args = ["tool", "sandbox_exec", "-", "--json", "--no-engine"];
        finish(&mut self.command(image, &args), arguments.to_string().as_bytes())
    }
}

#[test]
fn an_image_is_built_and_pulled_from_a_registry() {
    let Some(place) = Place::new() else {
        return;
    };
    place.publish("library/python:3.12-slim", BASE);
    let digest = place.publish("team/sandbox:7", &format!("FROM {SANDBOX}\nENV TEAM=7\n"));
    place.publish("team/bare:1", WITHOUT_PYTHON);
    place.publish("team/greedy:1", WITH_WISHES);
    place.publish("team/greedier:1", WITH_MANY_WISHES);
    for engine in place.engines() {
        engine.builds();
        let tag = format!("{REGISTRY}/team/sandbox:7");
        let pulled = engine.setup("registry", &tag);
        engine.noted(&tag, &pulled);
        assert!(!pulled.stderr.is_empty(), "{pulled:?}");
        let again = engine.setup("registry", &digest);
        let id = |output: &Output| output.ok().split_whitespace().nth(1).map(str::to_owned);
        assert_eq!(id(&again), id(&pulled), "{again:?}");
        engine.tells_why_it_cannot_pull();
        engine.runs_bash_without_python(&format!("{REGISTRY}/team/bare:1"));
        engine.gives_an_image_no_disk(&format!("{REGISTRY}/team/greedy:1"));
        let many = format!("{REGISTRY}/team/greedier:1");
        engine.setup("registry", &many).ok();
        let refused = engine.run(&many, &["-c", "print(1)"]);
        refused.refused(125, "declares more than 16 volumes");
    }
}

impl Engine<'_> {
    #[track_caller]
    fn builds(&self) {
        let built = self.setup("dockerfile", "built:1");
        self.noted("built:1", &built);
        assert_eq!(self.run("built:1", &["-c", "print(6 * 7)"]).ok(), "42\n");
        let pulled = match self.name {
            "docker" => "Pulling from library/python",
            _ => "Trying to pull docker.io/library/python:3.12-slim",
        };
        for told in [
            pulled,
            "FROM python:3.12-slim",
            "told: update",
            "Successfully tagged",
        ] {
            assert!(built.stderr.contains(told), "{told}: {built:?}");
        }
        // On a terminal, messages of the base's programs are red.
        for remains in ["\x1b", "[91m", "[0m"] {
            assert!(!built.stderr.contains(remains), "{built:?}");
        }
    }

    /// Declared volumes of an image have a size limit, and its health check is not run.
    #[track_caller]
    fn gives_an_image_no_disk(&self, image: &str) {
        self.setup("registry", image).ok();
        let fill = "import os\nfor place in '/data', '/data/deep', '/tmp', '/output', '/var/spool':\n\
            \x20   try: open(f'{place}/big', 'wb').write(bytes(70 << 20))\n\
            \x20   except OSError as error: print(place, error.errno)\n\
            \x20   os.remove(f'{place}/big')";
        let full =
            ["/data", "/data/deep", "/tmp", "/output", "/var/spool"].map(|place| format!("{place} 28\n"));
        let ran = self.run(image, &["-c", fill]);
        assert_eq!(ran.ok(), full.concat(), "{ran:?}");
        let waiting = [
            "run",
            "--no-engine",
            "--runtime",
            self.name,
            "-c",
            "import sys; sys.stdin.read()",
            "--stdin",
            "-",
        ];
        let mut waiting = self.command(image, &waiting);
        let mut waiting = waiting
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let running = || self.program(&["ps", "-q"]).ok().to_owned();
        eventually("the program runs", || !running().is_empty());
        let format = "{{json .Config.Healthcheck.Test}} {{len .Mounts}} {{range .Mounts}}{{.Name}} {{end}}";
        let inspected = self.program(&["inspect", "--format", format, running().trim()]);
        let told = inspected.ok();
        assert!(told.starts_with("[\"NONE\"] "), "{told}");
        // Every volume has our name prefix, so that we remove it.
        let names = told.split_whitespace().skip(2);
        assert!(
            names.clone().count() >= 4 && names.clone().all(|name| name.starts_with("fw-sandbox-")),
            "{told}"
        );
        drop(waiting.stdin.take());
        waiting.wait().unwrap();
        assert_eq!(self.program(&["volume", "ls", "-q"]).ok(), "");
    }

    /// Returns the output of the container engine itself.
    fn program(&self, args: &[&str]) -> Output {
        let mut command = self.dir.program(self.name);
        match self.name {
            "docker" => command.env("DOCKER_HOST", &self.host.1),
            _ => command.args(["--remote", "--url", &self.host.1]),
        };
        finish(command.args(args), b"")
    }

    #[track_caller]
    fn tells_why_it_cannot_pull(&self) {
        let missing = format!("{REGISTRY}/team/sandbox:8");
        let refused = self.setup("registry", &missing);
        let words = format!("error: there is no image {missing} in its registry\n");
        assert!(
            refused.status == 125 && refused.stderr.contains(&words),
            "{refused:?}"
        );
        // Podman retries, with the same final message.
        if self.name == "podman" {
            return;
        }
        let nowhere = self.setup("registry", "127.0.0.1:1/sandbox:7");
        assert_eq!(nowhere.status, 125, "{nowhere:?}");
        for words in [
            "cannot pull the image 127.0.0.1:1/sandbox:7: ",
            "connection refused",
            "hint: check that the container engine reaches the registry",
        ] {
            assert!(nowhere.stderr.contains(words), "{nowhere:?}");
        }
    }

    #[track_caller]
    fn runs_bash_without_python(&self, image: &str) {
        self.setup("registry", image).ok();
        let script = "command -v python3 || echo $((6 * 7))";
        assert_eq!(self.run(image, &["-l", "bash", "-c", script]).ok(), "42\n");
        let lacks = format!("there is no python3 in the image {image}");
        self.run(image, &["-c", "print(1)"]).refused(125, &lacks);
        let called = self.call(image, "bash", script);
        assert!(called.ok().contains("\"stdout\": \"42\\n\""), "{called:?}");
        let refused = self.call(image, "python", "print(1)");
        assert_eq!(refused.status, 125, "{refused:?}");
        let words = format!("there is no python3 in the image {image}");
        assert!(refused.stderr.contains(&words), "{refused:?}");
    }
}
