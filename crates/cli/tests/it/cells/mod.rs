//! Sandboxes that live in cells of this machine, through `ringfence sandbox` and a server.

mod apt;
mod code;
mod copies;
mod ends;
mod forks;
mod guide;
mod images;
mod names;
mod ports;
mod processes;
mod records;
mod terminal;

use std::process::Child;
use std::thread;

use serde_json::Value;

use crate::containers::engines;
use crate::support::{Output, eventually, finish, start};
use crate::world::World;

const CONFIG: &str = "[engine]\npool_size = 1\n";

/// A server of ours.
struct Lab {
    world: World,
    /// Runtime of its sandbox.
    runtime: &'static str,
}

/// Plays a scenario with a sandbox `lab` of each runtime, in a server of its own each, at the same time.
fn everywhere(scenario: fn(&Lab)) {
    everywhere_with(&[], scenario);
}

/// Like [`everywhere`], with these options of `create`.
fn everywhere_with(options: &[&str], scenario: fn(&Lab)) {
    let engines = engines();
    let runtimes = engines.iter().map(|engine| engine.name).chain(["local"]);
    thread::scope(|scope| {
        for runtime in runtimes {
            let play = move || {
                let lab = Lab::on(runtime, options);
                scenario(&lab);
                lab.close();
            };
            // The message of a panic has the name.
            thread::Builder::new()
                .name(runtime.to_owned())
                .spawn_scoped(scope, play)
                .unwrap();
        }
    });
}

impl Lab {
    fn new(runtime: &'static str) -> Self {
        let world = World::before_engine();
        world.dir.write("config/ringfence/ringfence.toml", CONFIG);
        world.start_engine();
        Self { world, runtime }
    }

    /// Creates a server with one sandbox of this machine, `lab`.
    fn with_sandbox() -> Self {
        Self::on("local", &[])
    }

    /// Creates a server with a sandbox `lab` of a runtime.
    fn on(runtime: &'static str, options: &[&str]) -> Self {
        let lab = Self::new(runtime);
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
