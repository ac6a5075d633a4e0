//! What is promised of commands on the host and of the answers to their questions, shown by trying to break it.

mod budgets;
mod everywhere;
mod kills;
mod lists;
mod swapped;
mod texts;

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};

use serde_json::{Value, json};

use crate::support::{Output, eventually, finish};
use crate::world::World;

/// Commands of the host are switched on, and what only reads runs at once.
const ON: &str = "[hostExecution]\nenabled = true\nallowList = ['@read-only']\n";

/// How a command comes to be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Through {
    /// `ringfence tool`, by itself.
    Tool,
    /// The same with an engine.
    Engine,
    /// `ringfence mcp`.
    Mcp,
}

const ALL: [Through; 3] = [Through::Tool, Through::Engine, Through::Mcp];

/// A process that wants to run a command on the host.
struct Asker {
    child: Child,
    /// An MCP server ends with its input.
    stdin: Option<ChildStdin>,
}

impl Asker {
    fn start(world: &World, through: Through, line: &str) -> Self {
        Self::with(world, through, &[], line)
    }

    /// With further options.
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

    /// What it says in the end.
    fn end(mut self) -> Value {
        let mut printed = String::new();
        if self.stdin.is_some() {
            // The greeting, and the answer.
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

/// What a client of the MCP server writes to have a command run.
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

/// A world with this configuration, and with an engine where one is wanted.
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

/// `ringfence ARGS…` in a world.
fn ringfence(world: &World, args: &[&str]) -> Output {
    let output = finish(&mut world.command(&[], args), b"");
    world.watch(output.pid);
    output
}

/// All requests, with whatever became of them.
#[track_caller]
fn requests(world: &World) -> Vec<Value> {
    let listed = ringfence(world, &["approvals", "ls", "--all", "--json"]);
    serde_json::from_str(listed.ok()).unwrap()
}

/// The id of the question about this line, once it waits.
#[track_caller]
fn asked(world: &World, line: &str) -> String {
    question(world, line)["id"].as_str().unwrap().to_owned()
}

/// The question about this line, once it waits.
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

/// What became of a request.
#[track_caller]
fn state(world: &World, id: &str) -> String {
    let all = requests(world);
    let request = all.iter().find(|request| request["id"] == id).unwrap();
    request["state"].as_str().unwrap().to_owned()
}

/// Says yes or no; it must be taken.
#[track_caller]
fn answer(world: &World, verdict: &str, id: &str) {
    ringfence(world, &["approvals", verdict, id]).ok();
}
