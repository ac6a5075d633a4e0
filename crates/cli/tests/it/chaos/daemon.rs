//! The test's own Docker daemon, which may be killed and stopped, unlike the machine's.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use super::until;
use crate::leftovers::processes;
use crate::support::{eventually_none, finish};
use crate::world::World;

pub(super) struct Daemon {
    place: PathBuf,
    process: Mutex<Child>,
}

impl Daemon {
    /// Starts a daemon with the image of sandboxes, and points the world's commands to it.
    pub(super) fn start(world: &World) -> Self {
        let docker = |args: &[&str]| {
            finish(world.dir.program("docker").args(args), b"")
                .ok()
                .to_owned()
        };
        let image = world.dir.path("home/image.tar").display().to_string();
        docker(&["save", "--output", &image, "ringfence-sandbox:latest"]);
        let place = world.dir.path("docker");
        std::fs::create_dir(&place).unwrap();
        let process = Mutex::new(run(world, &place));
        let daemon = Self { place, process };
        let host = format!("host=unix://{}", daemon.place.join("socket").display());
        docker(&["context", "create", "own", "--docker", &host]);
        docker(&["context", "use", "own"]);
        daemon.answers(world);
        docker(&["load", "--input", &image]);
        daemon
    }

    pub(super) fn kill(&self) {
        let mut process = self.process.lock().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.lock().unwrap().id()
    }

    /// Restarts it after a kill.
    pub(super) fn again(&self, world: &World) {
        *self.process.lock().unwrap() = run(world, &self.place);
        self.answers(world);
    }

    fn answers(&self, world: &World) {
        until("the Docker answers", || {
            let ended = self.process.lock().unwrap().try_wait().unwrap();
            let log = std::fs::read_to_string(self.place.join("log")).unwrap();
            assert_eq!(ended, None, "{log}");
            let mut docker = world.dir.program("docker");
            finish(docker.arg("version"), b"").status == 0
        });
    }

    /// Ends it, and asserts that it leaves nothing.
    pub(super) fn end(self, world: &World) {
        let mut kill = world.dir.program("kill");
        finish(kill.arg(self.pid().to_string()), b"").ok();
        self.process.lock().unwrap().wait().unwrap();
        eventually_none("processes of the Docker", || self.processes());
    }

    /// Returns its processes, except those in containers.
    fn processes(&self) -> Vec<u32> {
        let place = self.place.display().to_string();
        let own = processes()
            .into_iter()
            .filter(|process| process.command.contains(&place));
        own.map(|process| process.pid).collect()
    }
}

/// Starts the daemon in its own network namespace, because a daemon without a bridge removes an existing
/// bridge, and in its own mount namespace, so that its mounts go with it.
fn run(world: &World, place: &std::path::Path) -> Child {
    // A killed daemon leaves these, and counts as running as long as even a zombie has its pid.
    for left in ["pid", "exec/containerd/containerd.pid"] {
        let _ = std::fs::remove_file(place.join(left));
    }
    let log = File::options()
        .create(true)
        .append(true)
        .open(place.join("log"))
        .unwrap();
    let below = |name: &str| place.join(name).into_os_string();
    let mut command: Command = world.dir.program("unshare");
    command
        .args([
            "--net",
            "--mount",
            "dockerd",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
        ])
        .arg("--host")
        .arg(format!("unix://{}", place.join("socket").display()));
    for (option, name) in [
        ("--data-root", "data"),
        ("--exec-root", "exec"),
        ("--pidfile", "pid"),
    ] {
        command.arg(option).arg(below(name));
    }
    // The machine's own Docker configuration does not apply.
    std::fs::write(place.join("config"), "{}").unwrap();
    command.arg("--config-file").arg(below("config"));
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Leftovers of a failed test would run for ever.
impl Drop for Daemon {
    fn drop(&mut self) {
        let shims = self.processes();
        let guests = processes()
            .into_iter()
            .filter(|process| shims.contains(&process.parent));
        let all: Vec<String> = guests
            .map(|process| process.pid)
            .chain(shims.clone())
            .map(|pid| pid.to_string())
            .collect();
        if !all.is_empty() {
            let _ = crate::support::Dir::new()
                .program("kill")
                .arg("-KILL")
                .args(all)
                .status();
        }
        let _ = self.process.lock().unwrap().wait();
    }
}
