//! Containers, each figure compared with the container engine without us.

use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_container::spec::OciRuntime;
use ringfence_policy::EngineKind;

use super::super::containers::{Dock, PRINT, call};
use super::super::context::BenchContext;
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::{memory, milliseconds};

pub(super) const ENGINES: [EngineKind; 2] = [EngineKind::Docker, EngineKind::Podman];
const CALLS: usize = 30;
const BLOCKS: usize = 2;
const WARM_UP: usize = 3;
/// Number of checks until a container counts as idle, and the interval between them.
const LOOKS: usize = 4;
const PAUSE: Duration = Duration::from_millis(4);
const STARTS: usize = 8;
const BUDGET: Duration = Duration::from_secs(8);

/// Measures in each available container engine, and reports the others.
fn in_each(
    place: &mut BenchContext,
    name: &'static str,
    measure: impl AsyncFn(&Dock) -> anyhow::Result<Vec<Figure>>,
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for engine_kind in ENGINES {
        let measured = place.runtime.block_on(async {
            let dock = Dock::open(place, engine_kind).await?;
            let measured = measure(&dock).await;
            dock.close().await;
            measured
        });
        figures.extend(measured.unwrap_or_else(|error| vec![unmeasured(name, engine_kind, &error)]));
    }
    figures
}

/// Returns the placeholder of an unavailable container engine's figures.
pub(super) fn unmeasured(name: &'static str, engine_kind: EngineKind, error: &anyhow::Error) -> Figure {
    Figure::unmeasured(name, format!("{}: {error:#}", engine_kind.as_str()))
}

/// Measures with each OCI runtime, and reports unavailable ones.
async fn with_each(
    dock: &Dock,
    name: &'static str,
    measure: impl AsyncFn(&Dock, OciRuntime) -> anyhow::Result<Figure>,
) -> anyhow::Result<Vec<Figure>> {
    let supervisor = dock.supervisor().await?;
    let mut figures = Vec::new();
    for runtime in [OciRuntime::Runc, OciRuntime::Crun, OciRuntime::Runsc] {
        let measured = match supervisor.oci_runtime(runtime) {
            Ok(_) => measure(dock, runtime).await,
            Err(error) => Err(error.into()),
        };
        figures.push(measured.unwrap_or_else(|error| {
            Figure::unmeasured(name, format!("{}: {error:#}", place_of(dock, runtime)))
        }));
    }
    Ok(figures)
}

fn place_of(dock: &Dock, runtime: OciRuntime) -> String {
    format!(
        "{} {}",
        dock.engine_kind.as_str(),
        runtime.name().unwrap_or("default")
    )
}

/// Measures a call in a kept-alive container. Each side is measured in blocks, and each time begins with an
/// idle container, as after a client that thinks in between: it includes neither our refilling nor the
/// container engine's cleanup.
pub(super) fn calls(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "container-call";
    let measure = async |dock: &Dock, runtime: OciRuntime| {
        let warm = dock.warm(runtime).await?;
        let id = warm.container().id().clone();
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..BLOCKS {
            ours.extend(block(id.as_str(), async || call(&warm).await).await?);
            peers.extend(block(id.as_str(), async || dock.exec_by_api(&id, &PRINT, "1\n").await).await?);
        }
        let what = format!("{}, against exec", place_of(dock, runtime));
        let figure = Figure::ratio(NAME, what, Sample::of(ours), Sample::of(peers));
        Ok(figure.against(Target::AtMost(0.05)).noting(
            "print(1), request to result over the API; each begins when what the one before left to do is done",
        ))
    };
    Ok(in_each(place, NAME, async |dock| {
        with_each(dock, NAME, measure).await
    }))
}

/// Returns the times of repeated calls from an idle container; the first ones do not count.
async fn block(id: &str, act: impl AsyncFn() -> anyhow::Result<f64>) -> anyhow::Result<Vec<f64>> {
    let mut times = Vec::new();
    let since = Instant::now();
    for round in 0..WARM_UP + CALLS {
        at_rest(id).await?;
        let time = act().await?;
        if round >= WARM_UP {
            times.push(time);
        }
        if since.elapsed() > BUDGET && !times.is_empty() {
            break;
        }
    }
    Ok(times)
}

/// Waits until the processes of a container, and those of the container engine that name it, are stable.
async fn at_rest(id: &str) -> anyhow::Result<()> {
    let since = Instant::now();
    let (mut before, mut same) = (Vec::new(), 0);
    while same < LOOKS {
        tokio::time::sleep(PAUSE).await;
        let found: Vec<u32> = processes().filter(|pid| concerns(*pid, id)).collect();
        same = if found == before { same + 1 } else { 0 };
        before = found;
        anyhow::ensure!(since.elapsed() < BUDGET, "the container does not come to rest");
    }
    Ok(())
}

fn concerns(pid: u32, id: &str) -> bool {
    let names = |file| {
        let path = Path::new("/proc").join(pid.to_string()).join(file);
        std::fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(id))
    };
    names("cgroup") || names("cmdline")
}

/// Measures the start of a container until it is ready for a call.
pub(super) fn starts(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "container-start";
    let measure = async |dock: &Dock, runtime: OciRuntime| {
        let engine = dock.engine().await?;
        let (mut ours, mut peers) = (Vec::new(), Vec::new());
        for _ in 0..STARTS {
            let since = Instant::now();
            let warm = dock.warm(runtime).await?;
            ours.push(milliseconds(since.elapsed()));
            warm.container().stop().await;
            let spec = dock.spec(&["sleep", "infinity"], runtime).await?;
            let since = Instant::now();
            let id = engine.create(&spec).await?;
            let started = engine.start(&id).await;
            peers.push(milliseconds(since.elapsed()));
            engine.remove(&id).await?;
            started?;
        }
        let (ours, peer) = (Sample::of(ours), Sample::of(peers));
        let what = format!("{}, to its agent's word", place_of(dock, runtime));
        let figure = Figure::new(NAME, what, ours.median, Unit::Milliseconds);
        Ok(figure
            .with(ours)
            .beside(peer)
            .noting("peer: the same container with `sleep`, made and started"))
    };
    Ok(in_each(place, NAME, async |dock| {
        with_each(dock, NAME, measure).await
    }))
}

/// Measures the memory of an idle container.
pub(super) fn idle(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "container-idle";
    let measure = async |dock: &Dock| {
        let warm = dock.warm(OciRuntime::Default).await?;
        for _ in 0..3 {
            call(&warm).await?;
        }
        let ours = around(warm.container().id().as_str());
        let engine = dock.engine().await?;
        let id = engine
            .create(&dock.spec(&["sleep", "infinity"], OciRuntime::Default).await?)
            .await?;
        let started = engine.start(&id).await;
        let peer = around(id.as_str());
        engine.remove(&id).await?;
        started?;
        let ((inside, beside), (sleeping, its_beside)) = (ours?, peer?);
        let what = format!("{}, PSS of its processes", dock.engine_kind.as_str());
        let note = format!(
            "and {beside:.1} MiB of the container engine's for it; the same with `sleep`: {sleeping:.1} and {its_beside:.1} MiB"
        );
        Ok(vec![
            Figure::new(NAME, what, inside, Unit::Mebibytes).noting(note),
        ])
    };
    Ok(in_each(place, NAME, measure))
}

/// Returns the memory of a container's processes, and of the container engine's process above them.
fn around(id: &str) -> anyhow::Result<(f64, f64)> {
    let pss = |pid: &u32| memory(*pid, "smaps_rollup", "Pss");
    let inside: Vec<u32> = processes().filter(|pid| is_in(*pid, id)).collect();
    let mut above: Vec<u32> = inside.iter().filter_map(|pid| parent(*pid)).collect();
    above.retain(|pid| *pid > 1 && !inside.contains(pid));
    above.sort_unstable();
    above.dedup();
    anyhow::ensure!(!inside.is_empty(), "its processes are not to be seen");
    let sum = |pids: &[u32]| pids.iter().map(pss).sum::<anyhow::Result<f64>>();
    Ok((sum(&inside)?, sum(&above)?))
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn is_in(pid: u32, id: &str) -> bool {
    let path = Path::new("/proc").join(pid.to_string()).join("cgroup");
    std::fs::read_to_string(path).is_ok_and(|groups| {
        let own = |line: &str| line.contains(id) && !line.contains("conmon");
        groups.lines().any(own)
    })
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
