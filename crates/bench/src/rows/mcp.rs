//! Tool calls over the Model Context Protocol.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::super::context::BenchContext;
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::milliseconds;

const CALLS: usize = 300;
const BUDGET: Duration = Duration::from_secs(6);
const WARM_UP: usize = 20;

/// Pause between calls, so that each meets an idle server, as with a model that thinks in between.
const PAUSE: Duration = Duration::from_millis(10);

/// An MCP client of its own `ringfence mcp` process.
pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: String,
    id: usize,
}

impl Client {
    pub(super) fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting `ringfence mcp`")?;
        let stdout = child.stdout.take().context("its standard output")?;
        let mut client = Self {
            stdin: child.stdin.take(),
            child,
            stdout: BufReader::new(stdout),
            line: String::new(),
            id: 0,
        };
        let about = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": env!("CARGO_PKG_VERSION")},
        });
        client.ask("initialize", &about)?;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(client)
    }

    fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("its standard input")?;
        stdin.write_all(format!("{message}\n").as_bytes())?;
        Ok(stdin.flush()?)
    }

    fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}))?;
        loop {
            self.line.clear();
            if self.stdout.read_line(&mut self.line)? == 0 {
                bail!("the server has ended; `ringfence mcp` says why");
            }
            let mut answer: Value = serde_json::from_str(&self.line)?;
            if answer["id"] == self.id {
                return Ok(answer["result"].take());
            }
        }
    }

    /// Calls a tool and returns its result.
    pub(super) fn tool(&mut self, name: &str, arguments: &Value) -> anyhow::Result<Value> {
        self.ask("tools/call", &json!({"name": name, "arguments": arguments}))
    }

    /// Has Python print 1, and checks the result.
    fn call(&mut self) -> anyhow::Result<()> {
        let result = self.tool("run_python_code", &json!({"code": "print(1)"}))?;
        if result["content"][0]["text"] != "1\n" {
            bail!("a call gave {result} instead of 1");
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // At the end of its input the process cleans up and exits.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

pub(super) fn call(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let mut client = Client::start(place.ringfence("mcp", &["mcp"]))?;
    for _ in 0..WARM_UP {
        client.call()?;
        std::thread::sleep(PAUSE);
    }
    let mut times = Vec::new();
    let since = Instant::now();
    while times.len() < CALLS && since.elapsed() < BUDGET {
        std::thread::sleep(PAUSE);
        let sent = Instant::now();
        client.call()?;
        times.push(milliseconds(sent.elapsed()));
    }
    let sample = Sample::of(times);
    let figure = |what, value| Figure::new("mcp-call", what, value, Unit::Milliseconds);
    Ok(vec![
        figure("p50", sample.median)
            .with(sample)
            .against(Target::AtMost(1.5)),
        figure("p99", sample.p99),
    ])
}
