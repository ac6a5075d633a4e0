//! The web console of the built binary.

mod browser;
mod requests;

use std::io::Read;
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::eventually;
use crate::world::World;

/// Commands on the host, where all but reading ones need approval, and a console at a random port.
const CONFIG: &str = "[hostExecution]\nenabled = true\nallowList = ['@read-only']\n[engine]\nlisten = '127.0.0.1:0'\npool_size = 1\n";

fn world() -> World {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", CONFIG);
    world.start_engine();
    world
}

/// Returns the link that opens the console.
#[track_caller]
fn link(world: &World) -> String {
    let mut link = String::new();
    eventually("the console is open", || {
        let output = world.dir.run(["console"]);
        link = output.stdout.trim().to_owned();
        output.status == 0
    });
    link
}

/// An agent's command that waits for approval.
struct Asking(Child);

impl Asking {
    fn of(world: &World, command: &str) -> Self {
        let arguments = json!({ "command": command }).to_string();
        let mut tool = world.command(&[], ["tool", "host_exec", &arguments, "--json"]);
        let child = tool.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        world.watch(child.id());
        Self(child)
    }

    /// Returns the final output of the tool.
    fn end(mut self) -> Value {
        let mut printed = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        self.0.wait().unwrap();
        serde_json::from_str(&printed).unwrap()
    }
}
