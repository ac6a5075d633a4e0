//! Runs in Pyodide, compared with Deno and Pyodide without us.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ringfence_exec::local::{Connection, Fence};
use ringfence_exec::pyodide::{Pyodide, Settings};
use ringfence_policy::Request;

use super::super::context::BenchContext;
use super::super::engine::python;
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::{descendants, memory, milliseconds, runs as runs_program, time};

const NAME: &str = "pyodide-run";
const ROUNDS: usize = 6;
/// Deadline for the start of a round.
const BUDGET: Duration = Duration::from_secs(30);
/// Timeout until an interpreter is ready.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between checks for an idle process, and their number.
const PAUSE: Duration = Duration::from_millis(100);
const LOOKS: usize = 4;

/// The straightforward way to do it by hand.
const PLAIN: &str = "\
const [folder] = Deno.args;
const { loadPyodide } = await import(`file://${folder}/pyodide.mjs`);
const pyodide = await loadPyodide({ indexURL: folder });
pyodide.runPython('print(1)');
";

/// Measures runs from a snapshot and from a pooled interpreter.
pub(super) fn runs(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let folder = installed(&place.machine.pyodide, "pyodide-")?;
    let script = place.directory("plain.js");
    fs::write(&script, PLAIN)?;
    let read = format!("--allow-read={}", folder.display());
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not text");
    let (script, folder) = (text(&script)?, text(&folder)?);
    let mut plain = place.plain(
        deno(&place.machine.pyodide)?,
        &[
            "run",
            "--quiet",
            "--no-prompt",
            "--no-config",
            &read,
            &script,
            &folder,
        ],
    );
    plain.env("DENO_DIR", place.directory("deno"));
    let print = python("print(1)");
    let (cold, pooled) = (Pyodide::new(settings(place, 0)), Pyodide::new(settings(place, 1)));
    let deno = deno(&place.machine.pyodide)?;
    let (mut snapshots, mut waited, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    time(&mut plain)?;
    place.runtime.block_on(async {
        run(&cold, &print).await?;
        run(&pooled, &print).await?;
        let since = Instant::now();
        while peers.len() < ROUNDS && (peers.is_empty() || since.elapsed() < BUDGET) {
            waiting(&deno).await?;
            let (elapsed, warm) = run(&pooled, &print).await?;
            anyhow::ensure!(warm, "a run found no interpreter that waited");
            waited.push(elapsed);
            waiting(&deno).await?;
            snapshots.push(run(&cold, &print).await?.0);
            waiting(&deno).await?;
            peers.push(time(&mut plain)?);
        }
        cold.close().await;
        pooled.close().await;
        anyhow::Ok(())
    })?;
    let (snapshot, pool, peer) = (Sample::of(snapshots), Sample::of(waited), Sample::of(peers));
    let waited = Figure::new(NAME, "an interpreter waited", pool.median, Unit::Milliseconds);
    Ok(vec![
        Figure::ratio(NAME, "from the snapshot, against plain", snapshot, peer)
            .against(Target::AtMost(0.12))
            .noting(
                "print(1), request to result; peer: the same Deno and Pyodide, without a fence or a snapshot",
            ),
        waited.with(pool).beside(peer).against(Target::AtMost(10.0)),
    ])
}

/// Measures the memory of an idle interpreter.
pub(super) fn worker(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let deno = deno(&place.machine.pyodide)?;
    let pyodide = Pyodide::new(settings(place, 1));
    let print = python("print(1)");
    let measured = place.runtime.block_on(async {
        run(&pyodide, &print).await?;
        let pid = waiting(&deno).await?;
        let pss = memory(pid, "smaps_rollup", "Pss")?;
        let own = memory(pid, "smaps_rollup", "Private_Dirty")?;
        pyodide.close().await;
        anyhow::Ok((pss, own))
    });
    let (pss, own) = measured?;
    let figure = Figure::new("pyodide-worker", "PSS of a waiting Deno", pss, Unit::Mebibytes);
    Ok(vec![figure.noting(format!(
        "{own:.1} MiB of it are its own and nobody else's"
    ))])
}

fn settings(place: &BenchContext, spares: usize) -> Settings {
    Settings {
        spares,
        ..place.machine.pyodide.clone()
    }
}

fn deno(settings: &Settings) -> anyhow::Result<PathBuf> {
    match &settings.deno {
        Some(path) => Ok(path.clone()),
        None => Ok(installed(settings, "deno-")?.join("deno")),
    }
}

/// Finds the installation of `ringfence setup deno`.
fn installed(settings: &Settings, prefix: &str) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(&settings.directory).into_iter().flatten().flatten();
    let begins = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(prefix)) && path.is_dir()
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(begins).collect();
    found.sort();
    found.pop().context("Pyodide is not here: `ringfence setup deno`")
}

/// Returns the milliseconds from request to result, and `true` if a pooled interpreter served it.
async fn run(pyodide: &Pyodide, request: &Request) -> anyhow::Result<(f64, bool)> {
    let since = Instant::now();
    let ran = pyodide
        .run(request, Fence::Default, None, Connection::none())
        .await;
    let elapsed = milliseconds(since.elapsed());
    let result = ran?;
    if result.stdout != "1\n" {
        bail!(
            "a run gave {:?} instead of 1: {}",
            result.stdout,
            result.stderr.trim()
        );
    }
    Ok((elapsed, result.meta.warm))
}

/// Waits until this process has exactly one Deno, and it is idle.
async fn waiting(deno: &Path) -> anyhow::Result<u32> {
    let since = Instant::now();
    let (mut before, mut same) = (None, 0);
    loop {
        let denos: Vec<u32> = descendants(std::process::id())
            .into_iter()
            .filter(|pid| runs_program(*pid, deno))
            .collect();
        let now = match denos.as_slice() {
            [pid] => used(*pid).map(|used| (*pid, used)),
            _ => None,
        };
        same = if now.is_some() && now == before {
            same + 1
        } else {
            0
        };
        before = now;
        if let (Some((pid, _)), true) = (now, same >= LOOKS) {
            return Ok(pid);
        }
        if since.elapsed() > TIMEOUT {
            bail!("{} interpreters are there, and not one that waits", denos.len());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the CPU time of a process, in ticks.
fn used(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    Some(words.get(11)?.parse::<u64>().ok()? + words.get(12)?.parse::<u64>().ok()?)
}
