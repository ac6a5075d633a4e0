//! Guarantees about commands on the host and their approvals, proved by attacks.

mod budgets;
mod everywhere;
mod kills;
mod lists;
mod loaded;
mod swapped;
mod texts;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};

use crate::support::{Output, eventually, finish};
use crate::world::World;

/// Enables commands on the host, and allows those that only read.
const ON: &str = "[hostExecution]\nenabled = true\nallowList = ['@read-only']\n";

/// The interface through which a command is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Through {
    /// `ringfence tool` without a server.
    Tool,
    /// `ringfence tool` with a server.
    Engine,
    /// `ringfence mcp`.
    Mcp,
}

const ALL: [Through; 3] = [Through::Tool, Through::Engine, Through::Mcp];

/// A process that requests a command on the host.
struct Asker {
    child: Child,
    /// An MCP server exits at the end of its input.
    stdin: Option<ChildStdin>,
}

impl Asker {
    fn start(world: &World, through: Through, line: &str) -> Self {
        Self::with(world, through, &[], line)
    }

    /// Starts an asker with further options.
    fn with(world: &World, through: Through, options: &[&str], line: &str) -> Self {
        let arguments = json!({"command": line});
        let (mut args, text) = match through {
            Through::Tool => (
                vec!["tool", "host_exec", "-", "--json", "--no-engine"],
                arguments.to_string(),
            ),
            Through::Engine => (vec!["tool", "host_exec", "-", "--json"], arguments.to_string()),
            Through::Mcp => (vec!["mcp"], conversation(&arguments)),
        };
        args.extend(options);
        let mut command = world.command(&[], args);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        world.watch(child.id());
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        Self {
            child,
            stdin: (through == Through::Mcp).then_some(stdin),
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns its final output.
    fn end(mut self) -> Value {
        let mut printed = String::new();
        if self.stdin.is_some() {
            // The replies to initialisation and to the call.
            let mut lines = std::io::BufReader::new(self.child.stdout.take().unwrap());
            while !printed.contains("\"id\":2") {
                printed.clear();
                assert_ne!(std::io::BufRead::read_line(&mut lines, &mut printed).unwrap(), 0);
            }
            drop(self.stdin.take());
        } else {
            let mut stdout = self.child.stdout.take().unwrap();
            stdout.read_to_string(&mut printed).unwrap();
        }
        self.child.wait().unwrap();
        serde_json::from_str(&printed).unwrap()
    }
}

/// Returns the messages of an MCP client that requests a command.
fn conversation(arguments: &Value) -> String {
    let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let call = json!({"name": "host_exec", "arguments": arguments});
    let message = |id: u64, method: &str, params: &Value| {
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        )
    };
    let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    message(1, "initialize", &about) + &format!("{told}\n") + &message(2, "tools/call", &call)
}

/// Creates a world with this configuration, optionally with a server.
fn world(config: &str, engine: bool) -> World {
    let world = if engine {
        World::before_engine()
    } else {
        World::here()
    };
    world.dir.write("config/ringfence/ringfence.toml", config);
    if engine {
        world.start_engine();
    }
    world
}

/// Runs `ringfence ARGS…` in a world.
fn ringfence(world: &World, args: &[&str]) -> Output {
    let output = finish(&mut world.command(&[], args), b"");
    world.watch(output.pid);
    output
}

/// Returns all approval requests, whatever their state.
#[track_caller]
fn requests(world: &World) -> Vec<Value> {
    let listed = ringfence(world, &["approvals", "ls", "--all", "--json"]);
    serde_json::from_str(listed.ok()).unwrap()
}

/// Waits for the question about this line, and returns its id.
#[track_caller]
fn asked(world: &World, line: &str) -> String {
    question(world, line)["id"].as_str().unwrap().to_owned()
}

/// Waits for the question about this line.
#[track_caller]
fn question(world: &World, line: &str) -> Value {
    let mut found = Value::Null;
    eventually("the question waits", || {
        let about = |request: &&Value| request["text"] == line && request["state"] == "pending";
        found = requests(world).iter().rfind(about).cloned().unwrap_or_default();
        found.is_object()
    });
    found
}

/// Returns the state of a request.
#[track_caller]
fn state(world: &World, id: &str) -> String {
    let all = requests(world);
    let request = all.iter().find(|request| request["id"] == id).unwrap();
    request["state"].as_str().unwrap().to_owned()
}

/// Approves or denies; the answer must be accepted.
#[track_caller]
fn answer(world: &World, verdict: &str, id: &str) {
    ringfence(world, &["approvals", verdict, id]).ok();
}
