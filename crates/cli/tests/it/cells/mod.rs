//! Sandboxes that live in cells of this machine, through `ringfence sandbox` and a server.

mod apt;
mod code;
mod copies;
mod ends;
mod forks;
mod guide;
mod images;
mod lives;
mod names;
mod ports;
mod processes;
mod records;
mod terminal;
mod trees;

use std::process::Child;
use std::thread;

use serde_json::{Value, json};

use crate::api::Surface;
use crate::containers::engines;
use crate::network::OPEN;
use crate::oci;
use crate::support::{Output, eventually, finish, start};
use crate::world::{World, skip};

/// A server under test.
struct Lab {
    world: World,
    /// Runtime of its sandbox.
    runtime: &'static str,
    /// OCI runtime of its sandbox, in a container.
    oci_runtime: &'static str,
}

/// A runtime of sandboxes, with an OCI runtime in containers.
#[derive(Debug, Clone, Copy)]
struct Venue {
    runtime: &'static str,
    oci_runtime: &'static str,
}

impl Venue {
    /// Sandboxes of a runtime as it is set up.
    const fn plain(runtime: &'static str) -> Self {
        Self {
            runtime,
            oci_runtime: "default",
        }
    }
}

/// gVisor, by Docker.
const GVISOR: Venue = Venue {
    runtime: "docker",
    oci_runtime: "runsc",
};

/// Returns every runtime, and gVisor through Docker. In CI all are required.
fn venues() -> Vec<Venue> {
    let engines = engines();
    let docker = engines.iter().find(|engine| engine.name == "docker");
    let gvisor = docker.and_then(|docker| match oci::registered(&docker.dir, "runsc") {
        Some(_) => Some(GVISOR),
        None => skip("docker knows no runsc (`cargo xtask setup` adds it)"),
    });
    let plain = engines.iter().map(|engine| engine.name).chain(["local"]);
    plain.map(Venue::plain).chain(gvisor).collect()
}

/// Plays a scenario with a sandbox `lab` of each runtime, in a server of its own each, at the same time.
fn everywhere(scenario: fn(&Lab)) {
    everywhere_with(&[], scenario);
}

/// Like [`everywhere`], with these options of `create`.
fn everywhere_with(options: &[&str], scenario: fn(&Lab)) {
    thread::scope(|scope| {
        for venue in venues() {
            let play = move || {
                let lab = Lab::on(venue, options);
                scenario(&lab);
                lab.close();
            };
            let Venue { runtime, oci_runtime } = venue;
            // The message of a panic has the name.
            thread::Builder::new()
                .name(format!("{runtime} {oci_runtime}"))
                .spawn_scoped(scope, play)
                .unwrap();
        }
    });
}

impl Lab {
    fn new(Venue { runtime, oci_runtime }: Venue) -> Self {
        let world = World::before_engine();
        let config =
            format!("[engine]\npool_size = 1\n[sandbox.docker]\noci_runtime = '{oci_runtime}'\n{OPEN}");
        world.dir.write("config/ringfence/ringfence.toml", config);
        world.start_engine();
        Self {
            world,
            runtime,
            oci_runtime,
        }
    }

    /// Uses a server for sandboxes of this machine.
    fn of(world: World) -> Self {
        Self {
            world,
            runtime: "local",
            oci_runtime: "default",
        }
    }

    /// Returns `true` if its sandbox is in gVisor.
    fn is_in_gvisor(&self) -> bool {
        self.oci_runtime == GVISOR.oci_runtime
    }

    /// Creates a server for sandboxes of this machine.
    fn here() -> Self {
        Self::new(Venue::plain("local"))
    }

    /// Creates a server with one sandbox of this machine, `lab`.
    fn with_sandbox() -> Self {
        Self::on(Venue::plain("local"), &[])
    }

    /// Creates a server with a sandbox `lab` of a runtime.
    fn on(venue: Venue, options: &[&str]) -> Self {
        let (lab, runtime) = (Self::new(venue), venue.runtime);
        let create = ["create", "--name", "lab", "--runtime", runtime];
        assert_eq!(lab.sandbox(&[&create, options].concat()).ok(), "lab\n");
        lab
    }

    /// Runs `ringfence sandbox ARGS…` with empty standard input.
    fn sandbox(&self, args: &[&str]) -> Output {
        self.sandbox_with(args, b"")
    }

    /// Runs `ringfence sandbox ARGS…` with this standard input.
    fn sandbox_with(&self, args: &[&str], stdin: &[u8]) -> Output {
        let all = ["sandbox"].iter().chain(args);
        finish(&mut self.world.command(&[], all), stdin)
    }

    /// Starts `ringfence sandbox ARGS…`.
    fn start(&self, args: &[&str]) -> Child {
        start(&mut self.world.command(&[], ["sandbox"].iter().chain(args)))
    }

    /// Runs a line of bash in the sandbox `lab`.
    fn bash(&self, line: &str) -> Output {
        self.sandbox(&["exec", "lab", "--", "bash", "-c", line])
    }

    /// Runs it with `--json`.
    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.insert(1, "--json");
        let output = self.sandbox(&all);
        let parsed = serde_json::from_str(&output.stdout);
        assert!(parsed.is_ok(), "no JSON: {output:?}");
        parsed.unwrap()
    }

    /// Replaces the hosts that the sandbox `lab` may reach.
    #[track_caller]
    fn set_hosts(&self, hosts: &[&str]) {
        let body = json!({"allowed_hosts": hosts}).to_string();
        let surface = Surface::socket(&self.world);
        let reply = surface.ask("PUT /v1/sandboxes/lab/network", &[], &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.json()["allowed_hosts"], json!(hosts));
    }

    /// Waits until a file exists in the sandbox `lab`.
    #[track_caller]
    fn appears(&self, path: &str) {
        eventually(path, || {
            self.sandbox(&["exec", "lab", "--", "test", "-e", path]).status == 0
        });
    }

    /// Stops the server, and asserts that nothing is left.
    #[track_caller]
    fn close(self) {
        self.world.close();
    }
}
