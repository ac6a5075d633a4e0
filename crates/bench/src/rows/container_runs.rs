//! Runs in pooled containers, compared with `docker run --rm`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ringfence_container::spec::OciRuntime;
use ringfence_container::{ContainerRuntime, Containers};
use ringfence_exec::local::{Connection, Fence, FencedRequest};

use super::super::containers::{Dock, PRINT};
use super::super::context::BenchContext;
use super::super::engine::python;
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::{milliseconds, time};
use super::containers::{ENGINES, unmeasured};

const NAME: &str = "container-run";
/// The world of the server with a container pool.
const WORLD: &str = "containers";
const ROUNDS: usize = 8;
const BACK_TO_BACK: &str = "container-back-to-back";
/// Runs without a pause, many more than a pool holds.
const RUNS: usize = 100;
/// Size of the container pool.
const READY: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn runs(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for engine_kind in ENGINES {
        let opened = place.runtime.block_on(Dock::open(place, engine_kind));
        let measured = match opened {
            Ok(dock) => vec![
                place.runtime.block_on(by_api(place, &dock)),
                by_command(place, &dock),
            ],
            Err(error) => vec![Err(error)],
        };
        let told = measured
            .into_iter()
            .map(|measured| measured.unwrap_or_else(|error| unmeasured(NAME, engine_kind, &error)));
        figures.extend(told);
    }
    Ok(figures)
}

/// Measures a request in this process, compared with the same container made by the API of its engine.
async fn by_api(place: &BenchContext, dock: &Dock) -> anyhow::Result<Figure> {
    let containers = pooled(place);
    let (mut ours, mut peers, mut made) = (Vec::new(), Vec::new(), 0);
    let run = async || run(&containers, dock).await;
    let engine = dock.engine().await?;
    // The pool learns its key from the first requests.
    for _ in 0..READY {
        run().await?;
    }
    for _ in 0..ROUNDS {
        refilled(engine, std::process::id()).await?;
        let (elapsed, warm) = run().await?;
        ours.push(elapsed);
        made += usize::from(!warm);
        refilled(engine, std::process::id()).await?;
        peers.push(dock.run_by_api(&PRINT, "1\n").await?);
    }
    containers.close().await;
    let what = format!("{}, against its API", dock.engine_kind.as_str());
    let note = format!("{ROUNDS} runs with time to refill in between, {made} of them not from the pool");
    let figure = Figure::ratio(NAME, what, Sample::of(ours), Sample::of(peers));
    Ok(figure.against(Target::AtMost(0.15)).noting(note))
}

/// Returns containers with a pool, in this process.
fn pooled(place: &BenchContext) -> Containers {
    let mut settings = place.machine.containers.clone();
    settings.init = place.directory("init");
    Containers::keeping(READY, settings)
}

/// Runs `print(1)`; returns the milliseconds, and `true` if its container was from the pool.
async fn run(containers: &Containers, dock: &Dock) -> anyhow::Result<(f64, bool)> {
    let request = python("print(1)");
    let order = FencedRequest {
        request: &request,
        fence: Fence::Default,
    };
    let since = Instant::now();
    let ran = containers.run(dock.engine_kind, order, None, Connection::none());
    let result = ran.await?;
    if result.stdout != "1\n" {
        bail!(
            "a run gave {:?} instead of 1: {}",
            result.stdout,
            result.stderr.trim()
        );
    }
    Ok((milliseconds(since.elapsed()), result.meta.warm))
}

/// Counts the runs for which no container was left, of many back to back from a full pool.
pub(super) fn back_to_back(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for engine_kind in ENGINES {
        let measured = place.runtime.block_on(async {
            let dock = Dock::open(place, engine_kind).await?;
            let containers = pooled(place);
            let measured = counted(&containers, &dock).await;
            containers.close().await;
            dock.close().await;
            measured
        });
        figures.push(measured.unwrap_or_else(|error| unmeasured(BACK_TO_BACK, engine_kind, &error)));
    }
    Ok(figures)
}

async fn counted(containers: &Containers, dock: &Dock) -> anyhow::Result<Figure> {
    for _ in 0..READY {
        run(containers, dock).await?;
    }
    refilled(dock.engine().await?, std::process::id()).await?;
    let (mut times, mut made) = (Vec::new(), 0);
    for _ in 0..RUNS {
        let (elapsed, warm) = run(containers, dock).await?;
        times.push(elapsed);
        made += u32::from(!warm);
    }
    let what = format!(
        "{}, of {RUNS} runs with a pool of {READY}",
        dock.engine_kind.as_str()
    );
    let figure = Figure::new(BACK_TO_BACK, what, f64::from(made), Unit::Count);
    Ok(figure
        .with(Sample::of(times))
        .against(Target::AtMost(0.0))
        .noting("the samples are milliseconds from request to result"))
}

/// Measures whole `ringfence run` processes with a server, compared with whole `docker run --rm`.
fn by_command(place: &BenchContext, dock: &Dock) -> anyhow::Result<Figure> {
    let name = dock.engine_kind.as_str();
    let program = place.find(name)?.context("its command is not on the PATH")?;
    let address = place.runtime.block_on(dock.address())?;
    let env = [
        ("DOCKER_HOST", address.as_str()),
        ("CONTAINER_HOST", address.as_str()),
    ];
    let engine = place.start_engine(WORLD, &env)?;
    let mut ours = place.ringfence(WORLD, &["run", "--runtime", name, "-c", "print(1)"]);
    ours.envs(env);
    let supervisor = place.runtime.block_on(dock.supervisor())?;
    let oci_runtime = supervisor.oci_runtime(OciRuntime::Default)?.name();
    let mut peer = peer(place, &program, &dock.image(), oci_runtime);
    for _ in 0..READY {
        time(&mut ours)?;
    }
    let (mut times, mut peers) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let wait = async { refilled(dock.engine().await?, engine.id()).await };
        place.runtime.block_on(wait)?;
        times.push(time(&mut ours)?);
        let wait = async { refilled(dock.engine().await?, engine.id()).await };
        place.runtime.block_on(wait)?;
        peers.push(time(&mut peer)?);
    }
    let what = format!("whole command, against `{name} run --rm`");
    let figure = Figure::ratio(NAME, what, Sample::of(times), Sample::of(peers));
    Ok(figure.against(Target::AtMost(0.15)))
}

/// Returns the engine's own command for the same container.
fn peer(place: &BenchContext, program: &Path, image: &str, oci_runtime: Option<&str>) -> Command {
    let mut command = place.plain(program, &[]);
    // Podman's command has another default than its service.
    if let (Some(runtime), true) = (oci_runtime, program.ends_with("podman")) {
        command.args(["--runtime", runtime]);
    }
    command.args([
        "run",
        "--rm",
        "--network",
        "none",
        "--read-only",
        "--tmpfs",
        "/tmp",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--user",
        "65534:65534",
        "--memory",
        "256m",
        "--pids-limit",
        "64",
        "--cpus",
        "0.5",
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=1024:1024",
    ]);
    command.arg(image).args(PRINT);
    command
}

/// Waits until the pool of this process is full and stable.
async fn refilled(engine: &ContainerRuntime, pid: u32) -> anyhow::Result<()> {
    let since = Instant::now();
    let mut same = 0;
    while same < 5 {
        let all = engine.list().await?;
        let own = format!(".{pid}.");
        let waits = |labels: &str| labels.contains(&own);
        let running = all.iter().filter(|container| container.state == "running");
        let count = running
            .filter(|container| container.labels.values().any(|label| waits(label)))
            .count();
        same = if count == READY { same + 1 } else { 0 };
        if since.elapsed() > TIMEOUT {
            bail!("expected {READY} idle containers, found {count}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
