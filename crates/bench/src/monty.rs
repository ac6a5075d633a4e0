//! Monty, an interpreter for a subset of Python, in processes without a fence of the kernel: the peer of what is warm.

use anyhow::Context as _;

use super::context::BenchContext;
use super::line_process::LineProcess;

const PROGRAM: &str = include_str!("monty.py");

/// A `python3` of the search path that uses Monty's package, `pydantic-monty`.
#[derive(Debug)]
pub(super) struct Monty(LineProcess);

/// Requests before the first that counts: Monty starts its processes at them.
const WARM_UP: usize = 5;

impl Monty {
    /// Starts Monty, if the package is installed.
    pub(super) fn start(place: &BenchContext) -> anyhow::Result<Self> {
        let python = place.find("python3")?.context("no python3 is on the PATH")?;
        let mut monty = Self(LineProcess::start(&mut place.plain(&python, &["-c", PROGRAM]))?);
        for _ in 0..WARM_UP {
            monty.run()?;
            monty.evaluate()?;
        }
        Ok(monty)
    }

    /// Returns the milliseconds of a check-out in which `1` is printed.
    pub(super) fn run(&mut self) -> anyhow::Result<f64> {
        self.ask("run")
    }

    /// Returns the milliseconds of an evaluation in a session.
    pub(super) fn evaluate(&mut self) -> anyhow::Result<f64> {
        self.ask("evaluate")
    }

    fn ask(&mut self, request: &str) -> anyhow::Result<f64> {
        const MISSING: &str = "python3 on the PATH has no package `pydantic-monty`";
        self.0.send(request).context(MISSING)?;
        Ok(self.0.receive()?.context(MISSING)?.parse()?)
    }
}
