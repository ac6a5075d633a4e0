//! The test's own Docker daemon, and the outcome of calls when it fails.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Dir, Output, eventually, eventually_none, finish, none_within};
use crate::world::{own_uid, skip};

const IMAGE: &str = "ringfence-sandbox:latest";

/// The fate of containers when their daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Containers {
    Live,
    End,
}

/// The test's own daemon.
pub(crate) struct Daemon {
    pub(crate) dir: Dir,
    containers: Containers,
    process: Option<Child>,
}

impl Daemon {
    /// Starts a daemon with the image of sandboxes.
    fn new(containers: Containers) -> Option<Self> {
        Self::plain(Dir::new(), containers)
    }

    fn on_a_small_disk() -> Option<Self> {
        if own_uid() != 0 {
            return skip("a disk is mounted by root alone");
        }
        let dir = Dir::new();
        let data = dir.path("data");
        fs::create_dir(&data).unwrap();
        let mut mount = dir.program("mount");
        mount.args(["-t", "tmpfs", "-o", "size=300m", "tmpfs"]).arg(data);
        finish(&mut mount, b"").ok();
        Self::plain(dir, Containers::End)
    }

    fn plain(dir: Dir, containers: Containers) -> Option<Self> {
        dir.write("daemon.json", "{}");
        Self::in_place(dir, containers)
    }

    /// Starts a daemon in a directory with its configuration.
    pub(crate) fn in_place(dir: Dir, containers: Containers) -> Option<Self> {
        if own_uid() != 0 {
            return skip("a Docker daemon is started by root alone");
        }
        let mut daemon = Self {
            dir,
            containers,
            process: None,
        };
        daemon.up();
        let archive = daemon.dir.path("image.tar").display().to_string();
        let shared = finish(
            daemon.dir.program("docker").args(["save", "-o", &archive, IMAGE]),
            b"",
        );
        if shared.status != 0 {
            return skip(&format!(
                "no image {IMAGE} in docker (`cargo xtask setup` makes it)"
            ));
        }
        daemon.docker(&["load", "--quiet", "-i", &archive]).ok();
        fs::remove_file(&archive).unwrap();
        Some(daemon)
    }

    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.dir.path("d.sock").display())
    }

    /// Starts it, and waits until it answers.
    fn up(&mut self) {
        let log = fs::File::create(self.dir.path("log")).unwrap();
        // In its own network namespace: a daemon without a bridge removes the one that the machine's daemon
        // uses.
        let mut command = self.dir.program("unshare");
        command.args(["--net", "dockerd"]);
        for (option, name) in [
            ("--config-file", "daemon.json"),
            ("--data-root", "data"),
            ("--exec-root", "exec"),
            ("--pidfile", "pid"),
        ] {
            command.arg(option).arg(self.dir.path(name));
        }
        if self.containers == Containers::Live {
            command.arg("--live-restore");
        }
        let host = self.host();
        command.args(["--host", &host, "--bridge=none", "--iptables=false"]);
        let command = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap());
        self.process = Some(command.stderr(log).spawn().unwrap());
        // Processes that survived the last daemon get 10 s to end.
        none_within(Duration::from_secs(60), "the daemon is silent", || {
            let silent = self.docker(&["version"]).status != 0;
            silent
                .then(|| fs::read_to_string(self.dir.path("log")).unwrap())
                .into_iter()
                .collect::<Vec<_>>()
        });
    }

    fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        finish(self.dir.program("kill").args([signal, &pid]), b"").ok();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    fn kill(&mut self) {
        self.signal("-KILL");
        self.process.take().unwrap().wait().unwrap();
        // Its children end with it. Unless their zombies are reaped, the next daemon takes them for alive.
        let socket = self.dir.path("exec/containerd/containerd.sock");
        eventually("its own daemon ends", || UnixStream::connect(&socket).is_err());
        fs::remove_file(self.dir.path("exec/containerd/containerd.pid")).unwrap();
    }

    pub(crate) fn docker(&self, args: &[&str]) -> Output {
        let mut command = self.dir.program("docker");
        finish(command.env("DOCKER_HOST", self.host()).args(args), b"")
    }

    /// Restarts it once more if containers survived it: after a kill it counts their volumes as mounted
    /// twice, and removes them only after the next start
    /// (docs/decisions/063-files-in-memory-in-containers.md).
    fn forget_mounts(&mut self) {
        if self.containers == Containers::Live {
            self.kill();
            self.up();
        }
    }

    fn containers(&self) -> String {
        self.docker(&["ps", "--all", "--format", "{{.Names}} {{.Status}}"])
            .ok()
            .to_owned()
    }

    /// Returns all our objects in it.
    fn things(&self) -> Vec<String> {
        let volumes = self.docker(&["volume", "ls", "--quiet"]);
        let listed = self.containers() + volumes.ok();
        listed.lines().map(str::to_owned).collect()
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.dir.command(args);
        command.env("DOCKER_HOST", self.host());
        command
    }

    fn python(&self, code: &str) -> Output {
        finish(
            &mut self.command(&["run", "--runtime", "docker", "-c", code]),
            b"",
        )
    }

    /// Starts a Ringfence server that uses it.
    fn serve(&self) -> Child {
        let mut command = self.command(&["serve"]);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let engine = quiet.stderr(Stdio::null()).spawn().unwrap();
        eventually("our engine answers", || self.sandbox(&["ls"]).status == 0);
        engine
    }

    /// Runs `ringfence sandbox`.
    fn sandbox(&self, args: &[&str]) -> Output {
        finish(&mut self.dir.command(["sandbox"].iter().chain(args)), b"")
    }

    /// Starts a program that never ends, and waits for its first line.
    fn start(&self, timeout: &str) -> Child {
        let code = "import time; print('on', flush=True); time.sleep(600)";
        let mut command = self.command(&[
            "run",
            "--runtime",
            "docker",
            "--json",
            "--timeout",
            timeout,
            "-c",
            code,
        ]);
        let pipes = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = pipes.stderr(Stdio::piped()).spawn().unwrap();
        eventually("the program runs", || {
            let running = self.docker(&["ps", "--quiet", "--filter", "status=running"]);
            let id = running.stdout.trim();
            !id.is_empty() && self.docker(&["top", id]).stdout.contains("python3")
        });
        child
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Only it can remove its containers, which survive it.
        if self.process.is_none() && !std::thread::panicking() {
            self.up();
        }
        let ids = self.docker(&["ps", "--all", "--quiet"]).stdout;
        let mut remove = vec!["rm", "--force"];
        remove.extend(ids.lines());
        if remove.len() > 2 {
            self.docker(&remove);
        }
        if let Some(mut process) = self.process.take() {
            let pid = process.id().to_string();
            finish(self.dir.program("kill").args(["-TERM", &pid]), b"");
            let _ = process.wait();
        }
        // The small disk, and the mounts that each killed daemon left over its directory.
        let data = self.dir.path("data");
        let unmount = || finish(self.dir.program("umount").arg("--lazy").arg(&data), b"");
        (0..8).any(|_| unmount().status != 0);
    }
}

/// Returns the JSON result of a run.
fn result(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    let parsed = serde_json::from_slice(&output.stdout);
    parsed.map_err(|error| format!("{error}: {output:?}")).unwrap()
}

#[test]
fn a_daemon_that_dies_in_mid_call_ends_it_as_unknown() {
    for containers in [Containers::End, Containers::Live] {
        let Some(mut daemon) = Daemon::new(containers) else {
            return;
        };
        let mut child = daemon.start("120s");
        daemon.kill();
        eventually("the call ends", || child.try_wait().unwrap().is_some());
        let told = result(child);
        assert_eq!(
            (&told["meta"]["outcome"], &told["exit_code"]),
            (&"unknown".into(), &125.into()),
            "{containers:?}: {told}"
        );
        daemon
            .python("print(1)")
            .refused(125, "Docker daemon not available");
        daemon.up();
        assert_eq!(daemon.python("print(1)").ok(), "1\n", "{containers:?}");
        daemon.forget_mounts();
        assert_eq!(daemon.python("print(1)").ok(), "1\n", "{containers:?}");
        eventually_none("what was left", || daemon.things());
    }
}

#[test]
fn a_daemon_that_does_not_answer_holds_up_no_call() {
    let Some(daemon) = Daemon::new(Containers::End) else {
        return;
    };
    let child = daemon.start("6s");
    daemon.signal("-STOP");
    let told = result(child);
    daemon.signal("-CONT");
    assert_eq!(
        (&told["meta"]["outcome"], &told["exit_code"]),
        (&"timed_out".into(), &(-1).into()),
        "{told}"
    );
    let warnings = told["meta"]["warnings"].to_string();
    assert!(
        warnings.contains("the container engine does not answer"),
        "{told}"
    );
    assert_eq!(daemon.python("print(1)").ok(), "1\n");
    eventually_none("what was left", || daemon.things());
}

#[test]
fn sandboxes_outlive_a_daemon_that_comes_back_if_their_containers_do() {
    for containers in [Containers::Live, Containers::End] {
        let Some(mut daemon) = Daemon::new(containers) else {
            return;
        };
        let mut engine = daemon.serve();
        let made = daemon.sandbox(&["create", "--template", "code-executor", "--name", "stays"]);
        let name = made.ok().split_whitespace().next().unwrap().to_owned();
        // Names are unique, and requesting one again does no harm to its owner.
        daemon
            .sandbox(&["create", "--template", "code-executor", "--name", "stays"])
            .refused(125, "already exists");
        let write = ["run", &name, "--", "bash", "-c", "echo kept > /output/x"];
        daemon.sandbox(&write).ok();
        daemon.kill();
        daemon.up();
        match containers {
            Containers::Live => {
                let read = daemon.sandbox(&["run", &name, "--", "cat", "/output/x"]);
                assert_eq!(read.ok(), "kept\n");
                daemon.sandbox(&["rm", &name]).ok();
            }
            Containers::End => eventually("its end is known", || {
                daemon.sandbox(&["ls"]).ok().contains("destroyed")
            }),
        }
        assert_eq!(daemon.containers(), "", "{containers:?}");
        let pid = engine.id().to_string();
        finish(daemon.dir.program("kill").args(["-TERM", &pid]), b"").ok();
        engine.wait().unwrap();
        daemon.forget_mounts();
        assert_eq!(daemon.python("print(1)").ok(), "1\n", "{containers:?}");
        eventually_none("what was left", || daemon.things());
    }
}

#[test]
fn a_full_disk_is_told_with_what_to_do() {
    let Some(daemon) = Daemon::on_a_small_disk() else {
        return;
    };
    assert_eq!(daemon.python("print(1)").ok(), "1\n");
    let filler = daemon.dir.path("data/filler");
    // It ends when the disk is full.
    let written = std::io::copy(&mut std::io::repeat(0), &mut fs::File::create(&filler).unwrap());
    written.unwrap_err();
    let full = daemon.python("print(1)");
    full.refused(125, "the disk of the container engine is full");
    assert!(full.stderr.contains("docker system df"), "{full:?}");
    fs::remove_file(filler).unwrap();
    assert_eq!(daemon.python("print(1)").ok(), "1\n");
    eventually_none("what was left", || daemon.things());
}

#[test]
fn a_docker_context_leads_to_its_daemon() {
    let Some(daemon) = Daemon::new(Containers::End) else {
        return;
    };
    let docker = |args: &[&str]| finish(daemon.dir.program("docker").args(args), b"");
    let endpoint = format!("host={}", daemon.host());
    docker(&["context", "create", "own", "--docker", &endpoint]).ok();
    docker(&["context", "use", "own"]).ok();
    let mut child = daemon.dir.command(SLEEP).stdin(Stdio::null()).spawn().unwrap();
    eventually("it runs there", || !daemon.things().is_empty());
    let pid = child.id().to_string();
    finish(daemon.dir.program("kill").args(["-TERM", &pid]), b"").ok();
    child.wait().unwrap();
    assert_eq!(daemon.things(), Vec::<String>::new());
}

const SLEEP: [&str; 5] = ["run", "--runtime", "docker", "-c", "import time; time.sleep(600)"];
