//! Memory use of idle processes and of large output.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, bail};
use ringfence_policy::{Cpus, Language, Limits, Outcome, Timeout};

use super::super::context::BenchContext;
use super::super::engine::{request_within, send};
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::{descendants, memory, pid_depth, runs};

pub(super) fn worker(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let python = place.interpreter(Language::Python)?;
    let engine = place.engine()?;
    engine.settle();
    let below = descendants(engine.id());
    let pythons: Vec<u32> = below.iter().copied().filter(|pid| runs(*pid, &python)).collect();
    // The zygote lives in the launcher's pid namespace, each worker in a nested one.
    let deepest = pythons.iter().map(|pid| pid_depth(*pid)).max().unwrap_or(0);
    let shallowest = pythons.iter().map(|pid| pid_depth(*pid)).min().unwrap_or(0);
    if deepest == shallowest {
        bail!("this server keeps no idle workers");
    }
    let pss = |pid: &u32| memory(*pid, "smaps_rollup", "Pss");
    let of_depth = |wanted: bool| {
        pythons
            .iter()
            .filter(move |pid| (pid_depth(**pid) == deepest) == wanted)
    };
    let workers: Vec<f64> = of_depth(true).map(pss).collect::<Result<_, _>>()?;
    let zygotes: Vec<f64> = of_depth(false).map(pss).collect::<Result<_, _>>()?;
    let others = below
        .iter()
        .filter(|pid| !pythons.contains(pid) && pid_depth(**pid) == deepest);
    let inits: Vec<f64> = others.map(pss).collect::<Result<_, _>>()?;
    let own: Vec<f64> = of_depth(true)
        .map(|pid| memory(*pid, "smaps_rollup", "Private_Dirty"))
        .collect::<Result<_, _>>()?;
    let note = format!(
        "{} workers, {:.2} MiB each shared with nobody; beside them the zygote ({:.2} MiB) and a first process a cell ({:.2} MiB)",
        workers.len(),
        Sample::of(own).median,
        Sample::of(zygotes).median,
        Sample::of(inits).median
    );
    let sample = Sample::of(workers);
    Ok(vec![
        Figure::new(
            "idle-worker",
            "PSS of a waiting python",
            sample.median,
            Unit::Mebibytes,
        )
        .with(sample)
        .against(Target::AtMost(1.5))
        .noting(note),
    ])
}

pub(super) fn engine(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let engine = place.start_engine("empty", &[("RINGFENCE_ENGINE_POOL_SIZE", "0")])?;
    engine.settle();
    let rss = memory(engine.id(), "status", "VmRSS")?;
    let below = descendants(engine.id());
    let others: f64 = below
        .iter()
        .filter_map(|pid| memory(*pid, "smaps_rollup", "Pss").ok())
        .sum();
    let note = format!("its {} helpers have another {others:.1} MiB (PSS)", below.len());
    Ok(vec![
        Figure::new("engine-idle", "RSS, pool size 0", rss, Unit::Mebibytes)
            .against(Target::AtMost(25.0))
            .noting(note),
    ])
}

/// Unbuffered writes in a loop; a pipe may accept less than is offered.
const FLOOD: &str = "
import os
left, piece = SIZE, b'x' * (1 << 20)
while left > 0:
    left -= os.write(1, piece[:min(left, len(piece))])
";

pub(super) fn flood(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    place.interpreter(Language::Python)?;
    let size = place.flood_bytes;
    let limits = Limits {
        timeout: Timeout::seconds(120),
        cpus: Cpus::ONE,
        ..Limits::DEFAULT
    };
    let run = request_within(&FLOOD.replace("SIZE", &size.to_string()), limits)?;
    let engine = place.engine()?;
    engine.settle();
    let id = engine.id();
    // Resets the kernel's peak of resident memory (proc_pid_clear_refs(5)).
    fs::write(format!("/proc/{id}/clear_refs"), "5").context("resetting the server's memory mark")?;
    let before = memory(id, "status", "VmRSS")?;
    let mut client = place.connect()?;
    let since = Instant::now();
    let result = place.runtime.block_on(send(&mut client, &run))?;
    let seconds = since.elapsed().as_secs_f64();
    let growth = memory(id, "status", "VmHWM")? - before;
    let printed = result.meta.stdout_bytes;
    if result.meta.outcome != Outcome::Exited || printed != size {
        bail!("{printed} of {size} bytes arrived: {:?}", result.meta.outcome);
    }
    let gigabytes = size as f64 / f64::from(1 << 30);
    Ok(vec![
        Figure::new(
            "flood",
            format!("{gigabytes} GiB printed, server's growth"),
            growth,
            Unit::Mebibytes,
        )
        .against(Target::AtMost(8.0))
        .noting(format!("{:.2} GiB/s", gigabytes / seconds)),
    ])
}
