//! Monty, an interpreter for a subset of Python, in processes without a fence of the kernel: the peer of what is warm.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context as _, bail};

use super::context::BenchContext;

const PROGRAM: &str = include_str!("monty.py");

/// A `python3` of the search path that uses Monty's package, `pydantic-monty`. Stopped when dropped.
#[derive(Debug)]
pub(super) struct Monty {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: String,
}

/// Requests before the first that counts: Monty starts its processes at them.
const WARM_UP: usize = 5;

impl Monty {
    /// Starts it, if the package is installed.
    pub(super) fn start(place: &BenchContext) -> anyhow::Result<Self> {
        let python = place.find("python3")?.context("no python3 is on the PATH")?;
        let mut child = place
            .plain(&python, &["-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting Monty")?;
        let stdout = child.stdout.take().context("its standard output")?;
        let mut monty = Self {
            stdin: child.stdin.take(),
            child,
            stdout: BufReader::new(stdout),
            line: String::new(),
        };
        for _ in 0..WARM_UP {
            monty.run()?;
            monty.evaluate()?;
        }
        Ok(monty)
    }

    /// Returns the milliseconds of a check-out in which `1` is printed.
    pub(super) fn run(&mut self) -> anyhow::Result<f64> {
        self.ask(b"run\n")
    }

    /// Returns the milliseconds of an evaluation in a session.
    pub(super) fn evaluate(&mut self) -> anyhow::Result<f64> {
        self.ask(b"evaluate\n")
    }

    fn ask(&mut self, request: &[u8]) -> anyhow::Result<f64> {
        const MISSING: &str = "python3 on the PATH has no package `pydantic-monty`";
        let stdin = self.stdin.as_mut().context("its standard input")?;
        stdin.write_all(request).context(MISSING)?;
        self.line.clear();
        if self.stdout.read_line(&mut self.line)? == 0 {
            bail!(MISSING);
        }
        Ok(self.line.trim().parse()?)
    }
}

impl Drop for Monty {
    fn drop(&mut self) {
        // It exits at the end of its input.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}
