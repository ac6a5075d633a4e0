//! `ringfence mcp`, with a handwritten client and with the official ones.

mod asking;
mod connection;
mod elicitation;
mod frames;
mod models;
mod notices;
pub(crate) mod official;
mod over_http;
mod stateless;
mod workspace;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout};

use serde_json::{Value, json};

use crate::support::start;
use crate::world::World;

/// A handwritten MCP client.
pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Messages that arrived while waiting for another.
    early: VecDeque<Value>,
    last_id: i64,
}

impl Client {
    /// Starts `ringfence mcp ARGS…` without initialising it.
    pub(crate) fn start(world: &World, args: &[&str]) -> Self {
        let mut child = start(&mut world.command(&[], [&["mcp"], args].concat()));
        world.watch(child.id());
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            early: VecDeque::new(),
            last_id: 0,
        }
    }

    /// Starts and initialises it.
    pub(crate) fn greeted(world: &World, args: &[&str]) -> Self {
        let mut client = Self::start(world, args);
        client.greet(&json!({}));
        client
    }

    fn greet(&mut self, capabilities: &Value) -> Value {
        let about = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": {"name": "by hand", "version": "1"},
        });
        let greeting = self.ask("initialize", &about);
        self.tell("notifications/initialized", &json!({}));
        greeting["result"].clone()
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes.as_ref()).unwrap();
        stdin.flush().unwrap();
    }

    fn send(&mut self, message: &Value) {
        self.write(format!("{message}\n"));
    }

    fn tell(&mut self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request; returns its id.
    fn request(&mut self, method: &str, params: &Value) -> i64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request and returns its answer.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    /// Starts a tool call; returns the request's id.
    pub(crate) fn begin(&mut self, tool: &str, arguments: &Value) -> i64 {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// Calls a tool; returns the result, which must exist.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.begin(tool, arguments);
        let answer = self.answer(id);
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// Runs Python code; returns its output.
    #[track_caller]
    pub(crate) fn python(&mut self, code: &str) -> String {
        text(&self.call("run_python_code", &json!({"code": code}))).to_owned()
    }

    /// The next message.
    #[track_caller]
    fn next(&mut self) -> Value {
        self.early.pop_front().unwrap_or_else(|| self.read())
    }

    #[track_caller]
    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let message = serde_json::from_str(&line);
        assert!(message.is_ok(), "not a message: {line:?}");
        message.unwrap()
    }

    /// Returns the answer to a request, and buffers earlier messages.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Returns the first message that matches.
    #[track_caller]
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.early.iter().position(&wanted) {
            return self.early.remove(place).unwrap();
        }
        loop {
            let message = self.read();
            if wanted(&message) {
                return message;
            }
            self.early.push_back(message);
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Disconnects, and waits for the exit: returns the last messages, standard error and the exit status.
    pub(crate) fn leave(mut self) -> Left {
        drop(self.stdin.take());
        self.end()
    }

    /// Waits for the exit.
    fn end(mut self) -> Left {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let output = self.child.wait_with_output().unwrap();
        let messages = rest.lines().map(|line| serde_json::from_str(line).unwrap());
        Left {
            messages: self.early.into_iter().chain(messages).collect(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            status: output
                .status
                .code()
                .unwrap_or_else(|| 128 + output.status.signal().unwrap_or_default()),
        }
    }
}

/// The remains of a closed connection.
#[derive(Debug)]
pub(crate) struct Left {
    messages: Vec<Value>,
    stderr: String,
    status: i32,
}

impl Left {
    /// Asserts that it exited successfully, without messages.
    #[track_caller]
    pub(crate) fn well(&self) {
        assert_eq!((self.status, self.stderr.as_str()), (0, ""), "{self:?}");
        assert!(self.messages.is_empty(), "{self:?}");
    }
}

impl Left {
    /// Asserts that it exited successfully, and that the client and the person were told of this many
    /// questions, and of nothing else.
    #[track_caller]
    pub(crate) fn announced(&self, questions: usize) {
        let logs = self.messages.iter().filter(|message| {
            let data = message["params"]["data"].as_str().unwrap_or_default();
            message["method"] == "notifications/message" && data.contains("waits for your answer")
        });
        let notes = self.stderr.lines().filter(|line| line.starts_with("note: "));
        let all = (self.messages.len(), self.stderr.lines().count());
        assert_eq!((logs.count(), notes.count()), (questions, questions), "{self:?}");
        assert_eq!((all, self.status), ((questions, questions), 0), "{self:?}");
    }
}

/// Returns the text of a result.
#[track_caller]
pub(crate) fn text(result: &Value) -> &str {
    let text = result["content"][0]["text"].as_str();
    assert!(text.is_some(), "{result}");
    text.unwrap()
}
