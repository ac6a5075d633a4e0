//! Tool calls over the Model Context Protocol.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::super::context::BenchContext;
use super::super::figure::{Figure, Sample, Target};
use super::super::line_process::LineProcess;
use super::super::process::milliseconds;

const CALLS: usize = 300;
const BUDGET: Duration = Duration::from_secs(6);
const WARM_UP: usize = 20;

/// Pause between calls, so that each meets an idle server, as with a model that thinks in between.
const PAUSE: Duration = Duration::from_millis(10);

/// An MCP client of its own `ringfence mcp` process, which cleans up and exits when this is dropped.
pub(super) struct Client {
    process: LineProcess,
    id: usize,
}

impl Client {
    /// Makes itself known to the process.
    pub(super) fn initialize(process: LineProcess) -> anyhow::Result<Self> {
        let mut client = Self { process, id: 0 };
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
        Ok(self.process.send(&message.to_string())?)
    }

    fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}))?;
        loop {
            let line = self.process.receive()?;
            let mut answer: Value =
                serde_json::from_str(line.context("the server has ended; `ringfence mcp` says why")?)?;
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

pub(super) fn call(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let process = LineProcess::start(&mut place.ringfence("mcp", &["mcp"]))?;
    let mut client = Client::initialize(process)?;
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
    Ok(Figure::times("mcp-call", sample, Target::AtMost(1.5)))
}
