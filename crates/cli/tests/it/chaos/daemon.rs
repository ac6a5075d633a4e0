//! A Docker of the test's own, which may be killed and stopped as the one of this machine may not.

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
    /// Starts one that has the image of sandboxes, and that the world's commands use.
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

    /// Starts it again after it was killed.
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

    /// Ends it, and shows that it leaves nothing.
    pub(super) fn end(self, world: &World) {
        let mut kill = world.dir.program("kill");
        finish(kill.arg(self.pid().to_string()), b"").ok();
        self.process.lock().unwrap().wait().unwrap();
        eventually_none("processes of the Docker", || self.processes());
    }

    /// What belongs to it, but for the processes in containers.
    fn processes(&self) -> Vec<u32> {
        let place = self.place.display().to_string();
        let own = processes()
            .into_iter()
            .filter(|process| process.command.contains(&place));
        own.map(|process| process.pid).collect()
    }
}

/// In a network of its own: one without a bridge removes the bridge that it finds. In a mount namespace of its own: what it
/// mounts goes with it.
fn run(world: &World, place: &std::path::Path) -> Child {
    // What was killed leaves these, and counts as running while there is as much as a zombie of that number.
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
    // What this machine says of its own Docker is not for this one.
    std::fs::write(place.join("config"), "{}").unwrap();
    command.arg("--config-file").arg(below("config"));
    command
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// What a failed test leaves would go on for ever.
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
