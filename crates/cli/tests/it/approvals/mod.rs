//! Approval requests, through the built binary.

mod commands;
mod gateways;
mod limits;
mod terminal;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Output, eventually, start};
use crate::world::World;

/// A tool timeout that asks a person.
pub(crate) const ASK: &str =
    "[permissions.tool_limits]\nat_limit = 'ask'\nrun_code_timeout_secs = 0.2\nhard_timeout_secs = 60\n";

/// A program that runs until a file appears.
const SLOW: &str = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')";
/// A program that does not end.
pub(crate) const ENDLESS: &str = "while True: pass";

/// Starts a server that asks at a tool's timeout.
fn world(config: &str) -> World {
    let world = World::before_engine();
    world.dir.write("config/ringfence/ringfence.toml", config);
    world.start_engine();
    world
}

/// A gateway played by a test.
pub(crate) struct Gateway {
    reader: BufReader<UnixStream>,
}

impl Gateway {
    /// Connects to a world's server, and reads its greeting.
    pub(crate) fn of(world: &World) -> Self {
        let stream = UnixStream::connect(world.dir.path("run/ringfence/gateway.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut gateway = Self {
            reader: BufReader::new(stream),
        };
        assert_eq!(gateway.next(), json!({"type": "hello", "version": 1}));
        gateway
    }

    /// Returns the server's next message.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Returns the next message, which must be of this type.
    #[track_caller]
    pub(crate) fn expect(&mut self, kind: &str) -> Value {
        let message = self.next();
        assert_eq!(message["type"], kind, "{message}");
        message
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.send(&format!("{message}\n"));
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.reader.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Answers with the required fields only.
    pub(crate) fn answer(&mut self, request: &Value, approved: bool) {
        self.say(&json!({"type": "approval_response", "id": request["id"], "approved": approved}));
    }

    /// Asserts that the server has closed the connection.
    #[track_caller]
    pub(crate) fn ended(&mut self) {
        let mut line = String::new();
        assert_eq!(self.reader.read_line(&mut line).unwrap_or(0), 0, "{line}");
    }
}

/// A running call of `run_code`, in its own workspace.
pub(crate) struct Use {
    child: Child,
    workspace: TempDir,
}

impl Use {
    pub(crate) fn of(world: &World, options: &[&str], code: &str) -> Self {
        let workspace = tempfile::tempdir_in(world.dir.path("work")).unwrap();
        let path = workspace.path().to_str().unwrap();
        let mut args = vec!["tool", "run_code", "-", "--json", "--workspace", path];
        args.extend(options);
        let mut child = start(&mut world.command(&[], args));
        world.watch(child.id());
        let mut stdin = child.stdin.take().unwrap();
        stdin
            .write_all(json!({"code": code}).to_string().as_bytes())
            .unwrap();
        Self { child, workspace }
    }

    /// Lets the slow program end, and returns the result.
    #[track_caller]
    fn let_go(self) -> Value {
        std::fs::write(self.workspace.path().join("go"), "").unwrap();
        self.result()
    }

    /// Returns the result of the call.
    #[track_caller]
    pub(crate) fn result(self) -> Value {
        let output = self.child.wait_with_output().unwrap();
        let printed: Result<Value, _> = serde_json::from_slice(&output.stdout);
        assert!(printed.is_ok(), "no answer: {output:?}");
        printed.unwrap()
    }
}

/// Waits until the asker has consumed an approval.
#[track_caller]
fn taken(world: &World, request: &Value) {
    eventually("the approval is taken", || {
        let all = listed(world, &["--all"]);
        all.iter()
            .any(|other| other["id"] == request["id"] && other["state"] == "consumed")
    });
}

/// Asserts that the program was killed at its timeout, and returns its standard error.
#[track_caller]
pub(crate) fn timed_out(result: &Value) -> String {
    let meta = &result["meta"];
    assert_eq!(
        (&meta["outcome"], &meta["timed_out"], &result["exit_code"]),
        (&json!("timed_out"), &json!(true), &json!(-1)),
        "{result}"
    );
    let stderr = result["stderr"].as_str().unwrap();
    assert!(!stderr.contains("cancelled"), "{stderr}");
    stderr.to_owned()
}

#[track_caller]
fn listed(world: &World, options: &[&str]) -> Vec<Value> {
    let args = [&["approvals", "ls", "--json"], options].concat();
    let output: Output = world.dir.run(args);
    serde_json::from_str(output.ok()).unwrap()
}
