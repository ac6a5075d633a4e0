//! Local sandboxes over the server's HTTP routes, a connection for each request as any client has.

use std::io::Cursor;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ringfence_client::Client;
use ringfence_client::sandbox::Sandbox;
use ringfence_container::spec::OciRuntime;
use ringfence_policy::{EngineKind, Language};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::containers::{Dock, TRUE};
use super::super::context::BenchContext;
use super::super::engine::WORLD;
use super::super::figure::{Figure, Sample, Target, Unit};
use super::super::process::{descendants, memory, milliseconds, processor_time, time};

const WARM_UP: usize = 3;
const ROUNDS: usize = 100;
const PEER_ROUNDS: usize = 10;
const BUDGET: Duration = Duration::from_secs(5);

/// Pause between requests, so that each meets an idle server, as with a client that thinks in between.
const PAUSE: Duration = Duration::from_millis(5);

/// Collects the times of repeated actions; the first ones do not count.
async fn repeat(rounds: usize, act: impl AsyncFn() -> anyhow::Result<f64>) -> anyhow::Result<Sample> {
    let mut times = Vec::new();
    let since = Instant::now();
    for round in 0..WARM_UP + rounds {
        let time = act().await?;
        if round >= WARM_UP {
            times.push(time);
        }
        if since.elapsed() > BUDGET && !times.is_empty() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Sample::of(times))
}

/// Measures the same work in Docker, if it is there.
async fn in_docker(
    place: &BenchContext,
    measure: impl AsyncFn(&Dock) -> anyhow::Result<Sample>,
) -> anyhow::Result<Sample> {
    let dock = Dock::open(place, EngineKind::Docker).await?;
    let measured = measure(&dock).await;
    dock.close().await;
    measured
}

/// Adds the peer's measurements, or the reason why there are none.
fn beside(figure: Figure, peer: anyhow::Result<Sample>, note: &str) -> Figure {
    match peer {
        Ok(peer) => figure.beside(peer).noting(note),
        Err(error) => figure.noting(format!("{note}, which is not here: {error:#}")),
    }
}

fn client(place: &mut BenchContext) -> anyhow::Result<Client> {
    place.engine()?.settle();
    Ok(Client::new(&place.socket(WORLD)))
}

async fn create_one(client: &Client) -> anyhow::Result<Sandbox> {
    create_with(client, &json!({})).await
}

async fn create_with(client: &Client, request: &Value) -> anyhow::Result<Sandbox> {
    let info: Value = client.post("/v1/sandboxes", request).await?;
    let id = info["id"].as_str().context("a sandbox without an id")?;
    Ok(Sandbox::new(client.clone(), id.to_owned(), None))
}

/// Measures an action in a sandbox that is there.
async fn inside(
    client: &Client,
    act: impl AsyncFn(&Sandbox) -> anyhow::Result<()>,
) -> anyhow::Result<Sample> {
    let sandbox = create_one(client).await?;
    let measured = repeat(ROUNDS, async || {
        let since = Instant::now();
        act(&sandbox).await?;
        Ok(milliseconds(since.elapsed()))
    });
    let measured = measured.await;
    sandbox.remove().await?;
    measured
}

async fn run_true(sandbox: &Sandbox) -> anyhow::Result<()> {
    let ended = sandbox.exec_collected(&json!({"command": TRUE})).await?;
    match ended["exit_code"].as_i64() {
        Some(0) => Ok(()),
        _ => bail!("a process in a sandbox ended so: {ended}"),
    }
}

pub(super) fn create(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "sandbox-create";
    let client = client(place)?;
    let engine = place.engine()?.id();
    let before = processor_time(engine)?;
    let ours = place.runtime.block_on(repeat(ROUNDS, async || {
        let since = Instant::now();
        let sandbox = create_one(&client).await?;
        run_true(&sandbox).await?;
        sandbox.remove().await?;
        Ok(milliseconds(since.elapsed()))
    }))?;
    place.engine()?.settle();
    let each = (processor_time(engine)? - before) / (WARM_UP + ours.count) as f64;
    let peer = place.runtime.block_on(in_docker(place, async |dock| {
        repeat(PEER_ROUNDS, async || dock.run_by_api(&TRUE, "").await).await
    }));
    let figure = Figure::new(NAME, "create, true, remove, p50", ours.median, Unit::Milliseconds)
        .with(ours)
        .against(Target::AtMost(5.0));
    Ok(vec![
        beside(figure, peer, "peer is `docker run --rm`, over its API"),
        Figure::new(NAME, "processor time each", each, Unit::Milliseconds)
            .against(Target::AtMost(5.0))
            .noting("of the server and all that it started, the bench not included"),
    ])
}

/// Name of the image of [`create_on_image`] in the store.
const IMAGE: &str = "bench/image:1";

/// Measures sandboxes on the image of containers.
pub(super) fn create_on_image(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "sandbox-image";
    let client = client(place)?;
    if let Err(error) = import_image(place) {
        return Ok(vec![Figure::unmeasured(NAME, format!("{error:#}"))]);
    }
    let ours = place.runtime.block_on(repeat(ROUNDS, async || {
        let since = Instant::now();
        let sandbox = create_with(&client, &json!({"image": IMAGE})).await?;
        run_true(&sandbox).await?;
        sandbox.remove().await?;
        Ok(milliseconds(since.elapsed()))
    }))?;
    let peer = place.runtime.block_on(in_docker(place, async |dock| {
        repeat(PEER_ROUNDS, async || dock.run_by_api(&TRUE, "").await).await
    }));
    let figure = Figure::new(NAME, "create, true, remove, p50", ours.median, Unit::Milliseconds)
        .with(ours)
        .against(Target::AtMost(8.0));
    Ok(vec![beside(
        figure,
        peer,
        "peer is `docker run --rm`, over its API",
    )])
}

/// Copies the image of containers from Docker into the store.
fn import_image(place: &BenchContext) -> anyhow::Result<()> {
    let docker = place.find("docker")?.context("its command is not on the PATH")?;
    let (address, image) = place.runtime.block_on(async {
        let dock = Dock::open(place, EngineKind::Docker).await?;
        let found = (dock.address().await, dock.image());
        dock.close().await;
        anyhow::Ok((found.0?, found.1))
    })?;
    let file = place.directory("image.tar").to_string_lossy().into_owned();
    let mut save = place.plain(&docker, &["save", "--output", &file, &image]);
    time(save.env("DOCKER_HOST", &address))?;
    time(&mut place.ringfence(WORLD, &["image", "import", &file, "--name", IMAGE]))?;
    Ok(())
}

pub(super) fn exec(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let client = client(place)?;
    let ours = place.runtime.block_on(inside(&client, run_true))?;
    let peer = place.runtime.block_on(in_docker(place, async |dock| {
        let warm = dock.warm(OciRuntime::Default).await?;
        let id = warm.container().id().clone();
        repeat(PEER_ROUNDS, async || dock.exec_by_api(&id, &TRUE, "").await).await
    }));
    let what = "true, start to exit, p50";
    let figure = Figure::new("sandbox-exec", what, ours.median, Unit::Milliseconds)
        .with(ours)
        .against(Target::AtMost(2.0));
    Ok(vec![beside(figure, peer, "peer is `docker exec`, over its API")])
}

/// Measures code in a Python context, and the memory that its idle sandbox has for itself.
pub(super) fn context(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "sandbox-context";
    let python = place.interpreter(Language::Python)?;
    let mut plain = place.plain(&python, &["-I", "-S", "-c", "1+1"]);
    let client = client(place)?;
    let engine = place.engine()?;
    let (id, before) = (engine.id(), descendants(engine.id()));
    let (ours, (private, count)) = place.runtime.block_on(async {
        let sandbox = create_one(&client).await?;
        let measured = repeat(ROUNDS, async || evaluate(&sandbox).await).await;
        let mut of_sandbox = descendants(id);
        of_sandbox.retain(|pid| !before.contains(pid));
        let private = private_memory(&of_sandbox);
        sandbox.remove().await?;
        anyhow::Ok((measured?, (private?, of_sandbox.len())))
    })?;
    let peers: anyhow::Result<Vec<f64>> = (0..ROUNDS / 2).map(|_| time(&mut plain)).collect();
    let note = format!(
        "peer is a fresh python3 -I -S; the {count} processes of the idle sandbox have {private:.2} MiB for themselves"
    );
    Ok(vec![
        Figure::new(
            NAME,
            "1+1, request to value, p50",
            ours.median,
            Unit::Milliseconds,
        )
        .with(ours)
        .beside(Sample::of(peers?))
        .noting(note),
        Figure::new(NAME, "p99", ours.p99, Unit::Milliseconds),
    ])
}

async fn evaluate(sandbox: &Sandbox) -> anyhow::Result<f64> {
    let since = Instant::now();
    let executed = sandbox.run_collected(&json!({"code": "1+1"})).await?;
    let elapsed = milliseconds(since.elapsed());
    ensure!(executed["value"] == "2", "1+1 gave {executed}");
    Ok(elapsed)
}

/// Returns the memory that no other process shares, in MiB.
fn private_memory(pids: &[u32]) -> anyhow::Result<f64> {
    let fields = ["Private_Dirty", "Private_Clean"];
    let all = pids.iter().flat_map(|pid| fields.map(|field| (*pid, field)));
    all.map(|(pid, field)| memory(pid, "smaps_rollup", field)).sum()
}

/// Size of the file of [`file`].
const FILE_BYTES: usize = 1 << 20;

pub(super) fn file(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let client = client(place)?;
    let ours = place.runtime.block_on(inside(&client, write_and_read))?;
    let peer = docker_cp(place);
    let what = "1 MiB written and read, p50";
    let figure = Figure::new("sandbox-file", what, ours.median, Unit::Milliseconds)
        .with(ours)
        .against(Target::AtMost(3.0));
    Ok(vec![beside(
        figure,
        peer,
        "peer is whole `docker cp`, in and out",
    )])
}

async fn write_and_read(sandbox: &Sandbox) -> anyhow::Result<()> {
    let (path, bytes) = ("/workspace/file", vec![b'x'; FILE_BYTES]);
    let size = Some(FILE_BYTES as u64);
    sandbox.upload(Cursor::new(bytes), path, size, None).await?;
    let mut read = Vec::with_capacity(FILE_BYTES);
    sandbox.download(path, || Ok(&mut read)).await?;
    ensure!(read.len() == FILE_BYTES, "{} bytes came back", read.len());
    Ok(())
}

/// Measures `docker cp` in a container with a writable file system, since Ringfence's containers are
/// read-only.
fn docker_cp(place: &BenchContext) -> anyhow::Result<Sample> {
    let program = place.find("docker")?.context("its command is not on the PATH")?;
    let directory = place.directory("docker-cp");
    std::fs::create_dir_all(&directory)?;
    let (from, to) = (directory.join("from"), directory.join("to"));
    std::fs::write(&from, vec![b'x'; FILE_BYTES])?;
    place.runtime.block_on(in_docker(place, async |dock| {
        let (address, image) = (dock.address().await?, dock.image());
        let docker = |arguments: &[&str]| {
            let mut command = place.plain(&program, arguments);
            time(command.env("DOCKER_HOST", &address))
        };
        let name = format!("ringfence-bench-{}", std::process::id());
        let there = format!("{name}:/tmp/file");
        let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
        docker(&[
            "run",
            "--detach",
            "--network",
            "none",
            "--name",
            &name,
            &image,
            "sleep",
            "infinity",
        ])?;
        let copied = repeat(PEER_ROUNDS, async || {
            Ok(docker(&["cp", &from, &there])? + docker(&["cp", &there, &to])?)
        });
        let copied = copied.await;
        docker(&["rm", "--force", &name])?;
        copied
    }))
}

pub(super) fn fork(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    let client = client(place)?;
    let ours = place.runtime.block_on(async {
        let sandbox = create_one(&client).await?;
        evaluate(&sandbox).await?;
        let measuring = repeat(ROUNDS, async || {
            let since = Instant::now();
            let forked = sandbox.fork(1, None).await?;
            let elapsed = milliseconds(since.elapsed());
            let copy = forked["sandboxes"][0]["id"]
                .as_str()
                .context("a copy without an id")?;
            Sandbox::new(client.clone(), copy.to_owned(), None)
                .remove()
                .await?;
            Ok(elapsed)
        });
        let measured = measuring.await;
        sandbox.remove().await?;
        measured
    })?;
    Ok(Figure::times("sandbox-fork", ours, Target::AtMost(8.0)))
}

/// Sandboxes that are created at once.
const MANY: usize = 300;
const MANY_ROUNDS: usize = 3;

pub(super) fn many(place: &mut BenchContext) -> anyhow::Result<Vec<Figure>> {
    const NAME: &str = "sandbox-many";
    let client = client(place)?;
    let (mut times, mut failures) = (Vec::new(), Vec::new());
    for _ in 0..MANY_ROUNDS {
        let (time, failed) = place.runtime.block_on(at_once(&client));
        times.push(time);
        failures.extend(failed);
        place.engine()?.settle();
    }
    let sample = Sample::of(times);
    let what = format!("{MANY} created, true ended in each");
    let failed =
        Figure::new(NAME, "of these failed", failures.len() as f64, Unit::Count).against(Target::AtMost(0.0));
    Ok(vec![
        Figure::new(NAME, what, sample.median, Unit::Milliseconds)
            .with(sample)
            .against(Target::AtMost(1500.0)),
        match failures.first() {
            Some(error) => failed.noting(format!("the first: {error:#}")),
            None => failed,
        },
    ])
}

/// Creates many sandboxes, each with a first process. Returns the milliseconds until the last of these has ended, with
/// the failures.
async fn at_once(client: &Client) -> (f64, Vec<anyhow::Error>) {
    let (mut starting, mut ending) = (JoinSet::new(), JoinSet::new());
    let since = Instant::now();
    for _ in 0..MANY {
        let client = client.clone();
        starting.spawn(async move {
            let sandbox = create_one(&client).await?;
            let ran = run_true(&sandbox).await;
            anyhow::Ok((sandbox, ran))
        });
    }
    let all = starting.join_all().await;
    let elapsed = milliseconds(since.elapsed());
    let mut failures = Vec::new();
    for started in all {
        match started {
            Ok((sandbox, ran)) => {
                failures.extend(ran.err());
                ending.spawn(async move { sandbox.remove().await });
            }
            Err(error) => failures.push(error),
        }
    }
    let ended = ending.join_all().await;
    failures.extend(ended.into_iter().filter_map(|ended| Some(ended.err()?.into())));
    (elapsed, failures)
}
