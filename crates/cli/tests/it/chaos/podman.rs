//! The test's own Podman, whose service may be killed, unlike the machine's.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use super::until;
use crate::leftovers::processes;
use crate::support::{Output, finish};
use crate::world::World;

pub(super) struct Podman {
    /// Holds the mount namespace of containers, which ends with its processes.
    holder: Child,
    service: Mutex<Child>,
    /// A path that all its processes have in their command lines.
    place: String,
}

impl Podman {
    /// Starts a Podman with the image of sandboxes, at the socket that the world's commands try first.
    pub(super) fn start(world: &World) -> Self {
        let place = world.dir.path("podman");
        let socket = world.dir.path("run/podman");
        for path in [&place, &socket] {
            std::fs::create_dir(path).unwrap();
        }
        let mut hold = world.dir.program("unshare");
        hold.args(["--mount", "--propagation", "private", "sleep", "infinity"]);
        let holder = hold.spawn().unwrap();
        let image = world.dir.path("home/image.tar").display().to_string();
        let mut save = own(world.dir.program("podman"));
        save.args(["save", "--quiet", "--output", &image, "ringfence-sandbox:latest"]);
        finish(&mut save, b"").ok();
        let service = Mutex::new(serve(world, &holder));
        let podman = Self {
            holder,
            service,
            place: place.display().to_string(),
        };
        podman.answers(world);
        podman
            .command(world, &["load", "--quiet", "--input", &image])
            .ok();
        podman
    }

    pub(super) fn kill(&self) {
        let mut service = self.service.lock().unwrap();
        service.kill().unwrap();
        service.wait().unwrap();
    }

    /// Restarts its service after a kill.
    pub(super) fn again(&self, world: &World) {
        *self.service.lock().unwrap() = serve(world, &self.holder);
        self.answers(world);
    }

    /// Runs a command against its service.
    pub(super) fn command(&self, world: &World, args: &[&str]) -> Output {
        let mut command = own(world.dir.program("podman"));
        command.args(["--remote", "--url", &address(world)]).args(args);
        finish(&mut command, b"")
    }

    fn answers(&self, world: &World) {
        until("the Podman answers", || {
            let ended = self.service.lock().unwrap().try_wait().unwrap();
            let log = std::fs::read_to_string(world.dir.path("podman/log")).unwrap();
            assert_eq!(ended, None, "{log}");
            UnixStream::connect(world.dir.path("run/podman/podman.sock")).is_ok()
        });
    }

    /// Ends it with all processes that it started.
    pub(super) fn end(&mut self) {
        let own = || {
            let all = processes().into_iter();
            all.filter(|process| process.command.contains(&self.place) && process.state != 'Z')
        };
        until("nothing of the Podman runs", || {
            let pids: Vec<String> = own().map(|process| process.pid.to_string()).collect();
            if !pids.is_empty() {
                let dir = crate::support::Dir::new();
                let _ = dir.program("kill").arg("-KILL").args(&pids).status();
            }
            let _ = self.service.lock().unwrap().try_wait();
            pids.is_empty()
        });
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Leftovers of a failed test would run for ever.
impl Drop for Podman {
    fn drop(&mut self) {
        self.end();
    }
}

/// Removes the variables of the world, so that the command uses root's own Podman directories.
fn own(mut command: Command) -> Command {
    command
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_CONFIG_HOME");
    command
}

fn address(world: &World) -> String {
    format!("unix://{}", world.dir.path("run/podman/podman.sock").display())
}

fn serve(world: &World, holder: &Child) -> Child {
    let place = world.dir.path("podman");
    let log = File::options()
        .create(true)
        .append(true)
        .open(place.join("log"))
        .unwrap();
    let mut command = own(world.dir.program("nsenter"));
    command
        .arg(format!("--mount=/proc/{}/ns/mnt", holder.id()))
        .arg("podman");
    for (option, name) in [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
        command.arg(option).arg(place.join(name));
    }
    // Debian's crun does not work if both versions of control groups are mounted; runc does.
    command.args([
        "--runtime",
        "runc",
        "system",
        "service",
        "--time=0",
        &address(world),
    ]);
    command.env("TMPDIR", place).stdin(Stdio::null());
    command
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}
