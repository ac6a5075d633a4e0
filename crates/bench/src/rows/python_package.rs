//! Code in a sandbox through the package for Python.

use std::time::Duration;

use anyhow::Context as _;

use super::super::context::BenchContext;
use super::super::engine::WORLD;
use super::super::figure::{Figure, Sample, Target};
use super::super::line_process::LineProcess;

const NAME: &str = "python-package";
const PROGRAM: &str = include_str!("../python_package.py");
const MISSING: &str = "`python3` on the PATH has no package `ringfence` (docs/guide/python.md installs it)";

const WARM_UP: usize = 10;
const ROUNDS: usize = 300;

/// Pause before each call, so that it meets an idle server.
const PAUSE: Duration = Duration::from_millis(5);

/// Measures `run_code("1+1")` in a sandbox that is there, by the clock of the program that calls it.
pub(super) fn run_code(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    place.engine()?.settle();
    let python = place.find("python3")?.context("no python3 is on the PATH")?;
    let socket = place.socket(WORLD).to_string_lossy().into_owned();
    let mut caller = LineProcess::start(&mut place.plain(&python, &["-c", PROGRAM, &socket]))?;
    let mut times = Vec::new();
    for round in 0..WARM_UP + ROUNDS {
        std::thread::sleep(PAUSE);
        caller.send("").context(MISSING)?;
        let taken: f64 = caller.receive()?.context(MISSING)?.parse()?;
        if round >= WARM_UP {
            times.push(taken);
        }
    }
    Ok(Figure::times(NAME, Sample::of(times), Target::AtMost(1.5)))
}
