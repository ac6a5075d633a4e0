//! Processes under measurement: interleaved starts, timing, memory.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::figure::Sample;

/// Returns a command with no environment but `PATH`. The bench creates processes only here.
#[expect(
    clippy::disallowed_methods,
    reason = "measuring whole processes means starting them"
)]
pub(super) fn program(path: impl AsRef<OsStr>, search_path: Option<&OsStr>) -> Command {
    let mut command = Command::new(path);
    command
        .env_clear()
        .envs(search_path.map(|path| ("PATH", path)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Returns the milliseconds from start to reaped exit. The process must succeed.
pub(super) fn time(command: &mut Command) -> anyhow::Result<f64> {
    let since = Instant::now();
    let status = command.status();
    let elapsed = milliseconds(since.elapsed());
    let name = || command.get_program().to_string_lossy().into_owned();
    let status = status.with_context(|| format!("starting {}", name()))?;
    if !status.success() {
        bail!("{} ended with {status}", name());
    }
    Ok(elapsed)
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Uncounted rounds that fill caches.
const WARM_UP: usize = 3;
const ROUNDS: usize = 80;
const BUDGET: Duration = Duration::from_secs(4);

/// Runs the commands interleaved, so that a noisy moment hits each of them, and summarises each.
pub(super) fn in_turns<const N: usize>(mut commands: [Command; N]) -> anyhow::Result<[Sample; N]> {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..WARM_UP {
        commands
            .iter_mut()
            .try_for_each(|command| time(command).map(drop))?;
    }
    let since = Instant::now();
    while times.first().is_some_and(|times: &Vec<f64>| times.len() < ROUNDS) && since.elapsed() < BUDGET {
        for (command, times) in commands.iter_mut().zip(&mut times) {
            times.push(time(command)?);
        }
    }
    Ok(times.map(Sample::of))
}

/// Returns a field of `/proc/<pid>/<file>`, converted from kB to MiB.
pub(super) fn memory(pid: u32, file: &str, field: &str) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/{file}");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes: Option<f64> = line.and_then(|rest| {
        rest.trim_start_matches(':')
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .ok()
    });
    kilobytes
        .map(|kilobytes| kilobytes / 1024.0)
        .with_context(|| format!("{path} has no field {field}"))
}

/// Ticks of `/proc/<pid>/stat` in a millisecond: `USER_HZ` is 100 (proc(5)).
const MILLISECONDS_PER_TICK: f64 = 10.0;

/// Returns the processor time of a process and its descendants, the ended ones that were waited for included, in milliseconds.
pub(super) fn processor_time(pid: u32) -> anyhow::Result<f64> {
    let mut ticks = used_ticks(pid)?;
    // A descendant that has ended meanwhile is counted at its parent.
    ticks += descendants(pid)
        .into_iter()
        .filter_map(|pid| used_ticks(pid).ok())
        .sum::<f64>();
    Ok(ticks * MILLISECONDS_PER_TICK)
}

/// Returns the sum of `utime`, `stime`, `cutime` and `cstime`.
fn used_ticks(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    // The name of the program, in parentheses, may hold anything.
    let (_, fields) = text
        .rsplit_once(") ")
        .with_context(|| format!("{path} has no name"))?;
    let times = fields.split(' ').skip(11).take(4);
    times.map(|ticks| Ok(ticks.parse::<f64>()?)).sum()
}

/// Returns all living descendants of a process, children before grandchildren.
pub(super) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children(*pid));
        next += 1;
    }
    found.split_off(1)
}

fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the number of pid namespaces of a process: the host's, and the nested ones.
pub(super) fn pid_depth(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .map_or(0, |pids| pids.split_whitespace().count())
}

/// Returns `true` if a process runs this program.
pub(super) fn runs(pid: u32, program: &Path) -> bool {
    let name = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name = name.as_deref().and_then(Path::file_name);
    let mut wanted = program.to_path_buf();
    while let Ok(target) = fs::read_link(&wanted) {
        wanted = wanted
            .parent()
            .map_or(target.clone(), |folder| folder.join(&target));
    }
    name.is_some() && name == wanted.file_name()
}
