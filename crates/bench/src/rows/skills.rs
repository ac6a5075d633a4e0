//! Programs that call functions of the host, compared with alternatives.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};
use ringfence_policy::{ExecutionResult, Language};
use serde_json::json;

use super::super::context::BenchContext;
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::line_process::LineProcess;
use super::super::process::milliseconds;
use super::mcp::Client;

/// The called function: the smallest possible.
const SKILL: &str = "\
class Bench:
    def same(self, value: int) -> int:
        return value
";

/// Times consecutive calls after a warm-up.
const PROGRAM: &str = "\
from time import perf_counter
for value in range(50):
    device.Bench.same(value)
times = []
for value in range(500):
    since = perf_counter()
    assert device.Bench.same(value) == value
    times.append((perf_counter() - since) * 1000)
print([round(time, 4) for time in times])
";

/// The same lines over a socket between two plain Pythons, with nothing in between.
const PEER: &str = r#"
import json, os, socket
from time import perf_counter
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    while line := theirs.recv(65536):
        value = json.loads(line)["data"]["args"][0]
        theirs.send(json.dumps({"type": "result", "id": "1", "data": {"value": value}}).encode() + b"\n")
    os._exit(0)
times = []
for value in range(550):
    since = perf_counter()
    data = {"path": "Bench.same", "args": [value], "kwargs": {}}
    ours.send(json.dumps({"type": "call", "id": "1", "data": data}).encode() + b"\n")
    assert json.loads(ours.recv(65536))["data"]["value"] == value
    times.append((perf_counter() - since) * 1000)
print(times[50:])
"#;

/// Returns the directory of skills that the rows share.
fn skills(place: &BenchContext) -> anyhow::Result<PathBuf> {
    let directory = place.directory("skills");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("bench.py"), SKILL)?;
    Ok(directory)
}

/// The runtimes under measurement, with the targets.
const RUNTIMES: [(&str, Option<f64>); 3] = [("local", Some(0.15)), ("pyodide", Some(0.5)), ("docker", None)];

/// Measures one call of a function, from the program's line to its answer.
pub(super) fn call(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "bridge-call";
    let place = &*place;
    let python = place.interpreter(Language::Python)?;
    let measure = |runtime: &str, target: Option<f64>| {
        let ours = Sample::of(called_in(place, runtime)?);
        let plain = printed(place.plain(&python, &["-I", "-c", PEER]))?;
        let what = format!("{runtime}, p50");
        let figure = Figure::new(NAME, what, ours.median, Unit::Milliseconds)
            .with(ours)
            .beside(Sample::of(times(&plain)?))
            .noting("to a file of skills and back, gatekeeper and audit log included; peer: two Pythons and a socket");
        anyhow::Ok(match target {
            Some(target) => figure.against(Target::AtMost(target)),
            None => figure,
        })
    };
    let figures = RUNTIMES.map(|(runtime, target)| {
        measure(runtime, target)
            .unwrap_or_else(|error| Figure::unmeasured(NAME, format!("{runtime}: {error:#}")))
    });
    Ok(figures.to_vec())
}

/// Returns the times of a program's calls in this runtime.
fn called_in(place: &BenchContext, runtime: &str) -> anyhow::Result<Vec<f64>> {
    let directory = skills(place)?;
    let directory = directory
        .to_str()
        .context("the name of a directory is not text")?;
    let args = [
        "run",
        "--no-engine",
        "--json",
        "--timeout",
        "60s",
        "--runtime",
        runtime,
    ];
    let args = [&args[..], &["--skills", directory, "-c", PROGRAM]].concat();
    let mut command = place.ringfence("bridge", &args);
    command.env(
        "RINGFENCE_SKILLS_SANDBOX_DIRECTORY",
        &place.machine.pyodide.directory,
    );
    if let Some(deno) = &place.machine.pyodide.deno {
        command.env("RINGFENCE_SKILLS_SANDBOX_DENO_PATH", deno);
    }
    let result: ExecutionResult = serde_json::from_str(&printed(command)?).context("reading a result")?;
    if result.exit_code != 0 {
        bail!("a program that calls a skill failed: {}", result.stderr.trim());
    }
    times(&result.stdout)
}

/// Returns the standard output of a successful program.
fn printed(mut command: Command) -> anyhow::Result<String> {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("it ended with {}: {}", output.status, complaint.trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn times(list: &str) -> anyhow::Result<Vec<f64>> {
    serde_json::from_str(list.trim()).context("reading what a measured program printed")
}

/// Number of calls that a model wants made.
const CALLS: usize = 200;
const LOOPS: usize = 5;

/// Measures many calls: one program that makes them all, compared with one tool call for each.
pub(super) fn tool_loop(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let directory = skills(place)?;
    let mut command = place.ringfence("loop", &["mcp"]);
    command.env("RINGFENCE_SKILLS_PATH", directory);
    let mut client = Client::initialize(LineProcess::start(&mut command)?)?;
    let code = format!("print(sum(device.Bench.same(value) for value in range({CALLS})))");
    let sum = (0..CALLS).sum::<usize>().to_string();
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    let mut once = |code: &str, expected: &str| {
        let since = Instant::now();
        let result = client.tool("run_python_code", &json!({"code": code}))?;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        if text.trim() != expected {
            bail!("a program that calls a skill gave {text:?} instead of {expected}");
        }
        Ok(milliseconds(since.elapsed()))
    };
    once(&code, &sum)?;
    for _ in 0..LOOPS {
        ours.push(once(&code, &sum)?);
        let mut all = 0.0;
        for value in 0..CALLS {
            let code = format!("print(device.Bench.same({value}))");
            all += once(&code, &value.to_string())?;
        }
        peers.push(all);
    }
    let (ours, peer) = (Sample::of(ours), Sample::of(peers));
    let what = format!("{CALLS} calls in one program");
    let note = format!(
        "peer: {CALLS} uses of `run_python_code` that make one each, over the same `ringfence mcp`; no model thinks in between"
    );
    Ok(vec![Figure::ratio("tool-loop", what, ours, peer).noting(note)])
}
